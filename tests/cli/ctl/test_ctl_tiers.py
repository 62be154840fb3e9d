"""`optanectl tiers` and `optanectl trace`, for people and with --json."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from optaned.cli.ctl.tiers import parse_place
from optaned.errors import UsageError
from optaned.testing.daemon import eventually


def tier(name: str, **changes: Any) -> dict[str, Any]:
    figures = ("budget_bytes", "trunk_bytes", "expert_bytes", "experts", "promoted_bytes_total", "demoted_bytes_total")
    return {"name": name, "driver": "memory", **dict.fromkeys(figures, 0), "hit_share": None, **changes}


@pytest.fixture
def view(daemon) -> dict[str, Any]:
    dram = tier("dram0", budget_bytes=1 << 30, trunk_bytes=3 << 20, experts=7, expert_bytes=9 << 20, hit_share=0.625)
    daemon.tiers = {
        "model": "tiny",
        "state": "ready",
        "policy": "heat",
        "tiers": [dram, tier("nvme", driver="file", hit_share=0.375)],
        "skew": 0.5,
        "moving": "experts move by heat",
        "smaps_bytes": 12 << 20,
        "move_gbps": 0.25,
    }
    return daemon.tiers


def test_tiers_are_a_table_with_what_happens_below(ctl, view) -> None:
    found = ctl("tiers")
    assert found.code == 0
    assert found.out.splitlines() == [
        "TIER   DRIVER  BUDGET  TRUNK  EXPERTS  BYTES  PROMOTED  DEMOTED  HITS",
        "dram0  memory  1 GiB   3 MiB  7        9 MiB  -         -        62.5%",
        "nvme   file    -       -      -        -      -         -        37.5%",
        "policy heat: experts move by heat",
        "the kernel counts 12 MiB of copies, moving 0.25 GB/s",
    ]


def test_tiers_as_json_are_the_daemon_s_words(ctl, view) -> None:
    assert json.loads(ctl("tiers", "--json").out) == view


def test_without_a_model_nothing_is_placed(ctl, daemon) -> None:
    daemon.tiers = {"model": None, "state": "unloaded", "tiers": []}
    assert "no model: nothing is placed (unloaded)" in ctl("tiers").out


def test_moves_by_hand_name_a_layer_or_an_expert(ctl, daemon) -> None:
    assert ctl("tiers", "promote", "3:17").out == "promote done\n"
    assert ctl("tiers", "pin", "3").out == "pin done\n"
    assert daemon.requests[-2:] == [
        ("POST", "/tiers/move", {"do": "promote", "layer": 3, "expert": 17}),
        ("POST", "/tiers/move", {"do": "pin", "layer": 3}),
    ]


def test_a_refused_move_is_one_line_and_exit_code_one(ctl, daemon) -> None:
    daemon.refusal = (409, {"error": {"message": "layer 9 has no routed experts", "code": "move_refused"}})
    found = ctl("tiers", "demote", "9")
    assert (found.code, found.err) == (1, "optanectl: layer 9 has no routed experts\n")


@pytest.mark.parametrize("text", ["", "x", "3:", ":3", "3:x", "-1", "1:2:3", "9999999"])
def test_what_is_no_place_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is no place; write LAYER or LAYER:EXPERT"):
        parse_place(text)


LINES = [
    b'{"model":"tiny","layers":[0]}\n{"choices":[[0,[1',
    b',2]]]}\n\n{"choices":[[0,[3]]]}\n',
    b'{"lost":5}\n{"choices":[[0,[4]]]}\n',
]


def test_a_trace_is_recorded_line_by_line_however_it_is_cut(ctl, daemon, tmp_path: Path) -> None:
    daemon.traced = LINES
    found = ctl("trace", "record", str(tmp_path / "t"), "--tokens", "3")
    assert found.code == 0
    assert (tmp_path / "t").read_bytes() == b"".join(LINES).replace(b"\n\n", b"\n")
    assert found.err.splitlines()[-1] == f"{tmp_path / 't'}: 3 tokens, 5 choices lost"
    eventually(daemon.left.is_set)


def test_ctrl_c_ends_a_recording_and_keeps_it(piping, daemon, tmp_path: Path) -> None:
    daemon.traced = LINES
    process = piping("trace", "record", str(tmp_path / "t"))
    eventually(lambda: (tmp_path / "t").exists() and b"[4]" in (tmp_path / "t").read_bytes())
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert process.stderr.read().decode().splitlines()[-1].endswith("3 tokens, 5 choices lost")
    process.stderr.close()
    process.stdout.close()


def test_a_trace_that_the_engine_s_end_cuts_off_says_why(ctl, daemon, tmp_path: Path) -> None:
    daemon.traced = [LINES[0], b',2]]]}\n{"error":{"message":"the engine died","code":"engine_died"}}\n']
    found = ctl("trace", "record", str(tmp_path / "t"))
    assert (found.code, found.err.splitlines()[-1]) == (1, "optanectl: the engine died")


def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(ctl, daemon, tmp_path: Path) -> None:
    found = ctl("trace", "record", str(tmp_path / "no" / "t"))
    assert found.code == 77
    assert daemon.requests == []
