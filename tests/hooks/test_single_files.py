"""Plugins that are one file in a folder, and who may have written them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optaned.hooks.host import PluginHost
from optaned.hooks.records import Status
from optaned.hooks.spec import GUARD_GROUP

SOURCE = textwrap.dedent("""
    from __future__ import annotations
    from optaned.api import Bytes, Driver, Options, hookimpl
    OPTANED_API = (1, 0)
    class Size(Options):
        size: Bytes
    @hookimpl
    def optaned_HOOK():
        return [Driver("mine", Size, print)]
""")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "plugins"
    (place / "guard").mkdir(parents=True)
    for file, hook in ((place / "shelf.py", "tiers"), (place / "guard" / "probe.py", "sensors")):
        file.write_text(SOURCE.replace("HOOK", hook))
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


def test_a_file_is_a_plugin_with_working_options(folder: Path) -> None:
    (folder / "_helper.py").write_text("raise OSError")
    (folder / "notes.txt").write_text("")
    host = PluginHost.discover(wanted=["shelf"], path=folder)
    record = next(r for r in host.records if r.name == "shelf")
    assert (record.status, record.distribution) == (Status.LOADED, str(folder / "shelf.py"))
    assert host.driver("tiers", "mine").options.model_validate({"size": "1KiB"}).model_dump() == {"size": 1024}
    assert not [r for r in host.records if r.name in ("_helper", "notes", "probe")]


def test_the_guard_takes_only_files_of_its_own_folder(folder: Path) -> None:
    host = PluginHost.discover(GUARD_GROUP, wanted=["probe", "shelf"], path=folder)
    statuses = {r.name: r.status for r in host.records}
    assert statuses["probe"] is Status.LOADED
    assert statuses["shelf"] is Status.NOT_INSTALLED


@pytest.mark.parametrize("mode", [0o775, 0o757])
@pytest.mark.parametrize("which", [".", "shelf.py"])
def test_what_others_can_write_is_refused_and_not_run(folder: Path, which: str, mode: int) -> None:
    (folder / "shelf.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    (folder / which).chmod(mode)
    record = next(r for r in PluginHost.discover(wanted=["shelf"], path=folder).records if r.name == "shelf")
    assert record.status is Status.REFUSED
    assert f"can be written by others; run: chmod go-w {folder}" in record.reason
    assert not (folder / "ran").exists()


def test_compiled_code_that_others_can_write_is_refused(folder: Path) -> None:
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__").chmod(0o777)
    record = next(r for r in PluginHost.discover(wanted=["shelf"], path=folder).records if r.name == "shelf")
    assert record.status is Status.REFUSED


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
@pytest.mark.parametrize("which", [".", "shelf.py"])
def test_what_belongs_to_somebody_else_is_refused(folder: Path, which: str) -> None:
    os.chown(folder / which, 12345, 12345)
    record = next(r for r in PluginHost.discover(wanted=["shelf"], path=folder).records if r.name == "shelf")
    assert record.status is Status.REFUSED
    assert "belongs to uid 12345; it must belong to root" in record.reason


def test_a_link_into_a_writable_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (folder / "shelf.py").rename(open_folder / "shelf.py")
    (folder / "shelf.py").symlink_to(open_folder / "shelf.py")
    record = next(r for r in PluginHost.discover(wanted=["shelf"], path=folder).records if r.name == "shelf")
    assert record.status is Status.REFUSED


def test_a_folder_that_is_not_there_is_one_record(tmp_path: Path) -> None:
    host = PluginHost.discover(wanted=[], path=tmp_path / "nowhere")
    record = next(r for r in host.records if r.distribution == str(tmp_path / "nowhere"))
    assert record.status is Status.REFUSED
    assert "No such file or directory" in record.reason


def test_a_root_guard_refuses_an_installed_plugin_that_others_can_write(install: Callable[..., Any]) -> None:
    file = install("probe", SOURCE.replace("HOOK", "sensors"), group=GUARD_GROUP)
    for path in (file, file.parent):
        path.chmod(0o755)
    trusting = PluginHost.discover(GUARD_GROUP, wanted=["probe"], trusted_only=True)
    file.chmod(0o666)
    wary = PluginHost.discover(GUARD_GROUP, wanted=["probe"], trusted_only=True)
    statuses = [next(r for r in host.records if r.name == "probe").status for host in (trusting, wary)]
    expected_first = Status.LOADED if os.geteuid() == 0 else statuses[0]  # pytest's folder is root's only for root
    assert statuses == [expected_first, Status.REFUSED]
