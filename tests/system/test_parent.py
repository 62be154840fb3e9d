"""Dying with the parent, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from optaned.system.parent import OrphanError, die_with_parent
from optaned.testing.daemon import eventually

CHILD = """
import os, sys, time
from optaned.system.parent import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(300)
"""
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
time.sleep(300)
"""


def test_a_child_goes_when_its_parent_is_killed_even_while_it_is_stopped() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(
        lambda: not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text()
    )


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    code = "from optaned.system.parent import die_with_parent; die_with_parent(1 << 22)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OrphanError: parent 4194304 is gone" in done.stderr


def test_the_signal_can_be_a_polite_one() -> None:
    with pytest.raises(OrphanError):
        die_with_parent(0, deadly=signal.SIGTERM)
