"""``status`` of many pipelines: each is looked at once, each broker asked once, and a fault stays in its own row."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.settled_projects import commit, make_project, make_settled, write_spec
from tidegate.cli.commands import app
from tidegate.cli.show_runs import show_logs
from tidegate.core import storage
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import new_report, read_newest, save_report
from tidegate.sources.kafka import brokers
from tidegate.sources.kafka.brokers import Brokers
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.lease import acquire
from tidegate.table.log import state
from tidegate.views.logs import read_logs
from tidegate.views.pages.run import read_progress
from tidegate.views.status import project_status

MANY = 12


_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for listener in _listeners:
        listener(event, arguments)


sys.addaudithook(_hear)


@contextmanager
def count_opened(root: Path) -> Iterator[Counter[str]]:
    """How often files below ``root`` are opened, by path relative to it."""
    seen: Counter[str] = Counter()

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "sqlite3.connect", "os.listdir", "os.scandir") and str(arguments[0]).startswith(str(root)):
            seen[f"{event} {Path(str(arguments[0])).relative_to(root)}"] += 1

    _listeners.append(listen)
    try:
        yield seen
    finally:
        _listeners.remove(listen)


def test_each_pipeline_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path)
    names = [f"flow_{number:02d}" for number in range(MANY)]
    for number, name in enumerate(names):
        make_settled(project, name, waiting=number)
    opened: list[Path] = []
    monkeypatch.setattr(state, "read_log", lambda path: opened.append(path) or pytest.fail(f"log of {path} read"))
    with count_opened(tmp_path) as seen:
        rows = project_status(project, None)
    assert [row["pipeline"] for row in rows] == names
    assert [row["backlog"] for row in rows] == [{"s": {"files": number, "bytes": 2 * number}} for number in range(MANY)]
    for row in rows:
        assert (row["table"]["version"], row["notes"], len(row["runs"])) == (2, [], 3), row
        assert row["runs"][0]["run_id"][:18] == "manual__2026-01-03"
    for name in names:
        mine = {what: count for what, count in seen.items() if f"/{name}/" in what or what.endswith(f"/{name}")}
        assert mine.pop(f"open data/state/{name}/birth.json") <= 2
        assert mine.pop(f"open jobs/{name}/pipeline.yaml") <= 4  # a small file, which also says where the table lies
        assert mine[f"sqlite3.connect data/state/{name}/ledger.sqlite"] == 1
        # The newest commit is asked for its version, for files that are gone, and for what other engines left.
        assert not [what for what, count in mine.items() if count > (3 if "_delta_log" in what else 2)], mine
    per_pipeline = Counter(sum(count for what, count in seen.items() if name in what) for name in names)
    assert len(per_pipeline) == 1, "the twelfth costs what the first does"


def test_a_long_past_is_not_opened(tmp_path: Path) -> None:
    """Of a thousand reports neither the content nor the time stamp of each is asked for."""
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths = project.paths("flow")
    for number in range(1000):
        (paths.runs / f"scheduled__2025-01-01T{number:04d}.json").write_text("torn")
    with count_opened(tmp_path) as seen:
        reports, unreadable = read_newest(paths, 3, by_name=True)
    assert [report.run_id[:18] for report in reports] == [f"manual__2026-01-0{day}" for day in (3, 2, 1)]
    assert len(unreadable) == 3 and sum(seen.values()) <= 8


def test_runs_with_any_other_id_are_among_the_newest(tmp_path: Path) -> None:
    paths = make_project(tmp_path).paths("flow")
    for number in range(30):
        report = new_report("flow", f"scheduled__2026-01-01T00:00:{number:02d}+00:00")
        report.started_at = f"2026-01-01T00:00:{number:02d}.000+00:00"
        save_report(paths, report)
    mine = new_report("flow", "backfill__2020-01-01T00:00:00+00:00")
    mine.started_at = "2026-01-01T00:01:00.000+00:00"
    save_report(paths, mine)
    found = [report.run_id for report in read_newest(paths, 3)[0]]
    assert found == [mine.run_id, "scheduled__2026-01-01T00:00:29+00:00", "scheduled__2026-01-01T00:00:28+00:00"]


def test_a_run_that_reads_is_shown_with_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths = project.paths("flow")
    log = ProgressLog(paths.progress("R9"))
    log.note_reading({"rows": 7, "rows_per_second": 1, "bytes": 0, "bytes_pending": 0})
    log.note_reading(
        {"rows": 1234, "rows_per_second": 100, "offsets": 1200, "offsets_pending": 4000, "seconds_left": 28}
    )
    line = "ingest: 1,234 rows, 1,200 of 4,000 offsets, 100 rows/s, about 28 s left"
    save_report(paths, new_report("flow", "R9"))
    show_logs(read_logs(project, "flow", "R9"))
    assert [one for one in capsys.readouterr().out.splitlines() if "rows/s" in one] == [f"  {line}"]
    assert line not in project_status(project, "flow")[0]["notes"], "nothing says that the run is still there"
    with acquire(paths, run_id="R9", command="tidegate run", expires_after_seconds=60):
        assert project_status(project, "flow")[0]["notes"][-1] == line
        log._append({"event": "staged", "batchId": 0, "rows": 3})
        assert line not in project_status(project, "flow")[0]["notes"]
    assert read_progress(paths, "R9")["batches"][0]["rows"] == 3


def _tear_report(project: Project, name: str) -> None:
    newest = project.paths(name).runs / "manual__2026-01-03T00:00:00_x.json"
    newest.write_text(newest.read_text()[:100])


def _tear_birth(project: Project, name: str) -> None:
    project.paths(name).birth.write_text("{")


def _drop_log(project: Project, name: str) -> None:
    storage.remove_tree(project.paths(name).table / "_delta_log")


def _restore_log(project: Project, name: str) -> None:
    (project.paths(name).table / "_delta_log" / f"{2:020d}.json").unlink()


def _tear_log(project: Project, name: str) -> None:
    (project.paths(name).table / "_delta_log" / f"{2:020d}.json").write_text('{"commitInfo')


def _misspell(project: Project, name: str) -> None:
    spec = project.paths(name).spec
    spec.write_text(spec.read_text().replace("format", "fromat"))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_tear_report, "a run report cannot be read: "),
        (_tear_birth, "STATE_FILE_UNREADABLE"),
        (_drop_log, "TABLE_GONE"),
        (_restore_log, "TABLE_BEHIND"),
        (_tear_log, "TABLE_LOG_UNREADABLE"),
        (_misspell, "BAD_SPEC"),
    ],
)
def test_what_is_wrong_with_one_stays_in_its_row(
    tmp_path: Path, harm: Callable[[Project, str], None], said: str
) -> None:
    project = make_project(tmp_path)
    for name in ("first", "second", "third"):
        make_settled(project, name, waiting=1)
    harm(project, "second")
    done = CliRunner().invoke(app, ["--project", str(tmp_path), "status", "--json"])
    assert done.exit_code == 0, done
    rows = {row["pipeline"]: row for row in json.loads(done.stdout)}
    for name in ("first", "third"):
        row = rows[name]
        assert (row["table"]["version"], row["notes"], row["errors"], len(row["runs"])) == (2, [], [], 3)
        assert row["backlog"] == {"s": {"files": 1, "bytes": 2}}
    second = rows["second"]
    assert said in [error["code"] for error in second["errors"]] or any(said in note for note in second["notes"])
    assert bool(second["trouble"]) == (harm is not _tear_report)
    assert next(iter(rows)) == ("first" if harm is _tear_report else "second"), "what needs a person comes first"
    assert len(second["runs"]) == (2 if harm is _tear_report else 3), "its past is shown anyway"
    shown = CliRunner().invoke(app, ["--project", str(tmp_path), "status"])
    assert shown.exit_code == 0 and said in shown.stdout


def test_the_glance_tells_what_the_whole_log_tells(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    paths = project.paths("flow")
    spec = load_pipeline(project, "flow")
    glance, whole = gather_facts(paths, spec, at_a_glance=True).table, gather_facts(paths, spec).table
    assert glance is not None and whole is not None
    for key in ("version", "table_id", "txns", "metadata", "committed_at_ms"):
        assert getattr(glance, key) == getattr(whole, key), key
    commit(paths.table, 3)  # somebody else's: the note does not know it
    after = gather_facts(paths, spec, at_a_glance=True).table
    assert after is not None and after.version == 3 and after.schema_json


def test_one_client_for_all_on_a_broker_and_its_silence_costs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "_PATIENCE_SECONDS", 0.2)
    made: list[str] = []
    asked: list[str] = []
    make, describe = Brokers.__init__, Brokers.describe

    def note_made(self: Brokers, settings: Any) -> None:
        made.append(settings.address)
        make(self, settings)

    def note_asked(self: Brokers, topics: Any) -> Any:
        topics = sorted(topics)
        asked.append(" ".join(topics))
        return describe(self, topics)

    monkeypatch.setattr(Brokers, "__init__", note_made)
    monkeypatch.setattr(Brokers, "describe", note_asked)
    project = make_project(tmp_path, 'version: 1\nkafka: {bootstrap_servers: "127.0.0.1:9"}\n')
    for number in range(MANY):
        write_spec(project, f"topic_{number:02d}", f"{{type: kafka, topics: [t{number:02d}], format: text}}")
    make_settled(project, "files_one", waiting=2)
    rows = {row["pipeline"]: row for row in project_status(project, None)}
    assert made == ["127.0.0.1:9"]
    assert asked == [" ".join(f"t{number:02d}" for number in range(MANY))]
    assert rows.pop("files_one")["backlog"] == {"s": {"files": 2, "bytes": 4}}
    assert len(rows) == MANY
    for name, row in rows.items():
        unknown = row["backlog_unknown"]
        assert unknown["code"] == "BROKER_AWAY" and row["backlog"] is None
        assert f"trying to describe topic t{name[-2:]}: " in unknown["message"], "its own topic, not another's"


def test_without_the_kafka_client_only_pipelines_of_topics_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("confluent_kafka", "confluent_kafka.admin"):
        monkeypatch.setitem(sys.modules, module, None)
    project = make_project(tmp_path, 'version: 1\nkafka: {bootstrap_servers: "127.0.0.1:9"}\n')
    write_spec(project, "topic", "{type: kafka, topics: [t], format: text}")
    make_settled(project, "files_one", waiting=2)
    rows = {row["pipeline"]: row for row in project_status(project, None)}
    assert rows["files_one"]["backlog"] == {"s": {"files": 2, "bytes": 4}}
    assert rows["topic"]["backlog"] is None
    assert "confluent_kafka" in json.dumps(rows["topic"])


def test_state_that_no_version_wrote_is_an_error_in_its_row(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    birth = project.paths("flow").state / "birth.json"
    birth.write_text(json.dumps({**json.loads(birth.read_text()), "sources": 1}))
    (row,) = project_status(project, None)
    assert row["errors"][0]["code"] == "STATUS_UNREADABLE"
    assert row["errors"][0]["message"].startswith("the state of the pipeline cannot be read: ")


def test_folders_that_are_not_followed_are_named(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow", waiting=1)
    for folder in ("2026", "old", "k=v"):
        (tmp_path / "inbox/flow" / folder).mkdir()
        (tmp_path / "inbox/flow" / folder / "a.txt").write_text("x\n")
    (tmp_path / "inbox/flow/_SUCCESS").touch()
    for name in ("flow", None):
        (row,) = project_status(project, name)
        told = [note for note in row["notes"] if "skipped" in note]
        assert told == ["source s: 2 sub-folders are skipped (only k=v folders are followed), first inbox/flow/2026"]
