"""Two copies of a state folder that publish to one table: the second is told, and no record is lost by it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.by_hand import ByHand
from tidegate.core.errors import DisagreementError
from tidegate.runs.recovery.context import RunContext
from tidegate.table.publish import publish


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ByHand]:
    """A pipeline that has run, and its copy on another machine; both find files that are new, the copy one more."""
    first = ByHand(tmp_path / "first", monkeypatch)
    settings = f"version: 1\nwarehouse: {tmp_path}/warehouse\nquarantine: {tmp_path}/quarantine\n"
    (first.root / "tidegate.yaml").write_text(settings)
    first.offer(1, 2)
    first.run()
    shutil.copytree(first.root, tmp_path / "second")
    second = ByHand(tmp_path / "second", monkeypatch, runs=first.runs)
    (second.root / "tidegate.yaml").write_text(settings)
    first.offer(3)
    second.offer(3, 4)
    return [first, second]


def stage(scene: ByHand) -> RunContext:
    context = scene.open()
    scene.ingest(context)
    return context


@pytest.mark.parametrize("is_begun", [False, True], ids=["staged", "begun"])
def test_a_batch_that_a_copy_of_the_state_has_published_does_not_count_as_ones_own(
    copies: list[ByHand], monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    first, second = copies
    mine, theirs = stage(second), stage(first)
    if is_begun:
        real = publish.commit_files

        def commit_after(*arguments: Any, **more: Any) -> int:
            monkeypatch.setattr(publish, "commit_files", real)
            first.publish(theirs)
            return real(*arguments, **more)

        monkeypatch.setattr(publish, "commit_files", commit_after)
    else:
        first.publish(theirs)
    for attempt in range(2):
        with pytest.raises(DisagreementError, match="STATE_BEHIND") as caught:
            second.publish(mine if attempt == 0 else second.open())
        assert "batch 1 of query" in caught.value.message
        assert second.ids() == [1, 2, 3], "to every reader"
    shown = second.repair()
    assert shown["code"] == "STATE_BEHIND"
    second.run()
    assert second.ids() == [1, 2, 3, 4]
