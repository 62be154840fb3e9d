"""What every placement policy must keep to, as tests that a plugin's author inherits.

    class TestMine(PolicyContract):
        def policy(self) -> PlacementPolicy:
            return MyPolicy(MyOptions())

Plans are made for small models on many machines, with and without heat, and held to the core's own check.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from optaned.domain.model import ByteRange, Group, ModelIndex, Shard, Tensor
from optaned.domain.tiers import TierInfo, TierKind
from optaned.errors import OptanedError
from optaned.hooks.drivers import ExpertStats, PlacementPolicy, PlanRequest, Scores
from optaned.placement.check import faults_of

LAYERS, EXPERTS, USED = 3, 8, 2
KV_BYTES = 50


class PolicyContract:
    """Inherit, and return a fresh policy from `policy`."""

    def policy(self) -> PlacementPolicy:
        """Return the policy to test, made anew at each call."""
        raise NotImplementedError

    def test_each_byte_has_one_place_and_no_tier_is_overfull(self) -> None:
        for request in requests():
            plan = self.policy().plan(request)
            assert faults_of(plan, request.index, request.tiers, request.kv_bytes) == []

    def test_a_machine_that_cannot_hold_the_cache_is_refused_in_one_line(self) -> None:
        disk = TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 9000, mount=Path("/nvme"))
        request = PlanRequest(example_index(("/nvme",)), (disk,), (), KV_BYTES)
        refusal = _refusal(self.policy(), request)
        assert refusal is not None, "the KV cache was put on a disk"
        assert len(refusal.lines) == 1
        assert "\n" not in refusal.lines[0]

    def test_the_same_request_always_makes_the_same_plan(self) -> None:
        policy = self.policy()
        for request in requests():
            assert policy.plan(request) == policy.plan(request) == self.policy().plan(request)

    def test_what_it_is_given_is_never_written_to(self) -> None:
        """The arrays of `requests` are locked: writing raises here what would be a riddle in the engine."""
        policy = self.policy()
        if isinstance(policy, Scores):
            policy.score(example_stats(tokens=100))
        for request in requests():
            policy.plan(request)

    def test_scores_are_numbers_from_zero_up_one_an_expert(self) -> None:
        policy = self.policy()
        if not isinstance(policy, Scores):
            return
        for tokens in (0, 1, 100):
            stats = example_stats(tokens=tokens)
            scores = np.asarray(policy.score(stats))
            assert scores.shape == (LAYERS * EXPERTS,)
            assert np.isfinite(scores).all()
            assert (scores >= 0).all()
            np.testing.assert_array_equal(scores, np.asarray(policy.score(stats)))


def requests() -> Iterator[PlanRequest]:
    """Yield plans to make: one and two homes, one and two targets, from no room to more than enough, with and without heat."""
    heats = (None, example_stats(tokens=0), example_stats(tokens=100))
    rooms = (KV_BYTES, KV_BYTES + 1, 150, 400, 10_000)
    for homes, room, heat in itertools.product((("/pmem",), ("/pmem", "/nvme")), rooms, heats):
        tiers = (
            TierInfo("dram0", "memory", TierKind.BYTE, 20_000, room),
            TierInfo("dram1", "memory", TierKind.BYTE, 20_000, room // 2),
            TierInfo("pmem0", "fsdax", TierKind.BYTE, 9000, 900, mount=Path("/pmem")),
            TierInfo("nvme0", "file", TierKind.BLOCK, 9000, 900, mount=Path("/nvme")),
        )
        for targets in ((), ("dram0",), ("dram1", "dram0")):
            yield PlanRequest(example_index(homes), tiers, targets, KV_BYTES, heat)


def example_index(mounts: tuple[str, ...] = ("/pmem",)) -> ModelIndex:
    """Return a model of 3 layers with 8 experts each, of unequal sizes, with its layers spread over `mounts`."""
    shards = tuple(Shard(Path(mount) / f"{number}.gguf", 2000, 10) for number, mount in enumerate(mounts))
    tensors = [
        _tensor("token_embd.weight", (4, 25), 0, 100, None),
        _tensor("output.weight", (4, 10), 0, 40, None),
    ]
    for layer in range(LAYERS):
        shard = layer % len(shards)
        tensors.append(_tensor(f"blk.{layer}.attn_q.weight", (5, 4), shard, 20 + layer, layer))
        for part in ("gate", "up", "down"):
            size = EXPERTS * (4 + layer)
            tensors.append(_tensor(f"blk.{layer}.ffn_{part}_exps.weight", (2, 2, EXPERTS), shard, size, layer))
    return ModelIndex("llama", "example", shards, tuple(tensors), "digest", LAYERS, EXPERTS, USED)


def example_stats(*, tokens: int, seed: int = 0) -> ExpertStats:
    """Return made-up heat over the example's experts, with arrays that cannot be written to; nothing known for 0 tokens."""
    rng = np.random.default_rng(seed)
    experts = LAYERS * EXPERTS
    frequency = rng.random(experts) * bool(tokens)
    idle = (
        np.where(rng.random(experts) < 0.3, np.inf, rng.integers(0, 50, experts))
        if tokens
        else np.full(experts, np.inf)
    )
    return ExpertStats(_locked(frequency), _locked(idle), _locked(rng.random(experts) < 0.2), tokens)


def _refusal(policy: PlacementPolicy, request: PlanRequest) -> OptanedError | None:
    try:
        policy.plan(request)
    except OptanedError as error:
        return error
    return None


def _tensor(name: str, shape: tuple[int, ...], shard: int, size: int, layer: int | None) -> Tensor:
    group = Group.EXPERT if "_exps" in name else Group.TRUNK
    return Tensor(name, shape, "I8", ByteRange(shard, 10, size), layer, group)


def _locked(array: Any) -> Any:
    array.flags.writeable = False
    return array
