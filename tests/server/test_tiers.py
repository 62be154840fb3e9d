"""GET /tiers, POST /tiers/move and POST /trace over a real socket."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from optaned.api import Allotment, ByteRange, Group, ModelIndex, PlacementPlan, Shard, Tensor, TierInfo, TierKind
from optaned.domain.thermal import Level
from optaned.engine.messages import Choices
from optaned.server.ports import EngineView, Failure, PauseView, Placed
from optaned.testing.daemon import eventually
from optaned.testing.ports import LOADED
from optaned.testing.serving import Served


def placed() -> Placed:
    tensors = (
        Tensor("output.weight", (50,), "I8", ByteRange(0, 0, 50), None, Group.TRUNK),
        Tensor("blk.1.ffn_up_exps.weight", (100, 8), "I8", ByteRange(0, 50, 800), 1, Group.EXPERT),
    )
    index = ModelIndex("paper", "paper", (Shard(Path("/d/m"), 9999, 0),), tensors, "d16e57", 2, 8, 2)
    tiers = (
        TierInfo("dram0", "memory", TierKind.BYTE, 8000, 6000, numa_node=0),
        TierInfo("disk", "file", TierKind.BLOCK, 90000, 50000, 3.5, mount=Path("/d")),
        TierInfo("idle", "file", TierKind.BLOCK, 10, 10),
    )
    home = Allotment("disk", Group.EXPERT, 800, home=True)
    return Placed("heat", tiers, index, PlacementPlan((home,), "dram0", 77, ("a note",)))


def test_tiers_tells_the_plan_and_what_is_true_now(client: httpx2.Client, served: Served) -> None:
    served.engine.view = replace(LOADED, placed=placed())
    told = client.get("/tiers").json()
    assert (told["model"], told["policy"], told["kv_tier"], told["notes"]) == ("fake", "heat", "dram0", ["a note"])
    assert (told["routed_bytes_total"], told["skew"], told["moving"]) == (1000, 0.25, "2 experts moved")
    dram, disk, idle = told["tiers"]
    assert (dram["kind"], dram["numa_node"], dram["kv_bytes"], dram["budget_bytes"]) == ("byte", 0, 77, 6000)
    assert (dram["trunk_bytes"], dram["expert_bytes"], dram["experts"], dram["hit_share"]) == (1000, 500, 5, 0.6)
    assert (disk["mount"], disk["read_gbps"], disk["planned_bytes"], disk["hit_share"]) == ("/d", 3.5, 800, 0.4)
    assert (idle["trunk_bytes"], idle["hit_share"]) == (0, 0.0)


def test_before_the_engine_has_told_live_figures_are_null(client: httpx2.Client, served: Served) -> None:
    served.engine.view = replace(LOADED, placed=placed(), residency=None)
    told = client.get("/tiers").json()
    assert (told["skew"], told["smaps_bytes"], told["tiers"][0]["trunk_bytes"]) == (None, None, None)
    served.engine.view = EngineView()
    assert client.get("/tiers").json()["tiers"] == []


def test_metrics_have_every_tier_s_figures(client: httpx2.Client) -> None:
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
    lying = {(s.labels["tier"], s.labels["group"]): s.value for s in families["optaned_tier_bytes"].samples}
    assert lying == {("dram0", "trunk"): 1000, ("dram0", "expert"): 500, ("disk", "trunk"): 0, ("disk", "expert"): 300}
    assert families["optaned_router_skew"].samples[0].value == 0.25
    assert families["optaned_tier_promoted_bytes"].samples[0].value == 2000


def test_a_move_is_passed_on_and_its_refusal_is_a_409(client: httpx2.Client, served: Served) -> None:
    assert client.post("/tiers/move", json={"do": "pin", "layer": 3, "expert": 7}).json() == {
        "do": "pin",
        "layer": 3,
        "expert": 7,
        "detail": "pin 3",
    }
    assert served.engine.moves == [("pin", 3, 7)]
    refused = client.post("/tiers/move", json={"do": "promote", "layer": 10})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "move_refused")


@pytest.mark.parametrize("body", [{"do": "shove", "layer": 1}, {"do": "pin"}, {"do": "pin", "layer": "x"}])
def test_a_move_that_says_no_move_is_a_400(client: httpx2.Client, body: Any) -> None:
    assert client.post("/tiers/move", json=body).status_code == 400


def test_nothing_moves_while_heat_has_stopped_the_engine(client: httpx2.Client, served: Served) -> None:
    served.pause.view = PauseView(Level.CRITICAL, 0.0, "dimm 2 at 78 °C", True, 1.0, 0.1)
    refused = client.post("/tiers/move", json={"do": "pin", "layer": 3})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_paused")
    assert served.engine.moves == []


@pytest.mark.parametrize("path", ["/tiers/move", "/trace"])
def test_only_administrators_may(client: httpx2.Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optaned.server.control.may_control", lambda *_: False)
    assert client.post(path, json={"do": "pin", "layer": 3}).status_code == 403


def test_a_trace_is_a_line_a_token_until_the_client_leaves(client: httpx2.Client, served: Served) -> None:
    served.engine.view = replace(LOADED, placed=placed())
    with client.stream("POST", "/trace") as response:
        lines = response.iter_lines()
        assert json.loads(next(lines)) == {
            "model": "fake",
            "digest": "d16e57",
            "layers": [1],
            "experts": 8,
            "experts_used": 2,
        }
        (trace,) = served.engine.traces
        served.call(trace.choices.put_nowait, Choices(((0, (1, 2)), (1, (3,)), (0, (4, 5)), (1, (6,)))))
        assert json.loads(next(lines)) == {"choices": [[0, [1, 2]], [1, [3]]]}
        assert json.loads(next(lines)) == {"choices": [[0, [4, 5]], [1, [6]]]}
        trace.lost = 9
        served.call(trace.choices.put_nowait, Choices(((0, (1, 2)),)))
        next(lines)
        assert json.loads(next(lines)) == {"lost": 9}
    served.call(served.http.stop)
    assert trace.left


def test_a_trace_ends_with_the_reason_when_the_engine_does(client: httpx2.Client, served: Served) -> None:
    with client.stream("POST", "/trace") as response:
        lines = response.iter_lines()
        next(lines)
        served.call(served.engine.traces[0].choices.put_nowait, Failure("engine_died", "it died"))
        assert json.loads(next(lines))["error"]["code"] == "engine_died"
        assert list(lines) == []
    eventually(lambda: served.engine.traces[0].left, what="the route has let go of its trace")


def test_without_a_model_there_is_nothing_to_trace(client: httpx2.Client, served: Served) -> None:
    served.engine.view = EngineView()
    assert client.post("/trace").status_code == 503
