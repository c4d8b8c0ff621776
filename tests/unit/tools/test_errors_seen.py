"""The last step of ``make test``: which conditions were raised, and that tests do not count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.docs.errors import list_conditions
from tools.errors_seen import find_unseen, record_to

RAISE = """
from tidegate.sources import errors as sources_errors
from tidegate.spec.project import load_project
sources_errors.LEDGER_BUSY(pipeline="made by a test")
load_project("/")
"""


def test_what_tidegate_raises_is_seen_and_what_a_test_makes_is_not(tmp_path: Path) -> None:
    environment = {**os.environ, **record_to(tmp_path / "seen")}
    done = subprocess.run([sys.executable, "-c", RAISE], env=environment, capture_output=True, text=True, check=False)
    assert "NO_PROJECT" in done.stderr
    assert set(list_conditions()) - set(find_unseen(tmp_path / "seen")) == {"NO_PROJECT"}


def test_the_step_fails_for_an_entry_that_was_not_raised(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("\n".join(name for name in list_conditions() if name != "LEASE_HELD"))
    environment = {**os.environ, "TIDEGATE_ERRORS_SEEN": str(tmp_path / "seen")}
    command = [sys.executable, "-m", "tools.errors_seen"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode and done.stderr.count("LEASE_HELD") == 1
    (tmp_path / "seen").write_text("\n".join(list_conditions()))
    assert subprocess.run(command, env=environment, check=False).returncode == 0
