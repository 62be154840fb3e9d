"""The figures of memory tiers for /metrics: a family a figure, labelled by tier. Counts nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from optaned.engine.messages import Residency, TierUse

_GAUGES: tuple[tuple[str, str, Callable[[TierUse], float]], ...] = (
    ("optaned_tier_budget_bytes", "What the model may take of a tier", lambda use: use.budget_bytes),
    ("optaned_tier_experts", "Experts that are read from a tier", lambda use: use.experts),
)
_COUNTERS: tuple[tuple[str, str, Callable[[TierUse], float]], ...] = (
    ("optaned_tier_promoted_bytes", "Bytes promoted to a tier", lambda use: use.promoted_bytes_total),
    ("optaned_tier_demoted_bytes", "Bytes demoted from a tier", lambda use: use.demoted_bytes_total),
    ("optaned_tier_hit_bytes", "Routed bytes that were read from a tier", lambda use: use.hit_bytes_total),
)


def tier_families(live: Residency | None) -> Iterator[Metric]:
    """Yield the families; none until the engine has said what is where."""
    if live is None:
        return
    lying = GaugeMetricFamily("optaned_tier_bytes", "The model's bytes on a tier", labels=["tier", "group"])
    for use in live.tiers:
        lying.add_metric([use.name, "trunk"], use.trunk_bytes)
        lying.add_metric([use.name, "expert"], use.expert_bytes)
    yield lying
    for name, text, figure in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["tier"])
        for use in live.tiers:
            gauge.add_metric([use.name], figure(use))
        yield gauge
    for name, text, figure in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=["tier"])
        for use in live.tiers:
            counter.add_metric([use.name], figure(use))
        yield counter
    yield CounterMetricFamily("optaned_routed_bytes", "Bytes of experts that the router chose", live.routed_bytes_total)
    yield GaugeMetricFamily("optaned_move_gbps", "Speed of moves at present, in GB/s", live.move_gbps)
    if live.skew is not None:
        yield GaugeMetricFamily("optaned_router_skew", "0: the router chooses evenly; 1: one expert alone", live.skew)
    if live.smaps_bytes is not None:
        text = "Anonymous memory within the model's mappings, as the kernel counts it"
        yield GaugeMetricFamily("optaned_resident_bytes", text, live.smaps_bytes)
