"""Projects with pipelines that have run, made without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.staged import QUERY
from tidegate.core import storage
from tidegate.runs.reports.report import new_report, save_report
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.birth import new_birth, write_birth
from tidegate.state.checkpoint import list_entry
from tidegate.state.topics import FilePart
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON


def make_project(root: Path, settings: str = "version: 1\n") -> Project:
    root.mkdir(parents=True, exist_ok=True)
    (root / "tidegate.yaml").write_text(settings)
    return load_project(root)


def write_spec(project: Project, name: str, source: str) -> None:
    (project.jobs / name).mkdir(parents=True)
    (project.jobs / name / "pipeline.yaml").write_text(
        f"version: 1\nname: {name}\nschedule: null\nsources:\n  s: {source}\n"
    )


def commit(table: Path, batch_id: int) -> None:
    """A version of a table as a publish of ``batch_id`` leaves it."""
    name = f"part-{batch_id}.parquet"
    table.mkdir(parents=True, exist_ok=True)
    (table / name).touch()
    commit_files(
        table,
        Commit(
            schema_json=QUARANTINE_SCHEMA_JSON,
            add=[DataFile(name, 1, 0)],
            app_id=QUERY,
            app_version=batch_id,
            app_version_before=batch_id - 1,
            custom_metadata={"tidegate.query_id": QUERY, "tidegate.batches": json.dumps([batch_id, batch_id])},
        ),
    )


def make_settled(project: Project, name: str, *, waiting: int = 0) -> None:
    """A file pipeline after three runs that published, with ``waiting`` new files in its inbox."""
    write_spec(project, name, f"{{type: files, path: inbox/{name}, format: text, settle: 0 seconds}}")
    paths = project.paths(name)
    inbox = project.root / "inbox" / name
    inbox.mkdir(parents=True)
    write_birth(paths, new_birth(paths, load_pipeline(project, name), {"s": {}}, {}))
    born = json.loads(paths.birth.read_text())
    paths.birth.write_text(json.dumps({**born, "query_id": QUERY}))
    for folder in ("offsets", "commits", "sources/s"):
        (paths.checkpoint / folder).mkdir(parents=True)
    (paths.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch in range(3):
        taken = inbox / f"{batch}.txt"
        taken.write_text("x\n")
        with open_ledger(paths, create=True) as ledger:
            (row,) = ledger.add_links("s", [NewFile(f"inbox/{name}/{taken.name}", 2, taken.stat().st_mtime_ns, "")])
            ledger.mark_staged(
                "s", QUERY, batch, [{"path": row.path, "size": 2, "mtime_ns": row.mtime_ns, "link": row.link}]
            )
            ledger.mark_published(QUERY, batch)
        offsets = f'v2\n{{"batchWatermarkMs":0}}\ns:{{"logOffset":{batch}}}'
        (paths.checkpoint / "offsets" / str(batch)).write_text(offsets)
        (paths.checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        files = BatchFiles(paths.checkpoint, "s")
        files.put(BatchFile(batch, parts=[FilePart(row.link)]))
        (paths.checkpoint / "sources/s" / str(batch)).write_bytes(b"v1\n" + list_entry(files.path(batch), batch))
        commit(paths.table, batch)
        report = new_report(name, f"manual__2026-01-0{batch + 1}T00:00:00_x")
        report.started_at, report.outcome = f"2026-01-0{batch + 1}T00:00:00.000+00:00", "published"
        save_report(paths, report)
    table = read_table_state(paths.table)
    assert table is not None
    note = {"table_id": table.table_id, "version": 2, "query_id": QUERY, "batch_id": 2, "ledger_last_id": 3}
    storage.write_note(paths.published, 2, note)
    for number in range(waiting):
        (inbox / f"new-{number}.txt").write_text("y\n")
