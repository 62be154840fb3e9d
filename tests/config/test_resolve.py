"""Names become declarations; what leads nowhere is told with the likely name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from optaned.config.load import load, read_draft
from optaned.config.resolve import ResolvedConfig, resolve, resolve_draft, resolve_guard
from optaned.errors import ConfigError
from optaned.hooks.host import PluginHost

MODEL = '[models.m]\nfiles = ["m.gguf"]\n'
TIERED = MODEL + '[tiers.dram0]\ndriver = "memory"\n'
Resolve = Callable[..., ResolvedConfig]
Complaints = Callable[..., list[str]]

FAULTS = {
    MODEL + '[tiers.a]\ndriver = "memroy"': (
        "tiers.a.driver: no tier driver is named 'memroy' (did you mean 'memory'?); known: fsdax, memory, rude"
    ),
    MODEL + '[tiers.a]\ndriver = "memory"\nresrve = "1GiB"': ("tiers.a.resrve: unknown key (did you mean 'reserve'?)"),
    MODEL + '[tiers.a]\ndriver = "memory"\nreserve = "24GB"': (
        "tiers.a.reserve: unit 'GB' is not binary; did you mean \"24GiB\"?"
    ),
    MODEL + '[tiers.a]\ndriver = "fsdax"': "tiers.a.mount: is required",
    MODEL + '[sensors.s]\ndriver = "hwmon"\ncovrs = []': "sensors.s.covrs: unknown key (did you mean 'covers'?)",
    MODEL + '[tiers.pmem0]\ndriver = "memory"\n[sensors.s]\ndriver = "ndctl"\ncovers = ["pmem0", "pmen0"]': (
        "sensors.s.covers[1]: there is no [tiers.pmen0] (did you mean 'pmem0'?)"
    ),
    MODEL + '[cooling.f]\ndriver = "hwmon"\ncools = ["xyz"]': (
        "cooling.f.cools[0]: there is no [sensors.xyz]; declared: none"
    ),
    MODEL + '[placement]\npromote_to = ["dram0"]': "placement.promote_to[0]: there is no [tiers.dram0]; declared: none",
    TIERED + '[placement]\npromote_to = ["dram0", "dram0"]': (
        "placement.promote_to[1]: 'dram0' is there already; name it once"
    ),
    MODEL + '[placement]\npolicy = "heta"': (
        "placement.policy: no placement policy is named 'heta' (did you mean 'heat'?); known: heat, home"
    ),
    MODEL + "[placement]\nmove_gpbs = 1": "placement.move_gpbs: unknown key (did you mean 'move_gbps'?)",
    MODEL + "[placement]\nheat = 1": "placement.heat: must be a table, [placement.heat]",
    MODEL + '[placement]\npolicy = "heat"\n[placement.heat]\nhalf_life = 1': (
        "placement.heat.half_life: unknown key (did you mean 'half_life_s'?)"
    ),
    MODEL + "[engine.llamacp]": "engine.llamacp: unknown key (did you mean 'llamacpp'?)",
    MODEL + 'chat_format = "jinjer"': (
        "models.m.chat_format: no chat format is named 'jinjer' (did you mean 'jinja'?); known: jinja"
    ),
    "default_model = 'n'\n" + MODEL: "default_model: there is no [models.n]; declared: m",
    MODEL + "[models.n]\nfiles = ['m.gguf']": ("default_model: is required, because several models are declared: m, n"),
    "": "models: no model is declared; add a table [models.NAME] with files = […]",
    "[models.m]": "models.m: names no files; add files = […] or ref = …",
    "[models.m]\nfiles = ['gone.gguf']": "models.m.files[0]: no such file: gone.gguf",
    "[models.m]\nfiles = ['m.gguf', 'gone-*.gguf']": (
        "models.m.files[1]: no file matches 'gone-*.gguf'; is its file system mounted?"
    ),
    "[models.m]\nfiles = ['.']": "models.m.files[0]: . is a folder; name the .gguf files in it",
    "[models.m]\nref = 'hub:x'": "models.m.ref: no plugin knows 'hub' references; see: optaned plugins",
    "[models.m]\nref = 'shop:empty'": "models.m.ref: shop:empty: sold out",
    MODEL + '[plugins]\npath = "gone"': "plugins.path: no such folder: gone",
    MODEL + '[tiers.a]\ndriver = "rude"\nx = 1': (
        "tiers.a: driver 'rude' cannot check its options: RuntimeError: two lines; tell its author"
    ),
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_leads_nowhere_is_one_line(complaints: Complaints, text: str) -> None:
    assert complaints(text) == [FAULTS[text]]


def test_faults_of_the_schema_and_of_drivers_are_told_together(complaints: Complaints) -> None:
    lines = complaints('[engine]\nslots = 0\n[tiers.a]\ndriver = "memory"\nbudgt = 1\n[models.m]\nfiles = ["x"]\nq = 1')
    assert [line.split(": ")[0] for line in lines] == [
        "engine.slots",
        "models.m.files[0]",
        "models.m.q",
        "tiers.a.budgt",
    ]


def test_a_reference_to_a_faulty_table_is_no_second_fault(complaints: Complaints) -> None:
    text = MODEL + '[tiers.p]\nmount = "/x"\n[sensors.s]\ndriver = "ndctl"\ncovers = ["p"]'
    assert complaints(text) == ["tiers.p.driver: is required"]


def test_two_tiers_over_one_path_are_refused_even_through_a_link(complaints: Complaints, tmp_path: Path) -> None:
    (tmp_path / "pmem").mkdir()
    (tmp_path / "link").symlink_to("pmem")
    tier = '[tiers.{}]\ndriver = "fsdax"\nmount = "{}"\n'
    assert complaints(MODEL + tier.format("a", "/pmem") + tier.format("b", "/link/")) == [
        "tiers.b.mount: /link is the place of tier 'a' already; one path cannot be two tiers"
    ]


def test_everything_is_looked_up(resolve_text: Resolve, tmp_path: Path) -> None:
    resolved = resolve_text(
        MODEL
        + 'chat_format = "jinja"\n[tiers.d]\ndriver = "memory"\nreserve = "1KiB"\n[engine.llamacpp]\ngpu_layers = 3\n'
        + '[sensors.s]\ndriver = "ndctl"\nlimit_celsius = 70\n[cooling.f]\ndriver = "hwmon"\nchannels = ["pwm1"]\n'
    )
    assert resolved.model.files == (tmp_path / "m.gguf",)
    assert (resolved.default_model, resolved.model.chat_format, resolved.model.kv_cache) == ("m", "jinja", "f16")
    assert resolved.tiers["d"].options.model_dump() == {"numa_node": None, "reserve": 1024}
    assert (resolved.backend.name, resolved.backend.options.model_dump()) == ("llamacpp", {"gpu_layers": 3})
    assert resolved.policy.driver.name == "home"
    assert resolved.coolers["f"].options.model_dump()["channels"] == ("pwm1",)


def test_a_sensors_driver_hears_of_a_limit_that_it_knows(resolve_text: Resolve) -> None:
    resolved = resolve_text(MODEL + '[sensors.s]\ndriver = "ndctl"\nlimit_celsius = 70\n')
    assert resolved.config.sensors["s"].limit_celsius == 70
    assert resolved.sensors["s"].options.model_dump() == {"limit_celsius": 70}


def test_shards_on_several_mounts_come_in_the_order_of_their_numbers(resolve_text: Resolve, tmp_path: Path) -> None:
    for mount, number in (("p0", 2), ("p1", 1), ("p0", 3)):
        (tmp_path / mount).mkdir(exist_ok=True)
        (tmp_path / mount / f"k3-0000{number}-of-00003.gguf").touch()
    resolved = resolve_text('[models.k]\nfiles = ["/p0/k3-*.gguf", "/p1/k3-*.gguf"]')
    assert [f.parent.name for f in resolved.model.files] == ["p1", "p0", "p0"]


def test_a_reference_is_resolved_by_a_plugin(resolve_text: Resolve) -> None:
    assert resolve_text('[models.m]\nref = "shop:a.gguf"').model.files == (Path("/shop/a.gguf"),)


def test_a_backend_without_weights_needs_no_files(resolve_text: Resolve) -> None:
    assert resolve_text('[models.m]\n[engine]\nbackend = "echo"').model.files == ()


def test_options_of_a_driver_that_is_not_selected_are_a_warning(resolve_text: Resolve, tmp_path: Path) -> None:
    resolved = resolve_text(TIERED + "[placement.heat]\nhalf_life_s = 3\n")
    assert resolved.warnings == (
        f"{tmp_path}/optaned.toml: placement.heat: has no effect while placement.policy is 'home'",
    )


def test_weights_without_any_tier_are_a_warning(resolve_text: Resolve, tmp_path: Path) -> None:
    (warning,) = resolve_text(MODEL).warnings
    assert warning.startswith(f"{tmp_path}/optaned.toml: tiers: none is declared")
    assert resolve_text(TIERED).warnings == ()


def test_keys_without_effect_are_warnings(resolve_text: Resolve, tmp_path: Path) -> None:
    text = TIERED + '[jobs]\nwidth = 8\n[thermal]\non_trip = "stop"\nafter_trip = "resume"\n'
    lines = [w.removeprefix(f"{tmp_path}/optaned.toml: ") for w in resolve_text(text).warnings]
    assert lines == ["jobs.width: has no effect yet", "thermal.after_trip: has no effect yet"]


def test_the_guard_resolves_its_own_part_whatever_the_rest_is_like(
    tmp_path: Path, guard_host: PluginHost, host: PluginHost
) -> None:
    file = tmp_path / "optaned.toml"
    file.write_text('[tiers.p]\ndriver = "nonsense"\n[models.m]\nfiles = ["gone"]\n[sensors.s]\ndriver = "ndctl"\n')
    guard = resolve_guard(load(file, {}), guard_host, file=file)
    assert guard.sensors["s"].driver.name == "ndctl"
    with pytest.raises(ConfigError) as caught:
        resolve(load(file, {}), host, guard_host, file=file)
    assert len(caught.value.lines) == 2


def test_a_guard_plugin_that_is_asked_for_must_be_sound(tmp_path: Path) -> None:
    file = tmp_path / "optaned.toml"
    file.write_text('[plugins]\nguard = ["votes"]\n')
    host = PluginHost.discover("optaned.guard", wanted=["votes"])
    with pytest.raises(ConfigError, match=r"plugins\.guard\[0\]: plugin votes: not installed"):
        resolve_guard(load(file, {}), host, file=file)


def test_what_would_stop_the_guard_is_told_before_it_starts(
    tmp_path: Path, host: PluginHost, guard_host: PluginHost
) -> None:
    file = tmp_path / "optaned.toml"
    file.write_text(MODEL + '[plugins]\nguard = ["fake", "votes"]\n')
    asked = PluginHost.discover("optaned.guard", wanted=["votes"])
    with pytest.raises(ConfigError, match=r"plugins\.guard\[1\]: plugin votes: not installed"):
        resolve(load(file, {}), host, asked, file=file, look_for_files=False)
    assert resolve_guard(load(file, {}), guard_host, file=file).sensors == {}
    asked = PluginHost.discover("optaned.guard", wanted=["sim"], disabled=["sim"])
    file.write_text(MODEL + '[plugins]\nguard = ["sim"]\ndisable = ["sim"]\n')
    with pytest.raises(ConfigError, match=r"plugins\.guard\[0\]: plugin sim .*: disabled: \[plugins\] disable"):
        resolve(load(file, {}), host, asked, file=file, look_for_files=False)


def test_a_plugin_that_cannot_be_disabled_because_there_is_none_is_a_warning(
    resolve_text: Resolve, tmp_path: Path
) -> None:
    assert resolve_text(TIERED + '[plugins]\ndisable = ["fake", "shoop"]').warnings == (
        f"{tmp_path}/optaned.toml: plugins.disable[1]: no plugin is named 'shoop' (did you mean 'shop'?); "
        "see: optaned plugins",
    )


def test_another_machines_files_need_not_be_here(host: PluginHost, guard_host: PluginHost, tmp_path: Path) -> None:
    file = tmp_path / "optaned.toml"
    file.write_text('[models.m]\nfiles = ["/mnt/x-*.gguf"]\n')
    resolved = resolve_draft(read_draft(file, {}), host, guard_host, look_for_files=False)
    assert resolved.model.files == (Path("/mnt/x-*.gguf"),)
