"""Tier driver `device`: a GPU, reached through the model library's own offload. Its bytes are placed while loading.

Knows the options and which devices the backend names; moves nothing later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, field_validator

from optaned.api import (
    Bytes,
    ConfigError,
    Device,
    Driver,
    Env,
    Offload,
    Options,
    TierInfo,
    TierKind,
    UnavailableError,
    format_bytes,
    hookimpl,
)

OPTANED_API = (1, 0)

# Compute buffers and the library's own context; measured by others at 0.5 to 2 GB, more with long contexts.
_DEFAULT_RESERVE_BYTES = 1 << 30


class DeviceOptions(Options):
    device: str | None = None
    """The device by the library's name ("CUDA0"); without it, the only one there is."""
    layers: Annotated[int, Field(ge=0)] | None = None
    """How many layers, the last ones, are placed there; all of them without it."""
    keep: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Regular expressions of tensor names that stay in main memory all the same; routed experts always do."""
    reserve: Bytes = _DEFAULT_RESERVE_BYTES
    """How much of the device's memory is left to compute buffers and others."""
    read_gbps: Annotated[float, Field(gt=0)] | None = None
    """Memory bandwidth in GB/s, where it is known."""

    @field_validator("keep")
    @classmethod
    def _compiles(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns


@dataclass(frozen=True)
class DeviceTier:
    """One device's memory."""

    name: str
    options: DeviceOptions
    env: Env

    def probe(self) -> TierInfo:
        """Return the device's memory. Raises UnavailableError without a device, ConfigError for one that is not there."""
        found = self._find()
        if self.options.reserve > found.total_bytes:
            has = format_bytes(found.total_bytes)
            raise ConfigError(
                f"reserve: {format_bytes(self.options.reserve)} is more than {found.name} has ({has}); lower it"
            )
        return TierInfo(
            name=self.name,
            driver="device",
            kind=TierKind.DEVICE,
            capacity_bytes=found.total_bytes,
            free_bytes=max(0, found.free_bytes - self.options.reserve),
            read_gbps=self.options.read_gbps,
            offload=self._offload(found),
            notes=(f"{found.name}: {found.description}; placed while loading, nothing moves later",),
        )

    def offload(self) -> Offload:
        """Return what the backend shall place there. Raises what `probe` raises."""
        return self._offload(self._find())

    def close(self) -> None:
        """Nothing is held open."""

    def _offload(self, device: Device) -> Offload:
        return Offload(device.name, self.options.layers, self.options.keep)

    def _find(self) -> Device:
        devices = self.env.devices()
        wanted = self.options.device
        if not devices:
            raise UnavailableError(
                "the model library finds no device; build llama-cpp-python for the GPU "
                "(CMAKE_ARGS=-DGGML_CUDA=on), check its driver, or take this tier out"
            )
        names = ", ".join(device.name for device in devices)
        if wanted is None and len(devices) > 1:
            raise ConfigError(f"device: there are several, name one of {names}")
        found = next((device for device in devices if wanted in (None, device.name)), None)
        if found is None:
            raise ConfigError(f"device: there is no {wanted!r}; devices here: {names}")
        return found


@hookimpl
def optaned_tiers() -> list[Driver]:
    """Declare the tier driver `device`."""
    return [Driver("device", DeviceOptions, DeviceTier, "a GPU, by the model library's own offload while loading")]
