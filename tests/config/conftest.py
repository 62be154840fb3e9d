"""Hosts of fake drivers, declared as plugins declare theirs, and a way to write and resolve a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from pydantic import Field, SecretStr, field_validator

from optaned.api import Bytes, Driver, MissingFileError, Needs, Options, hookimpl
from optaned.config.load import read_draft
from optaned.config.resolve import ResolvedConfig, resolve_draft
from optaned.errors import ConfigError
from optaned.hooks.host import PluginHost
from optaned.hooks.spec import GUARD_GROUP


class Memory(Options):
    numa_node: int | None = None
    reserve: Bytes | None = None


class Fsdax(Options):
    mount: Annotated[Path, Field(strict=False)]
    dimms: tuple[str, ...] = ()
    read_gbps: float | None = None


class Heat(Options):
    half_life_s: float = 60.0


class Llama(Options):
    gpu_layers: int = 0


class Ndctl(Options):
    limit_celsius: float = 85.0


class Hwmon(Options):
    chip: str | None = None
    device: str | None = None
    channels: tuple[str, ...] = ()
    api_key: str = ""
    pin: SecretStr = SecretStr("")


class Rude(Options):
    x: int = 0

    @field_validator("x")
    @classmethod
    def _break(cls, _: int) -> int:
        raise RuntimeError("two\nlines")


class Nothing(Options):
    """No options."""


def plugin(**hooks: Sequence[Driver]) -> SimpleNamespace:
    """Return a plugin whose hooks return these drivers."""

    def declare(hook: str, drivers: Sequence[Driver]) -> Callable[[], Sequence[Driver]]:
        def declared() -> Sequence[Driver]:
            return drivers

        declared.__name__ = hook
        return hookimpl(declared)

    return SimpleNamespace(OPTANED_API=(1, 0), **{h: declare(h, d) for h, d in hooks.items()})


@hookimpl
def optaned_resolve_model(ref: str) -> list[Path] | None:
    """Know `shop:` references; `shop:empty` has nothing."""
    if ref == "shop:empty":
        raise MissingFileError("shop:empty: sold out")
    return [Path("/shop") / ref.removeprefix("shop:")] if ref.startswith("shop:") else None


@pytest.fixture
def host() -> PluginHost:
    made = PluginHost()
    drivers = plugin(
        optaned_tiers=[Driver("memory", Memory, print), Driver("fsdax", Fsdax, print), Driver("rude", Rude, print)],
        optaned_backends=[
            Driver("llamacpp", Llama, print, needs=Needs(model_files=True)),
            Driver("echo", Nothing, print),
        ],
        optaned_placement_policies=[Driver("home", Nothing, print), Driver("heat", Heat, print)],
        optaned_chat_formats=[Driver("jinja", Nothing, print)],
    )
    made.register(drivers, "fake", "fake 1.0")
    made.register(SimpleNamespace(OPTANED_API=(1, 0), optaned_resolve_model=optaned_resolve_model), "shop", "shop 1.0")
    return made


@pytest.fixture
def guard_host() -> PluginHost:
    made = PluginHost(GUARD_GROUP)
    sensors = [Driver("ndctl", Ndctl, print), Driver("hwmon", Hwmon, print)]
    made.register(plugin(optaned_sensors=sensors, optaned_coolers=[Driver("hwmon", Hwmon, print)]), "fake", "fake 1.0")
    return made


MODEL = '[models.m]\nfiles = ["m.gguf"]\n'
"""The least that resolves; `m.gguf` lies beside the configuration."""


@pytest.fixture
def resolve_text(tmp_path: Path, host: PluginHost, guard_host: PluginHost) -> Callable[..., ResolvedConfig]:
    """Return a function that resolves a configuration's text; `m.gguf` lies beside it."""
    (tmp_path / "m.gguf").touch()

    def run(text: str, **environ: str) -> ResolvedConfig:
        file = tmp_path / "optaned.toml"
        file.write_text(text)
        return resolve_draft(read_draft(file, environ), host, guard_host, sysroot=tmp_path)

    return run


@pytest.fixture
def complaints(resolve_text: Callable[..., ResolvedConfig], tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that returns the fault lines of a configuration's text, without the file's name."""

    def run(text: str, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            resolve_text(text, **environ)
        assert caught.value.exit_code == 78
        return [line.removeprefix(f"{tmp_path / 'optaned.toml'}: ") for line in caught.value.lines]

    return run
