"""GET /metrics in Prometheus' text format, built from the views at the time of asking. Counts nothing itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from optaned.domain.generation import SlotState
from optaned.domain.thermal import Level
from optaned.server.ports import EngineState
from optaned.server.service import Service
from optaned.server.tier_metrics import tier_families


async def metrics(request: Request, service: Service) -> Response:  # noqa: ARG001  every route has this signature
    """Return all figures; the registry is our own, so that no library adds its own to it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Views(service))
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Views(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield from self._engine()
        yield from self._slots()
        yield from self._thermal()
        yield from tier_families(self._service.engine.view.residency)

    def _engine(self) -> Iterator[Metric]:
        view = self._service.engine.view
        yield _states("optaned_engine_state", "State of the engine", view.state.value, [s.value for s in EngineState])
        yield GaugeMetricFamily("optaned_load_fraction", "Progress of loading, 0 to 1", view.fraction)
        yield CounterMetricFamily("optaned_engine_deaths", "Times the engine died", view.deaths)
        yield CounterMetricFamily("optaned_requests", "Requests taken in", view.requests_total)
        yield CounterMetricFamily("optaned_prompt_tokens", "Tokens of prompts", view.prompt_tokens_total)
        yield CounterMetricFamily(
            "optaned_cached_prompt_tokens", "Tokens of prompts not computed again", view.cached_tokens_total
        )
        yield CounterMetricFamily("optaned_completion_tokens", "Tokens of answers", view.completion_tokens_total)
        yield CounterMetricFamily("optaned_prefill_seconds", "Time spent on prompts", view.prefill_s_total)
        yield CounterMetricFamily("optaned_decode_seconds", "Time spent on answers", view.decode_s_total)
        if view.last_progress_age_s is not None:
            text = "Seconds since the engine last got anything done"
            yield GaugeMetricFamily("optaned_last_progress_age_seconds", text, view.last_progress_age_s)

    def _slots(self) -> Iterator[Metric]:
        view = self._service.engine.view
        yield GaugeMetricFamily("optaned_requests_waiting", "Requests without a slot", view.waiting)
        yield GaugeMetricFamily("optaned_requests_active", "Requests in a slot", view.active)
        yield GaugeMetricFamily(
            "optaned_exchanges_open", "Clients that wait for an answer", len(self._service.exchanges)
        )
        slots = GaugeMetricFamily("optaned_slots", "Slots by what they do", labels=["state"])
        for state in SlotState:
            slots.add_metric([state.value], sum(slot.state is state for slot in view.slots))
        yield slots

    def _thermal(self) -> Iterator[Metric]:
        pause = self._service.pause.view
        level = "silent" if pause.level is None else pause.level.name.lower()
        yield _states("optaned_thermal_level", "How hot it is", level, [*(x.name.lower() for x in Level), "silent"])
        yield GaugeMetricFamily("optaned_duty", "Share of time in which the engine may run", pause.duty)
        yield GaugeMetricFamily(
            "optaned_paused", "1 while the engine is stopped for heat or for silence", int(pause.paused)
        )
        if pause.word_age_s is not None:
            yield GaugeMetricFamily("optaned_thermal_word_age_seconds", "Age of the guard's word", pause.word_age_s)


def _states(name: str, text: str, current: str, known: list[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["state"])
    for state in known:
        family.add_metric([state], int(state == current))
    return family
