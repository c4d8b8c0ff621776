"""What ``tidegate state`` and ``tidegate validate --spark`` refuse before they ask Spark anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.settled_projects import make_project, make_settled, write_spec
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.runs.preflight.facts import query_keeps_state
from tidegate.runs.preflight.gather import gather_facts
from tidegate.spark.inspection.analyse import foresee_schemas
from tidegate.spark.inspection.show_state import read_state
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.birth import as_read, keep_schemas, new_birth, read_birth, replace_birth, write_birth
from tidegate.state.published import read_published, write_published


def test_no_run_and_a_query_without_state(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths = project.paths("flow")
    with pytest.raises(UsageError, match="NO_STATE: flow has no state: no run has written any"):
        read_state(project, "flow")
    birth = read_birth(paths)
    assert birth is not None
    replace_birth(paths, replace(birth, state=[]))
    with pytest.raises(UsageError, match="NO_STATE: flow has no state: its query does not"):
        read_state(project, "flow")


def test_the_checkpoint_of_a_query_with_state_is_gone(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths = project.paths("flow")
    birth = read_birth(paths)
    assert birth is not None
    replace_birth(paths, replace(birth, query_id="q", state=["stateStoreSave"]))
    storage.remove_tree(paths.checkpoint)
    with pytest.raises(DisagreementError, match=r"CHECKPOINT_TORN: .*the checkpoint of query q is gone"):
        read_state(project, "flow")


def test_a_waiting_file_that_does_not_fit_the_columns_that_were_inferred(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    write_spec(project, "flow", "{type: files, path: inbox, format: parquet, schema: infer, settle: 0 seconds}")
    paths, spec = project.paths("flow"), load_pipeline(project, "flow")
    write_birth(paths, new_birth(paths, spec, {"s": {}}, {}))
    keep_schemas(paths, as_read(spec, paths), {"s": "id BIGINT"})
    (tmp_path / "inbox").mkdir()
    pq.write_table(pa.table({"id": ["text"]}), tmp_path / "inbox/a.parquet")
    with pytest.raises(UsageError, match=r"SCHEMA_DRIFT: 1 file of source s does not fit .*inbox/a\.parquet: id is"):
        foresee_schemas(cast(Any, None), project, paths, as_read(spec, paths), tmp_path / "links")


def test_the_note_of_the_last_publish_says_whether_the_query_keeps_state(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths, spec = project.paths("flow"), load_pipeline(project, "flow")
    note = read_published(paths)
    assert note is not None and not gather_facts(paths, spec).keeps_state
    write_published(paths, replace(note, keeps_state=True))
    paths.birth.unlink()
    facts = gather_facts(paths, spec)
    assert facts.keeps_state and query_keeps_state(facts, spec)
