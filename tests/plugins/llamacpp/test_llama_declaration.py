"""The driver can be declared and its options read where the library is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

import optaned_llamacpp
from optaned.api import Env, UnavailableError


def test_importing_the_plugin_does_not_import_the_library() -> None:
    probe = "import sys, optaned_llamacpp; sys.exit('llama_cpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_missing_library_is_one_line_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("optaned_llamacpp.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(UnavailableError) as raised:
        optaned_llamacpp.optaned_backends()[0].open("llamacpp", optaned_llamacpp.LlamaOptions(), Env())
    assert "pip install 'optaned[llama]'" in str(raised.value)
    assert len(raised.value.lines) == 1


@pytest.mark.parametrize("options", [{"flash_attention": "yes"}, {"ubatch": 0}, {"numa": "mirror"}, {"threads": 4}])
def test_options_without_a_meaning_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        optaned_llamacpp.LlamaOptions(**options)  # type: ignore[arg-type]
