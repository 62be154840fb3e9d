"""What the server says about itself, and who may change it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from optaned.domain.thermal import Level
from optaned.server.control import may_control
from optaned.server.ports import EngineState, EngineView, PauseView
from optaned.system.peers import Peer
from optaned.testing.ports import LOADED
from optaned.testing.serving import Served, chat_body

SILENT = PauseView(None, 0.0, "the guard is silent", True, 3.0, None)


def test_health_is_about_the_process_and_ready_about_the_model(client: httpx2.Client, served: Served) -> None:
    assert client.get("/ready").status_code == 200
    served.engine.view = EngineView(EngineState.LOADING, "fake", 0.25, "reading shard 2 of 8")
    served.pause.view = SILENT
    assert client.get("/health").json() == {"status": "ok"}
    response = client.get("/ready")
    assert response.status_code == 503
    answer = response.json()
    assert (answer["state"], answer["fraction"], answer["detail"]) == ("loading", 0.25, "reading shard 2 of 8")
    assert answer["thermal"]["level"] is None
    assert answer["thermal"]["reason"] == "the guard is silent"


@pytest.mark.parametrize("path", ["/health", "/ready", "/props", "/slots", "/version", "/metrics", "/v1/models"])
@pytest.mark.parametrize("view", [LOADED, EngineView(), EngineView(EngineState.FAILED, "fake", detail="no")])
def test_information_needs_no_model_and_head_works(
    client: httpx2.Client, served: Served, path: str, view: EngineView
) -> None:
    served.engine.view = view
    response = client.get(path)
    head = client.head(path)
    assert response.status_code in (200, 503)
    assert head.status_code == response.status_code
    assert head.content == b""
    assert response.headers["x-request-id"].startswith("req-")


def test_models_lists_what_is_declared(client: httpx2.Client) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [(m["id"], m["object"], m["state"]) for m in listed["data"]] == [
        ("fake", "model", "ready"),
        ("other", "model", "unloaded"),
    ]
    assert client.get("/v1/models/fake").json()["meta"]["n_ctx"] == 512
    assert client.get("/v1/models/absent/x").status_code == 404


def test_metrics_are_prometheus_text(client: httpx2.Client, served: Served) -> None:
    served.engine.view = replace(LOADED, completion_tokens_total=7, last_progress_age_s=0.5)
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert all(name.startswith("optaned_") for name in families)
    assert families["optaned_completion_tokens"].samples[0].value == 7
    level = {s.labels["state"]: s.value for s in families["optaned_thermal_level"].samples}
    assert level == {"cool": 1, "warm": 0, "hot": 0, "critical": 0, "trip": 0, "silent": 0}
    assert families["optaned_slots"].samples[0].value == 4


def test_a_tripped_machine_refuses_answers(client: httpx2.Client, served: Served) -> None:
    served.pause.view = PauseView(Level.TRIP, 0.0, "dimm 2 at 81 °C", True, 1.0, 0.1)
    response = client.post("/v1/chat/completions", json=chat_body())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "thermal_trip"
    assert int(response.headers["retry-after"]) <= 120


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (EngineState.LOADING, "model_loading"),
        (EngineState.RESTARTING, "model_loading"),
        (EngineState.FAILED, "model_failed"),
        (EngineState.STOPPING, "shutting_down"),
    ],
)
def test_a_model_that_is_not_ready_is_a_503(
    client: httpx2.Client, served: Served, state: EngineState, code: str
) -> None:
    served.engine.view = replace(LOADED, state=state)
    for path in ("chat/completions", "completions", "embeddings"):
        body = chat_body() | {"prompt": "x", "input": "x"}
        response = client.post(f"/v1/{path}", json=body)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == code


def test_a_declared_model_is_a_503_while_none_is_loaded(client: httpx2.Client, served: Served) -> None:
    served.engine.view = EngineView()
    response = client.post("/v1/chat/completions", json=chat_body())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "model_not_loaded"
    assert client.post("/v1/chat/completions", json=chat_body(model="x")).status_code == 404


def test_load_and_unload_are_logged_with_the_peer(
    client: httpx2.Client, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert client.post("/load", json={"model": "other"}).json() == {"model": "other", "state": "loading"}
    assert client.post("/unload").json() == {"model": None, "state": "unloaded"}
    assert client.post("/load", json={"model": "absent"}).status_code == 404
    assert client.post("/load", json={}).json()["error"]["param"] == "model"
    assert f"load other, asked by uid={os.geteuid()}" in caplog.text
    assert f"pid={os.getpid()}" in caplog.text


def peer(uid: int, *groups: int) -> Peer:
    return Peer(1, uid, 7, frozenset((7, *groups)))


def test_root_ourselves_and_the_group_alone_may_control() -> None:
    assert may_control(peer(0), "no-such-group")
    assert may_control(peer(os.geteuid()), "no-such-group")
    assert may_control(peer(12345, 0), "root")
    assert not may_control(peer(12345), "root")
    assert not may_control(peer(12345), "no-such-group")
    assert not may_control(None, "root")


def test_others_are_told_which_group_to_join(served: Served, client: httpx2.Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("optaned.server.control.may_control", lambda *_: False)
    response = client.post("/load", json={"model": "other"})
    assert response.status_code == 403
    assert "optaned-admin" in response.json()["error"]["message"]
    assert served.engine.view.state is EngineState.READY


def test_unknown_routes_and_methods_are_told_in_json(client: httpx2.Client) -> None:
    missing = client.get("/nowhere")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"
    wrong = client.get("/v1/chat/completions")
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert "POST" in wrong.headers["allow"]


def test_a_clients_own_request_id_comes_back_unless_it_is_strange(client: httpx2.Client) -> None:
    assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert client.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"].startswith("req-")
    assert client.get("/nowhere", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"


def test_any_host_is_welcome(client: httpx2.Client) -> None:
    for host in ("optaned", "localhost:8080", "evil.example", "[::1]"):
        assert client.get("/health", headers={"host": host}).status_code == 200
