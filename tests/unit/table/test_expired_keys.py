"""Keys of a store that expire while files are hidden: the error says what plain readers may miss, and what to run."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from tests.support.faulty_store import FaultyStore, use_store
from tests.support.staged import Stager, make_paths
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.storage import ObjectPath
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.intent import FileToRemove, write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import describe_missed, finish_intent


@pytest.mark.parametrize("is_lease_away", [False, True], ids=["table", "table and lease"])
def test_rows_may_be_out_of_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lease_away: bool) -> None:
    store = FaultyStore()
    stager = Stager(make_paths(tmp_path, lake=use_store(monkeypatch, store)), {"id": "long"}, [])
    paths = stager.paths
    first, second = (stager.stage(batch, [{"id": 1}, {"id": 2}]) for batch in range(2))
    plan = plan_publish([first], run_id="r", partition_by=[], app_version_before=-1)
    finish_intent(paths, write_intent(paths, plan), is_current=lambda: True)
    plan = plan_publish([second], run_id="compaction", partition_by=[], app_version_before=0)
    plan.files_to_remove.extend(
        FileToRemove(one.path, one.rows, one.size_bytes) for one in list_data_files(paths.table)
    )
    hidden = False

    def expire(name: str, number: int) -> str | None:
        nonlocal hidden
        if hidden:
            raise GenericError("Server returned non-2xx status code: 400 Bad Request: <Code>ExpiredToken</Code>")
        hidden = name == "delete"
        return None

    def is_current() -> bool:
        if is_lease_away and hidden:
            storage.exists(ObjectPath("s3://bucket/lease"))
        return True

    store.choose = expire
    intent = write_intent(paths, plan)
    with pytest.raises(TryAgainError, match="ROWS_OUT_OF_SIGHT") as caught:
        finish_intent(paths, intent, is_current=is_current)
    assert "ExpiredToken" in caught.value.message
    assert f"plain readers of {paths.table} may miss up to 1 file" in caught.value.message
    assert "tidegate run orders" in str(caught.value.fix)
    store.choose = lambda name, number: None
    finish_intent(paths, intent, is_current=lambda: True)
    assert describe_missed(paths) == []
    (file,) = list_data_files(paths.table)
    assert file.path == intent.files_to_add[0].path and storage.exists(paths.table / file.path)
