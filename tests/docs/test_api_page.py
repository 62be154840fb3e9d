"""docs/api.md says what the code does: routes, parameters, defaults, replies, metrics, error codes, limits."""

from __future__ import annotations

import ast
import http.client
import json
import re
from pathlib import Path

import pytest

from optaned.domain.generation import Sampling
from optaned.server import app, faults, parameters
from optaned.server.chat import ChatBody
from optaned.server.completions import CompletionBody
from optaned.server.control import LoadBody
from optaned.server.embeddings import EmbeddingsBody
from optaned.server.settings import ServerSettings
from optaned.server.text import DetokenizeBody, TokenizeBody
from optaned.testing.serving import Served, serving

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next one of any depth."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/api.md has no heading {heading!r}"
    return found[1]


def table(text: str) -> dict[str, list[str]]:
    """Return a table's rows by the code in their first cell."""
    rows = (re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in text.splitlines() if line.startswith("| `"))
    return {cells[0].strip("` "): [cell.strip() for cell in cells[1:]] for cells in rows}


def codes(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    with serving(tmp_path_factory.mktemp("docs")) as running:
        yield running  # type: ignore[misc]


def get(served: Served, path: str) -> bytes:
    connection = http.client.HTTPConnection("docs")
    connection.sock = served.connect()
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def test_every_route_has_a_row_and_every_row_is_a_route() -> None:
    routes = {f"{method} {path.replace(':path', '')}" for method, path, _ in app._ROUTES}
    assert set(table(section("Routes"))) == routes


def test_parameters_are_those_that_the_code_takes() -> None:
    chat, plain = set(ChatBody.__struct_fields__), set(CompletionBody.__struct_fields__)
    shared = set(parameters.Generation.__struct_fields__) | {"response_format"}
    assert set(table(section("Parameters of both kinds of completion"))) == shared == shared & chat & plain
    assert set(table(section("Chat"))) == chat - shared
    assert set(table(section("Plain completions"))) == plain - shared
    assert set(table(section("Embeddings"))) == set(EmbeddingsBody.__struct_fields__)


@pytest.mark.parametrize(("route", "body"), [("/tokenize", TokenizeBody), ("/detokenize", DetokenizeBody)])
def test_text_routes_name_each_member_of_their_bodies(route: str, body: type) -> None:
    assert codes(table(section("Text and tokens"))[route][0]) == set(body.__struct_fields__)  # type: ignore[attr-defined]


def test_load_names_each_member_of_its_body() -> None:
    assert LoadBody.__struct_fields__ == ("model",)
    assert '`{"model": "NAME"}`' in section("Control")


def test_sampling_defaults_are_the_code_s() -> None:
    rows, defaults = table(section("Parameters of both kinds of completion")), Sampling()
    for name in sorted(set(rows) & set(Sampling.__dataclass_fields__) - {"seed", "grammar", "logit_bias"}):
        assert rows[name][0] == str(getattr(defaults, name)), name


def test_refused_and_ignored_parameters_are_all_named() -> None:
    refused, ignored = section("What is ignored and what is refused").split("Hints are ignored")
    assert codes(refused) - {"unsupported_parameter"} == set(parameters._NEUTRAL)
    assert codes(ignored.split("So is any")[0]) == parameters._HINTS


def test_ready_and_slots_have_the_members_that_are_told(served: Served) -> None:
    ready = json.loads(get(served, "/ready"))
    told = {*ready, *(f"thermal.{name}" for name in ready.pop("thermal"))} - {"thermal"}
    rows = table(section("The server itself"))
    slots = json.loads(get(served, "/slots"))
    assert set(rows) == told | set(slots[0])
    props = section("The server itself").rpartition("`GET /props`")[2]
    assert set(json.loads(get(served, "/props"))) <= codes(props)


def test_metrics_have_a_row_each_with_their_type(served: Served) -> None:
    told = dict(re.findall(r"^# TYPE (\w+) (\w+)$", get(served, "/metrics").decode(), re.MULTILINE))
    rows = {name: cells[0] for name, cells in table(section("Metrics")).items()}
    absent = {"optaned_last_progress_age_seconds": "gauge", "optaned_thermal_word_age_seconds": "gauge"}
    assert rows == absent | told


def _said_codes() -> set[str]:
    """Return every code that a call in the server or the engine gives to a fault."""
    found = set(faults._FAILURES)
    for folder in ("server", "engine"):
        for path in sorted((ROOT / "optaned" / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    found |= _codes_of(node)
    return found


def _codes_of(call: ast.Call) -> set[str]:
    name = getattr(call.func, "id", "")
    places: list[ast.AST] = [k.value for k in call.keywords if k.arg == "code" and name in ("ApiError", "bad_request")]
    places += {"Failure": call.args[:1], "Failed": call.args[1:2]}.get(name, [])
    texts = (node for place in places for node in ast.walk(place) if isinstance(node, ast.Constant))
    return {node.value for node in texts if isinstance(node.value, str)}


def test_every_error_code_has_a_row_and_every_row_is_a_code() -> None:
    assert set(table(section("Errors"))) == _said_codes()


@pytest.mark.parametrize("code", faults._FAILURES)
def test_failures_have_the_status_and_the_wait_of_the_page(code: str) -> None:
    status, retry_s = faults._FAILURES[code]
    row = table(section("Errors"))[code]
    assert (row[0], row[1]) == (str(status), "" if retry_s is None else str(retry_s))


def test_limits_are_the_code_s_defaults() -> None:
    limits, settings = section("Limits"), ServerSettings()
    for text in (
        f"headers complete | {settings.header_timeout_s:g} s",
        f"body complete | {settings.body_timeout_s:g} s",
        f"| body | {settings.max_body_bytes >> 20} MiB",
        f"idle connection | {settings.keep_alive_s} s",
        f"connections | {settings.max_connections} ",
        f"answers to one request | {settings.max_choices} ",
        f"closed after {settings.stop_s} s",
    ):
        assert text in limits
    assert f"`[server] ping_s` ({settings.ping_s:g} s)" in PAGE
