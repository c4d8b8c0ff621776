"""Checkpoint, table, staging and spec that do not fit together: refused before Spark starts, shown, then repaired; or,
where only the checkpoint of a query without state is concerned, made anew by the next run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.recovery.views import tree_of
from tests.support.project import in_session
from tests.support.scene import NAME, Scene, Snapshot
from tests.support.sweep import choose, sweep
from tidegate.core.errors import DisagreementError
from tidegate.core.outputs import Repair
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import ingest_run
from tidegate.spark.driver.submit import SubmitPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Java:
    """Stands before the real Java and writes down each time it is started."""

    def __init__(self, folder: Path) -> None:
        real = shutil.which("java")
        assert real is not None
        self.log = folder / "java-starts"
        self.home = folder / "java-home"
        (self.home / "bin").mkdir(parents=True)
        script = self.home / "bin/java"
        script.write_text(f'#!/bin/sh\necho started >> "{self.log}"\nexec "{os.path.realpath(real)}" "$@"\n')
        script.chmod(0o755)

    @contextlib.contextmanager
    def never_started(self) -> Iterator[None]:
        """Fails when a command in the block starts Java."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}")
            patch.delenv("JAVA_HOME", raising=False)
            yield
        assert not self.log.exists(), "Java was started"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A watch on Java's starts."""
    return Java(tmp_path)


@pytest.fixture(scope="session")
def aged(published: Snapshot, spark: SparkSession) -> Snapshot:
    """Three runs published; ``older/`` beside the project holds a copy of its data from after the first."""
    scene = published.restore()
    older = scene.root / "older"
    shutil.copytree(scene.root / "data", older, symlinks=True)
    for number in (2, 3):
        scene.offer()
        scene.run(f"run{number}", submit=in_session(spark))
    return scene.save(published.folder.with_name("aged"))


@pytest.fixture(scope="session")
def owing(aged: Snapshot, spark: SparkSession) -> Snapshot:
    """The same, with two more files staged and not audited; nobody holds the lease any more."""
    scene = aged.restore()
    scene.offer()
    scene.offer()
    ingest_run(scene.project, NAME, "fourth", submit=in_session(spark))
    shutil.rmtree(scene.state / "lease")
    return scene.save(aged.folder.with_name("owing"))


@contextlib.contextmanager
def changing_nothing(scene: Scene) -> Iterator[None]:
    """Fails when a run that is refused changes what a reader or the next run sees."""
    before = {folder: tree_of(folder) for folder in (scene.table, scene.quarantine, scene.state / "checkpoint")}
    yield
    for folder, entries in before.items():
        assert tree_of(folder) == entries, f"{folder} was changed by a run that was refused"


def refused_on_command_line(scene: Scene, java: Java) -> dict[str, Any]:
    """The error with which ``tidegate run`` is refused: exit code 78, no JVM."""
    with java.never_started(), changing_nothing(scene):
        value: dict[str, Any] = scene.report("run", NAME, expect=78)["error"]
    assert value["message"] and value["next_run"] and "repair" in value["fix"], value
    return value


def never(plan: SubmitPlan) -> int:
    """A ``submit`` of a run that is refused before it needs Spark."""
    raise AssertionError("Spark was started")


def check_refused(scene: Scene, code: str) -> None:
    """A run is refused with ``code``, in this process."""
    with changing_nothing(scene), pytest.raises(DisagreementError) as refused:
        scene.run(submit=never)
    error = refused.value
    assert (error.code, error.exit_code) == (code, 78)
    assert error.message and error.next_run and "repair" in str(error.fix), error


def repair(scene: Scene, *, dry_run: bool = False) -> Repair:
    """``tidegate repair``, in this process."""
    return repair_pipeline(scene.project, NAME, dry_run=dry_run)


def recover(scene: Scene, code: str, spark: SparkSession) -> None:
    """Refused with ``code``; a dry run shows the choices and changes nothing; repair; then everything is there."""
    check_refused(scene, code)
    before = tree_of(scene.root)
    shown = repair(scene, dry_run=True)
    assert tree_of(scene.root) == before, "a dry run changed something"
    assert shown["code"] == code and shown["dry_run"] and len(shown["choices"]) >= 2 and shown["actions"]
    done = repair(scene)
    assert (done["code"], done["actions"]) == (code, shown["actions"])
    assert repair(scene)["found"] == "nothing disagrees"
    scene.check_readers_now()
    scene.offer()
    scene.catch_up(spark)


def _remove(*names: str) -> Callable[[Scene], None]:
    def harm(scene: Scene) -> None:
        for name in names:
            for path in list(scene.root.glob(name)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return harm


def _put_back(name: str) -> Callable[[Scene], None]:
    """The older copy of data/``name`` takes the place of the present one."""

    def harm(scene: Scene) -> None:
        there, older = scene.root / "data" / name, scene.root / "older" / name
        if older.is_file():
            shutil.copy2(older, there)
        else:
            shutil.rmtree(there)
            shutil.copytree(older, there, symlinks=True)

    return harm


def _replace_table(scene: Scene) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(str(scene.table))
    schema = table.schema()
    shutil.rmtree(scene.table)
    DeltaTable.create(str(scene.table), schema, partition_by=["day"])


def _replace_checkpoint(scene: Scene) -> None:
    (scene.state / "checkpoint/metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')


def _edit_offsets(scene: Scene) -> None:
    path = scene.state / "checkpoint/offsets/2"
    path.write_text(path.read_text().replace('"logOffset":2', '"logOffset":1'))
    (path.parent / ".2.crc").unlink()


def _edit_spec(before: str, after: str) -> Callable[[Scene], None]:
    def harm(scene: Scene) -> None:
        path = scene.root / "jobs/orders/pipeline.yaml"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    return harm


_STATE = "data/state/orders"
CHECKPOINT_HARMS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "deleted": (_remove(f"{_STATE}/checkpoint"), "CHECKPOINT_TORN"),
    "without its metadata": (_remove(f"{_STATE}/checkpoint/metadata"), "CHECKPOINT_TORN"),
    "without its offsets": (_remove(f"{_STATE}/checkpoint/offsets"), "CHECKPOINT_TORN"),
    "without its newest offsets": (_remove(f"{_STATE}/checkpoint/offsets/2"), "CHECKPOINT_TORN"),
    "without its source logs": (_remove(f"{_STATE}/checkpoint/sources"), "CHECKPOINT_TORN"),
    "without its commits": (_remove(f"{_STATE}/checkpoint/commits"), "CHECKPOINT_TORN"),
    "without the batch files": (_remove(f"{_STATE}/batches"), "CHECKPOINT_TORN"),
    "of an older backup": (_put_back(f"state/{NAME}/checkpoint"), "CHECKPOINT_DIVERGED"),
    "of another query": (_replace_checkpoint, "CHECKPOINT_DIVERGED"),
    "edited": (_edit_offsets, "CHECKPOINT_DIVERGED"),
}
HARMS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "state of an older backup": (_put_back(f"state/{NAME}"), "STATE_BEHIND"),
    "birth deleted": (_remove(f"{_STATE}/birth.json"), "CHECKPOINT_DIVERGED"),
    "table deleted": (_remove(f"data/warehouse/{NAME}"), "TABLE_GONE"),
    "table of an older backup": (_put_back(f"warehouse/{NAME}"), "TABLE_BEHIND"),
    "table replaced by another": (_replace_table, "TABLE_REPLACED"),
    "partition_by changed": (_edit_spec("{partition_by: [day]}", "{partition_by: []}"), "PARTITION_BY_CHANGED"),
}
OWING_HARMS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "staging deleted": (_remove(f"{_STATE}/staging"), "STAGING_GONE"),
    "manifests deleted": (_remove(f"{_STATE}/manifests"), "STAGING_GONE"),
    "manifests and checkpoint deleted": (_remove(f"{_STATE}/manifests", f"{_STATE}/checkpoint"), "STAGING_GONE"),
    "table deleted while owed": (_remove(f"data/warehouse/{NAME}"), "TABLE_GONE"),
}


_IN_FULL = os.environ.get("TIDEGATE_SWEEP", "0") != "0"
_BEGUN_ANEW = [
    (harm, is_owed)
    for number, harm in enumerate(choose([*CHECKPOINT_HARMS], 4))
    for is_owed in ([False, True] if _IN_FULL else [number % 2 == 1])
]
"""In turns with and without staged batches; tests/model/test_unusable_checkpoint.py has both of each without Spark."""


@pytest.mark.parametrize(("harm", "is_owed"), _BEGUN_ANEW)
def test_the_next_run_makes_a_checkpoint_anew(
    harm: str, is_owed: bool, aged: Snapshot, owing: Snapshot, spark: SparkSession
) -> None:
    act, code = CHECKPOINT_HARMS[harm]
    scene = (owing if is_owed else aged).restore()
    act(scene)
    begin_new_query(scene, code, spark)


def begin_new_query(scene: Scene, code: str, spark: SparkSession) -> None:
    """Nothing is refused: the next run that has something to read begins a new checkpoint, and says so."""
    shown = repair(scene, dry_run=True)
    assert shown["code"] is None and f"({code}: " in shown["next_run"][0], shown
    assert not (scene.state / "queries").exists(), "a look changed something"
    scene.offer()
    report = scene.run(submit=in_session(spark))
    (note,) = [note for note in report["notes"] if f"({code}: " in note]
    assert note.startswith("began a new checkpoint")
    scene.check_complete(spark)
    scene.offer()
    scene.catch_up(spark)


@pytest.mark.parametrize("harm", CHECKPOINT_HARMS)
def test_a_query_with_state_needs_its_checkpoint(harm: str, aged: Snapshot) -> None:
    """Its state is nowhere else."""
    act, code = CHECKPOINT_HARMS[harm]
    scene = aged.restore()
    birth = scene.state / "birth.json"
    kept = [{"operator": "Aggregate", "keys": ["id"], "values": ["amount"]}]
    birth.write_text(json.dumps({**json.loads(birth.read_text()), "state": kept}))
    act(scene)
    check_refused(scene, code)


@pytest.mark.parametrize("harm", [one for one in HARMS if one != "partition_by changed"])
def test_repaired(harm: str, aged: Snapshot, spark: SparkSession) -> None:
    act, code = HARMS[harm]
    scene = aged.restore()
    act(scene)
    recover(scene, code, spark)


@pytest.mark.parametrize("harm", OWING_HARMS)
def test_repaired_while_owed(harm: str, owing: Snapshot, spark: SparkSession) -> None:
    act, code = OWING_HARMS[harm]
    scene = owing.restore()
    act(scene)
    recover(scene, code, spark)


def test_source_path_changed(aged: Snapshot, java: Java, spark: SparkSession) -> None:
    """Another folder is another source: all in it is new. Taking the change back needs no repair."""
    scene = aged.restore()
    _edit_spec("path: data/inbox", "path: data/elsewhere")(scene)
    (scene.root / "data/elsewhere").mkdir()
    error = refused_on_command_line(scene, java)
    assert error["code"] == "SPEC_CHANGED" and "data/elsewhere" in error["message"]
    before = tree_of(scene.root)
    assert repair(scene, dry_run=True)["code"] == "SPEC_CHANGED"
    assert tree_of(scene.root) == before
    kept = scene.save(aged.folder.with_name("path-changed"))

    _edit_spec("path: data/elsewhere", "path: data/inbox")(scene)
    scene.catch_up(spark)

    scene = kept.restore()
    scene.call("repair", NAME)
    scene.offer().rename(scene.root / "data/elsewhere/new.csv")
    scene.catch_up(spark)


def test_partitioning_changed(aged: Snapshot, java: Java, spark: SparkSession) -> None:
    """A table keeps the partitions it was made with; what helps is to revert the change."""
    scene = aged.restore()
    act, code = HARMS["partition_by changed"]
    act(scene)
    assert refused_on_command_line(scene, java)["code"] == code
    _edit_spec("{partition_by: []}", "{partition_by: [day]}")(scene)
    scene.offer()
    scene.catch_up(spark)


def test_project_moved(aged: Snapshot, spark: SparkSession) -> None:
    scene = aged.restore()
    moved = scene.root.with_name("moved")
    shutil.rmtree(moved, ignore_errors=True)
    scene.root.rename(moved)
    there = dataclasses.replace(scene, root=moved)
    begin_new_query(there, "PROJECT_MOVED", spark)


UNKNOWABLE: dict[str, tuple[Callable[[Scene], None], str]] = {
    "ledger deleted": (_remove(f"{_STATE}/ledger.sqlite"), "LEDGER_INCOMPLETE"),
    "ledger of an older backup": (_put_back(f"state/{NAME}/ledger.sqlite"), "LEDGER_INCOMPLETE"),
    "ledger and checkpoint deleted": (_remove(f"{_STATE}/ledger.sqlite", f"{_STATE}/checkpoint"), "LEDGER_INCOMPLETE"),
    "state deleted": (_remove(_STATE), "STATE_BEHIND"),
}


@pytest.mark.parametrize("lost", UNKNOWABLE)
def test_what_nobody_can_know(lost: str, aged: Snapshot, spark: SparkSession) -> None:
    """Without the ledger nobody knows which files are in the table: repair refuses too, and both of its ways work:
    a backup of the state folder, and everything from the start."""
    scene = aged.restore()
    harm, code = UNKNOWABLE[lost]
    kept = {path: path.read_bytes() for path in scene.state.rglob("*") if path.is_file()}
    harm(scene)
    check_refused(scene, code)
    for dry_run in (True, False):
        before = tree_of(scene.root / "data/warehouse")
        with pytest.raises(DisagreementError, match="it is unknown which files are in the table") as refused:
            repair(scene, dry_run=dry_run)
        assert f"tidegate repair {NAME} --rebuild" in str(refused.value.fix) and refused.value.exit_code == 78
        assert tree_of(scene.root / "data/warehouse") == before

    if lost == "state deleted":  # from here on both ways are the same for all
        shutil.rmtree(scene.state, ignore_errors=True)
        for path, data in kept.items():  # the first way: the backup comes back
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        scene.offer()
        scene.catch_up(spark)

        scene = aged.restore()
        harm(scene)
        scene.call("repair", NAME, "--rebuild")
        scene.catch_up(spark)


def test_repair_sets_data_files_aside_that_the_log_does_not_hold(owing: Snapshot, spark: SparkSession) -> None:
    """As a publish that was never committed leaves them, or a repair killed while it took quarantined records back."""
    scene = owing.restore()
    _remove(f"{_STATE}/manifests")(scene)
    copies = []
    for folder in (scene.table, scene.quarantine):
        file = sorted(folder.rglob("part-*.parquet"))[0]
        copies.append(file.with_name(re.sub(r"[0-9a-f]{12}", "deadbeef0000", file.name)))
        assert copies[-1] != file
        shutil.copy(file, copies[-1])
    assert "back up 2 data files" in str(repair(scene, dry_run=True)["actions"])
    assert all(copy.exists() for copy in copies)
    repair(scene)
    scene.catch_up(spark)
    assert not any(copy.exists() for copy in copies)
    kept = {path.name for path in scene.state.rglob("set_aside/*/*/**/*.parquet")}
    assert {copy.name for copy in copies} <= kept


@pytest.mark.parametrize("harm", ["table deleted while owed", "manifests and checkpoint deleted"])
def test_repair_killed(harm: str, owing: Snapshot, spark: SparkSession) -> None:
    """Killed at its N-th step: what disagreed is still found, and the next repair completes it."""
    act, _ = OWING_HARMS[harm]
    scene = owing.restore()
    act(scene)
    harmed = scene.save(owing.folder.with_name(f"harmed-{harm.replace(' ', '-')}"))
    scene.tidegate("repair", NAME, fault="1000000|kill")
    total = len(scene.steps())
    for number in sweep(total, 2):
        scene = harmed.restore()
        scene.tidegate("repair", NAME, fault=f"{number}|kill", expect=-signal.SIGKILL)
        step = scene.steps()[number - 1]
        try:
            scene.check_readers_now()
            scene.call("repair", NAME)
            scene.catch_up(spark)
        except AssertionError as error:
            raise AssertionError(f"killed at step {number} of {total}: {step}\n{error}") from error


def test_everything_of_an_older_backup(aged: Snapshot, java: Java, spark: SparkSession) -> None:
    """Table, quarantine and state of one moment fit together: what came after it is read again, without a question."""
    scene = aged.restore()
    for name in ("warehouse", "quarantine", "state"):
        _put_back(name)(scene)
    assert scene.report("run", NAME)["outcome"] == "published"
    scene.catch_up(spark)
