"""A GPU is a tier where the model library finds one; where it does not, the plan fails in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from optaned.api import ConfigError, Device, Env, Movable, Offload, Offloading, Tier, TierKind, UnavailableError
from optaned.testing.tier_contract import TierContract
from optaned_device import DeviceOptions, DeviceTier, optaned_tiers

GIB = 1 << 30
GPUS = (Device("CUDA0", "a card", 24 * GIB, 23 * GIB), Device("CUDA1", "another", 12 * GIB, 0))


def tier(devices: tuple[Device, ...], **options: Any) -> DeviceTier:
    return DeviceTier("gpu0", DeviceOptions(**options), Env(devices=lambda: devices))


class TestDeviceHoldsTheContract(TierContract):
    def make_tier(self, folder: Path) -> Tier:
        return tier(GPUS[:1])


def test_the_only_device_needs_no_name() -> None:
    found = tier(GPUS[:1], read_gbps=900).probe()
    assert (found.kind, found.capacity_bytes, found.free_bytes) == (TierKind.DEVICE, 24 * GIB, 22 * GIB)
    assert found.read_gbps == 900
    assert found.notes == ("CUDA0: a card; placed while loading, nothing moves later",)


def test_a_named_device_keeps_its_reserve() -> None:
    assert tier(GPUS, device="CUDA0", reserve="8GiB").probe().free_bytes == 15 * GIB
    assert tier(GPUS, device="CUDA1").probe().free_bytes == 0


def test_no_device_is_told_with_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="finds no device; build llama-cpp-python for the GPU"):
        tier(()).probe()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "there are several, name one of CUDA0, CUDA1"),
        ({"device": "CUDA7"}, "there is no 'CUDA7'; devices here: CUDA0, CUDA1"),
        ({"device": "CUDA1", "reserve": "16GiB"}, r"16 GiB is more than CUDA1 has \(12 GiB\)"),
    ],
)
def test_what_does_not_fit_the_devices_is_a_fault_of_the_configuration(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        tier(GPUS, **options).probe()


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="is no regular expression"):
        DeviceOptions(keep=["("])


def test_it_says_what_is_placed_while_loading() -> None:
    opened = tier(GPUS, device="CUDA0", layers=20, keep=["attn_k"])
    assert isinstance(opened, Offloading)
    assert not isinstance(opened, Movable)
    assert opened.offload() == opened.probe().offload == Offload("CUDA0", 20, ("attn_k",))


def test_it_is_declared() -> None:
    assert [driver.name for driver in optaned_tiers()] == ["device"]
