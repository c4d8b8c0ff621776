"""Repair without Spark: killed between any two of its writes it is completed by the next one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.restart.disagreement import find_disagreement
from tidegate.runs.restart.repair import repair_pipeline, reset_pipeline
from tidegate.runs.restart.repair_plan import first_offsets
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spark.driver.jvm import PINNED
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.birth import new_birth, read_birth, replace_birth, write_birth
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile, list_data_files
from tidegate.table.publish.intent import PublishIntent, write_intent
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON

NAME = "orders"


def make_project(root: Path) -> Project:
    """A pipeline that was repaired and has not run since: a birth, and no checkpoint that could tell of more."""
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "data" / "inbox").mkdir(parents=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING}\n"
    )
    project = load_project(root)
    write_birth(project.paths(NAME), new_birth(project.paths(NAME), load_pipeline(project, NAME), {"orders": {}}, {}))
    return project


def commit(table: Path, batch_id: int, add: Sequence[str] = ()) -> None:
    """One more version of a table, with the files ``add``, which hold nothing."""
    for name in add:
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).touch()
    commit_files(
        table,
        Commit(
            schema_json=QUARANTINE_SCHEMA_JSON,
            add=[DataFile(name, 1, 0) for name in add],
            app_id=QUERY,
            app_version=batch_id,
            app_version_before=batch_id - 1,
            custom_metadata={"tidegate.query_id": QUERY, "tidegate.batches": json.dumps([batch_id, batch_id])},
        ),
    )


@pytest.mark.parametrize(
    ("code", "batches", "noted"),
    [
        ("TABLE_BEHIND", 2, {"version": 3, "batch_id": 3}),
        ("TABLE_REPLACED", 2, {"version": 1, "batch_id": 1, "table_id": "another"}),
        ("TABLE_GONE", 0, {"version": 3, "batch_id": 3, "table_id": "gone"}),
    ],
)
def test_a_killed_repair_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, batches: int, noted: dict[str, Any]
) -> None:
    """A new birth is the last thing that matters: before it there is a disagreement, and a note to tell it by."""
    for at in itertools.count(1):
        project = make_project(tmp_path / str(at))
        paths, spec = project.paths(NAME), load_pipeline(project, NAME)
        for batch in range(batches):
            commit(paths.table, batch)
        table = gather_facts(paths, spec).table
        table_id = "" if table is None else table.table_id
        old = {"table_id": table_id, "query_id": QUERY, "ledger_last_id": 0, **noted}
        right = {"table_id": table_id, "version": batches, "query_id": None, "batch_id": -1, "ledger_last_id": 0}
        right["keeps_state"] = False
        storage.write_note(paths.published, old["version"], old)
        found = find_disagreement(paths, gather_facts(paths, spec), NAME)
        assert found is not None and found.code == code
        born = read_birth(paths)

        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            try:
                repair_pipeline(project, NAME, dry_run=False)
            except KilledHere:
                note = storage.read_note(paths.published)
                assert note in (old, right if batches else None), calls.names
                found = find_disagreement(paths, gather_facts(paths, spec), NAME)
                if found is None:
                    assert read_birth(paths) != born, calls.names
                else:
                    assert found.code == code, calls.names

        storage.remove_tree(paths.lease)  # this process lives, so it would wait for itself
        repair_pipeline(project, NAME, dry_run=False)
        assert storage.read_note(paths.published) == (right if batches else None)
        assert find_disagreement(paths, gather_facts(paths, spec), NAME) is None
        if calls.count < at:
            break
    assert at > 10


def test_the_checkpoint_of_an_earlier_version_is_left_behind(tmp_path: Path) -> None:
    """The new one is born with what this version pins, or it would be refused again after its first batch."""
    project = make_project(tmp_path)
    paths, spec = project.paths(NAME), load_pipeline(project, NAME)
    then = new_birth(paths, spec, {"orders": {}}, {"spark.sql.shuffle.partitions": "8"})
    replace_birth(paths, replace(then, query_id=QUERY))
    with open_ledger(paths) as ledger:
        (row,) = ledger.add_links("orders", [NewFile("data/inbox/a.csv", 2, 1, "")])
        ledger.mark_staged("orders", QUERY, 0, [{"path": row.path, "size": 2, "mtime_ns": 1, "link": row.link}])
        ledger.mark_published(QUERY, 0)
    for name in ("offsets", "commits"):
        (paths.checkpoint / name).mkdir(parents=True)
        (paths.checkpoint / name / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')
    (paths.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    commit(paths.table, 0, [name_file(0)])

    table = gather_facts(paths, spec).table
    assert table is not None
    note = {"table_id": table.table_id, "version": 0, "query_id": QUERY, "batch_id": 0, "ledger_last_id": 0}
    storage.write_note(paths.published, 0, note)

    found = find_disagreement(paths, gather_facts(paths, spec), NAME)
    assert found is not None and found.code == "CHECKPOINT_TORN"
    assert "no run of tidegate made this checkpoint" in found.message
    assert found.fix is not None and "tidegate repair orders" in found.fix
    done = repair_pipeline(project, NAME, dry_run=False)
    assert done["code"] == "CHECKPOINT_TORN"
    assert not any("that the table's log does not hold" in one for one in done["next_run"]), "nothing is read again"

    assert find_disagreement(paths, gather_facts(paths, spec), NAME) is None
    assert not paths.checkpoint.exists()
    birth = read_birth(paths)
    assert birth is not None and birth.settings == {**PINNED, "spark.sql.shuffle.partitions": "8"}


def name_file(batch_id: int, query_id: str = QUERY) -> str:
    return f"part-{query_id[:8]}-{batch_id:08d}-0123456789ab-00000.parquet"


def test_what_the_logs_do_not_hold_leaves_every_readers_sight(tmp_path: Path) -> None:
    """Data files of ours, also in a folder that starts with an underscore: DuckDB looks into it."""
    project = make_project(tmp_path)
    paths = project.paths(NAME)
    storage.write_note(paths.published, 3, {"table_id": "another", "version": 3, "query_id": QUERY, "batch_id": 3})
    commit(paths.table, 0, ["_day=2026-01-01/" + name_file(0)])
    commit(paths.table, 1, [name_file(1)])
    orphans = [name_file(2), "_day=2026-01-01/" + name_file(1), "day=2026-01-01/_x=1/" + name_file(7, "f" * 8)]
    foreign = ["part-00000.parquet", "_delta_log/" + name_file(9), f".{name_file(3)}.replaced"]
    for name in orphans + foreign:
        (paths.table / name).parent.mkdir(parents=True, exist_ok=True)
        (paths.table / name).write_text(name)
    for batch in range(4):
        commit(paths.quarantine, batch, [name_file(batch)])

    done = repair_pipeline(project, NAME, dry_run=False)

    assert done["code"] == "TABLE_REPLACED"
    assert "take 2 files of those batches out of quarantine" in done["actions"]
    table, quarantine = sorted(paths.set_aside.glob("*/table")), sorted(paths.set_aside.glob("*/quarantine"))
    assert files_in(table[0]) == sorted(orphans)
    assert files_in(quarantine[0]) == [name_file(2), name_file(3)]
    assert [file.path for file in list_data_files(paths.quarantine)] == [name_file(0), name_file(1)]
    kept = [file.path for file in list_data_files(paths.table)] + foreign
    assert set(kept) <= set(files_in(paths.table)) and not set(orphans) & set(files_in(paths.table))


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_new_table_begins_where_the_pipeline_began(tmp_path: Path) -> None:
    """Not where a birth would have begun that came late and was backed up."""
    paths = make_project(tmp_path).paths(NAME)
    begun = {"offsets": {"trades": {"0": 5}}}
    birth = read_birth(paths)
    assert birth is not None
    replace_birth(paths, replace(birth, sources={"trades": begun}))
    late = replace(birth, sources={"trades": {"offsets": {"trades": {"0": 900}}}})
    storage.replace(paths.set_aside / "late-000001" / "birth.json", storage.dump_json(asdict(late)))
    assert first_offsets(paths, "trades") == begun


def test_a_publish_that_was_begun_on_a_newer_table(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    paths, spec = project.paths(NAME), load_pipeline(project, NAME)
    intent = PublishIntent(NAME, "R", "quarantine", QUARANTINE_SCHEMA_JSON, [], QUERY, 5, 4)
    write_intent(paths, intent)
    found = find_disagreement(paths, gather_facts(paths, spec), NAME)
    assert found is not None
    message = "an older copy of the table was restored: a publish was begun on a newer quarantine"
    assert (found.code, found.message) == ("TABLE_BEHIND", message)


def test_a_query_with_state_does_not_start_where_it_stopped(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    paths, spec = project.paths(NAME), load_pipeline(project, NAME)
    state = [{"operator": "aggregation", "keys": ["id"], "values": ["count"]}]
    replace_birth(paths, replace(new_birth(paths, spec, {"orders": {}}, {}), query_id=QUERY, state=state))
    (paths.checkpoint / "offsets").mkdir(parents=True)
    (paths.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    with pytest.raises(UsageError, match="how much of it, no run has noted") as refused:
        reset_pipeline(project, NAME, from_beginning=False, dry_run=False, confirm=NAME)
    assert (refused.value.code, refused.value.exit_code) == ("STATE_NEEDED", 64)
    note = {"query_id": QUERY, "rows": 20, "memory_bytes": 4096, "windows": [[0, 600_000]]}
    storage.write_note(paths.open_state / QUERY, 0, note)
    with pytest.raises(UsageError, match=r"20 rows, 1 open window, 4,096 bytes") as refused:
        reset_pipeline(project, NAME, from_beginning=False, dry_run=True, confirm=None)
    assert f"tidegate reset {NAME} --from-beginning --confirm {NAME}" in str(refused.value.fix)
    shown = reset_pipeline(project, NAME, from_beginning=True, dry_run=True, confirm=None)
    assert "builds state again from what is read" in shown["next_run"]
