"""Steps that say what they do when they take long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.held import GOOD, Held, commands, judge_by_hand
from tidegate.core.process import limit
from tidegate.core.process.limit import print_if_slow
from tidegate.runs.gate import increment


def test_a_slow_block_is_announced_once_and_a_fast_one_never(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limit, "_SLOW_SECONDS", 0.2)
    with print_if_slow("fast"):
        pass
    with print_if_slow("slow: 3 rows"):
        time.sleep(0.8)
        assert capsys.readouterr().err == "slow: 3 rows\n"
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_audit_and_publish_say_how_much_they_have_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = Held(tmp_path)
    monkeypatch.setattr(limit, "_SLOW_SECONDS", 0.1)

    def slow(call: Any) -> Any:
        return lambda *args: [time.sleep(0.5), call(*args)][1]

    with commands(lambda: held), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.quality.pandas_engine.judge_files", slow(judge_by_hand))
        patch.setattr(increment, "finish_work", slow(increment.finish_work))
        held.run("R0", GOOD)
    size = f"{len(GOOD)} rows in 1 file"
    assert capsys.readouterr().err.splitlines() == [
        f"audit: 1 rule on {size}, without Spark",
        f"publish in progress: {size}",
    ]
