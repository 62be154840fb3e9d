"""Measured bandwidth: what is read for which tier, where it is remembered, and when it is believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from optaned.api import TierInfo, TierKind
from optaned.errors import AccessError, ConfigError
from optaned.pipeline.bandwidth import measure, remember, with_bandwidth
from optaned.residency.measure import Measuring

QUICK = Measuring(1, 0.01)


def dram(**changes: object) -> TierInfo:
    return replace(TierInfo("dram0", "memory", TierKind.BYTE, 1 << 30, 1 << 30, numa_node=None), **changes)  # type: ignore[arg-type]


def mounted(folder: Path, kind: TierKind = TierKind.BLOCK) -> TierInfo:
    return TierInfo("home", "file", kind, 1 << 30, 1 << 30, mount=folder)


@pytest.mark.parametrize("kind", [TierKind.BLOCK, TierKind.BYTE])
def test_a_mounted_tier_is_measured_on_a_model_that_lies_there(tmp_path: Path, kind: TierKind) -> None:
    (tmp_path / "m").write_bytes(bytes(1 << 20))
    measured = measure(mounted(tmp_path.resolve(), kind), [tmp_path / "m"], QUICK)
    assert isinstance(measured, TierInfo)
    assert measured.read_gbps is not None
    assert measured.read_gbps > 0


def test_what_cannot_be_measured_says_what_to_do(tmp_path: Path) -> None:
    assert "stage a model first" in str(measure(mounted(tmp_path), [], QUICK))
    device = TierInfo("gpu0", "device", TierKind.DEVICE, 1, 1)
    assert "declare read_gbps" in str(measure(device, [], QUICK))


def test_what_was_measured_fills_in_only_the_same_place_and_never_overrules_a_declaration(tmp_path: Path) -> None:
    remember([dram(read_gbps=20.0)], tmp_path)
    remember([mounted(tmp_path), dram(read_gbps=21.5)][1:], tmp_path)
    assert with_bandwidth([dram()], tmp_path)[0].read_gbps == 21.5
    assert with_bandwidth([dram(read_gbps=99.0)], tmp_path)[0].read_gbps == 99.0
    assert with_bandwidth([dram(numa_node=1)], tmp_path)[0].read_gbps is None
    assert with_bandwidth([dram(name="other")], tmp_path)[0].read_gbps is None


def test_without_a_measurement_nothing_is_filled_in_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    assert with_bandwidth([dram()], tmp_path) == (dram(),)
    (tmp_path / "bandwidth.json").write_text("[")
    with pytest.raises(ConfigError, match="is damaged; remove it and measure again"):
        with_bandwidth([dram()], tmp_path)
    (tmp_path / "bandwidth.json").write_text('{"dram0": {"read_gbps": "fast"}}')
    assert with_bandwidth([dram()], tmp_path) == (dram(),)


def test_a_state_that_cannot_be_written_names_the_user_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AccessError, match="cannot be written"):
        remember([dram(read_gbps=1.0)], tmp_path / "file")
