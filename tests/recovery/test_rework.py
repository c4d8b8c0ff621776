"""A refresh that replaces columns, and a backfill of two intervals of which the gate holds one: killed, and frozen
and overtaken, at each storage call of the command and of the driver, with Spark.

The commands are processes of the model (tests/model/processes.py), so that they share one Spark session; the calls of
the driver's thread count like those of the command.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from tests.model import processes
from tests.model.processes import Process, Stop, patch_storage
from tests.model.world import NoThread
from tests.recovery.views import view_of
from tests.support.project import in_session
from tests.support.readers import Rows, canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.scene import NAME, SUITE, Scene, Snapshot, make_scene
from tests.support.sweep import sweep
from tidegate.core.errors import HeldError, TidegateError, TryAgainError
from tidegate.rework.backfill import intervals
from tidegate.rework.backfill.command import backfill_table, refresh_table
from tidegate.rework.backfill.held import decide_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUN = "rework"
_TRANSFORM = "from pyspark.sql import functions as F\n\n\ndef transform(orders):\n    return orders.{}\n"
_FEW_ROWS = """\
  - {type: expect_table_row_count_to_be_between, kwargs: {max_value: 10}, severity: critical, meta: {rule: few_rows}}
"""


def without_day(rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name != "day"} for row in rows]


@dataclass
class Reworked(Scene, ABC):
    """A pipeline whose transform was edited after two runs; a third file was not read yet. Each file has rows of one
    day, those of the second day most."""

    before: ClassVar[str]
    after: ClassVar[str]
    read: ClassVar[int]
    """How many records the work reads."""
    days: dict[str, int] = field(default_factory=dict)
    """The day of the rows of each file."""

    def offer(self, rows: int = 0, *, tag: str = "") -> Any:
        day = 1 + self.files % 3
        rows = rows or (12 if day == 2 else 6)
        path = super().offer(rows, tag=tag)
        path.write_text(re.sub("2026-01-0.", f"2026-01-0{day}", path.read_text()))
        self.days[path.stem] = day
        return path

    def edit(self, transform: str) -> None:
        self.write("jobs/orders/transform.py", _TRANSFORM.format(transform))

    @abstractmethod
    def row(self, key: str) -> dict[str, Any]:
        """The row of a record, as the edited transform makes it."""

    def old_row(self, key: str) -> dict[str, Any]:
        """The row of a record, as the first transform made it."""
        return {"id": key, "amount": self.good[key]}

    def prepare(self, spark: SparkSession) -> None:
        """What happens before the command."""
        self.edit(self.after)

    @abstractmethod
    def command(self, spark: SparkSession) -> Any:
        """Carry out the work."""

    @abstractmethod
    def complete(self, spark: SparkSession) -> Any:
        """The rest of the work, by another process."""

    def day_of(self, key: str) -> int:
        return self.days[key[1:].rpartition("-")[0]]

    @abstractmethod
    def check_now(self, taken: set[str]) -> None:
        """Readers by the log see all rows of the two runs, with the old or with the new columns; others none twice."""

    def check_rows(self, wanted: list[dict[str, Any]], spark: SparkSession | None = None) -> None:
        found, expected = canonical(without_day(read_agreed(self.table, spark))), canonical(wanted)
        assert found == expected, f"missing {expected - found}, too many {found - expected}"
        aside = Counter(re.findall(r"[mr]\d{4}", " ".join(row["raw"] for row in read_agreed(self.quarantine, spark))))
        assert aside == Counter([*self.malformed, *self.rejected])


@dataclass
class NewColumns(Reworked):
    """Refreshed: one column is renamed and widened, one is dropped."""

    read = 22
    before = "withColumn('gone', F.lit(1))"
    after = "select('id', F.col('amount').cast('BIGINT').alias('figure'), 'day')"

    def edit(self, transform: str) -> None:
        super().edit(transform)
        self.write("expectations/orders.yaml", SUITE.replace("column: amount", "column: figure"))

    def row(self, key: str) -> dict[str, Any]:
        return {"id": key, "figure": self.good[key]}

    def old_row(self, key: str) -> dict[str, Any]:
        return {"id": key, "amount": self.good[key], "gone": 1}

    def command(self, spark: SparkSession) -> Any:
        return refresh_table(self.project, NAME, _RUN, submit=in_session(spark))

    complete = command

    def check_now(self, taken: set[str]) -> None:
        wanted = [canonical([make(key) for key in taken]) for make in (self.row, self.old_row)]
        assert canonical(without_day(read_with_deltalake(self.table))) in wanted
        plain = canonical(without_day(read_with_duckdb(self.table)))
        assert any(plain <= one for one in wanted), f"plain readers see {plain}"


@dataclass
class HeldDay(Reworked):
    """Backfilled: two days are rebuilt one after the other, and the gate holds the second one."""

    read = 18
    rebuilt: ClassVar[list[set[int]]] = [set(), {1}]
    """The days that may be rebuilt while the command runs."""
    before = "withColumn('n', F.lit(1))"
    after = "withColumn('n', F.lit(2))"

    def edit(self, transform: str) -> None:
        super().edit(transform)
        self.write("expectations/orders.yaml", SUITE + _FEW_ROWS)

    def row(self, key: str) -> dict[str, Any]:
        return {**super().old_row(key), "n": 2}

    def old_row(self, key: str) -> dict[str, Any]:
        return {**super().old_row(key), "n": 1}

    def command(self, spark: SparkSession) -> Any:
        days = Wanted("2026-01-01", "2026-01-02")
        return backfill_table(self.project, NAME, _RUN, days, submit=in_session(spark))

    def complete(self, spark: SparkSession) -> Any:
        report = load_report(self.project.paths(NAME), _RUN)
        if report is None or report.outcome in (None, "failed"):
            with pytest.raises(HeldError):
                self.command(spark)
        return decide_backfill(self.project, NAME, _RUN, Answer("release", "known"), submit=in_session(spark))

    def check_now(self, taken: set[str]) -> None:
        for read in (read_with_deltalake, read_with_duckdb):
            seen = Counter((row["id"], row["n"]) for row in read(self.table))
            old = {key for key, n in seen if n == 1}
            new = {key for key, n in seen if n == 2}
            assert max(seen.values()) == 1 and not old & new and old | new <= taken
            if read is read_with_deltalake:
                assert old | new == taken and {self.day_of(key) for key in new} in self.rebuilt
            assert any({self.day_of(key) for key in new} <= days for days in self.rebuilt), "rows that the gate holds"


@dataclass
class Released(HeldDay):
    """The decision on the day that is held."""

    rebuilt: ClassVar[list[set[int]]] = [{1}, {1, 2}]

    def prepare(self, spark: SparkSession) -> None:
        super().prepare(spark)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(HeldError):
            patch.setattr(intervals, "_BYTES_AT_ONCE", 0)
            super().command(spark)

    def command(self, spark: SparkSession) -> Any:
        return decide_backfill(self.project, NAME, _RUN, Answer("release", "known"), submit=in_session(spark))

    complete = command


class Published:
    """Of each kind one whose transform was edited after two runs, made when it is first asked for."""

    def __init__(self, factory: pytest.TempPathFactory, spark: SparkSession) -> None:
        self._factory, self._spark = factory, spark
        self._made: dict[type[Reworked], Snapshot] = {}

    def restore(self, kind: type[Reworked]) -> Any:
        if kind not in self._made:
            folder = self._factory.mktemp(kind.__name__)
            plain = make_scene(folder / "live")
            scene = kind(plain.root)
            scene.job.joinpath("pipeline.yaml").open("a").write("transform: transform.py\n")
            scene.write("jobs/orders/transform.py", _TRANSFORM.format(kind.before))
            for number in range(2):
                scene.offer()
                scene.run(f"run-{number}", submit=in_session(self._spark))
            scene.offer()
            scene.prepare(self._spark)
            self._made[kind] = scene.save(folder / "published")
        return self._made[kind].restore()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Published:
    """The prepared scenes."""
    return Published(tmp_path_factory, spark)


class Command(Process):
    """A process whose driver calls back in a thread of Spark's."""

    @property
    def is_running(self) -> bool:
        """Whether a thread of it may make storage calls."""
        return self.state != "stopped" and self._thread is not None and self._thread.is_alive()

    def kill(self) -> None:
        super().kill()
        if self._thread is not None:
            self._thread.join()

    def _die_if_killed(self) -> None:
        if threading.current_thread() is not self._thread and self.state == "killed":
            raise RuntimeError("killed")  # py4j answers Spark for an Exception only
        super()._die_if_killed()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Starts a command: ``start(work, stop)``."""
    started: list[Command] = []

    def current() -> Process | None:
        mine = getattr(processes._here, "process", None)
        if mine is not None or threading.current_thread() is threading.main_thread():
            return mine
        return next((one for one in started if one.is_running), None)

    monkeypatch.setattr(processes, "current", current)
    monkeypatch.setattr(intervals, "_BYTES_AT_ONCE", 0)
    # Whoever asks for the lease finds its holder dead or silent for long.
    monkeypatch.setattr("tidegate.state.lease.threading", SimpleNamespace(**{**vars(threading), "Thread": NoThread}))
    monkeypatch.setattr("tidegate.state.lease.is_dead", lambda *holder: True)
    patch_storage(monkeypatch, tmp_path_factory.getbasetemp(), lambda *call: None)

    def start(work: Callable[[], Any], stop: Stop | None = None) -> Process:
        process = Command(_RUN)
        started[:] = [process]
        process.start(work, stop)
        return process

    return start


KINDS = [NewColumns, HeldDay, Released]
_COUNTED: dict[type[Reworked], list[int]] = {}


def points(kind: type[Reworked], published: Published, start: Any, spark: SparkSession) -> list[int]:
    """The storage calls of the command, without syncs: files are the same before and after them."""
    if kind not in _COUNTED:
        scene = published.restore(kind)
        process = start(lambda: scene.command(spark))
        assert process.error is None or isinstance(process.error, HeldError), process.error
        _COUNTED[kind] = sweep(sum(not call.startswith("fsync ") for call in process.calls), 2)
    return _COUNTED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_killed(kind: type[Reworked], published: Published, start: Any, spark: SparkSession) -> None:
    failures = []
    for point in points(kind, published, start, spark):
        scene = published.restore(kind)
        taken = {key for key in scene.good if scene.day_of(key) < 3}
        process = start(lambda scene=scene: scene.command(spark), Stop(nth=point, counts_syncs=False))
        where = f"killed at {point}: {process.calls[-1]}"
        try:
            assert process.state == "stopped", "was not reached"
            process.kill()
            scene.check_now(taken)
            if point % 2:
                run_live(scene, spark)
            finish(scene, spark)
        except (AssertionError, TidegateError) as error:
            failures.append(f"{where}\n{error!r}")
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen(kind: type[Reworked], published: Published, start: Any, spark: SparkSession) -> None:
    failures = []
    for point in points(kind, published, start, spark):
        scene = published.restore(kind)
        taken = {key for key in scene.good if scene.day_of(key) < 3}
        process = start(lambda scene=scene: scene.command(spark), Stop(nth=point, counts_syncs=False))
        where = f"frozen at {point}: {process.calls[-1]}"
        if spark.streams.active:  # a frozen driver would keep the name of its query in the session that all share
            process.kill()
            continue
        try:
            assert process.state == "stopped", "was not reached"
            scene.check_now(taken)
            if point % 2:
                run_live(scene, spark)
            report = finish(scene, spark)
            seen = view_of(scene)
            process.thaw()
            assert process.error is None or isinstance(process.error, TryAgainError | HeldError), repr(process.error)
            assert view_of(scene) == seen, "the thawed command changed what a reader sees"
            stored = load_report(scene.project.paths(NAME), _RUN)
            assert stored is not None and stored.to_json() == report
            read_more(scene, spark)
        except (AssertionError, TidegateError) as error:
            failures.append(f"{where}: {process.calls[point - 1 :]}\n{error!r}")
            process.kill()
    assert not failures, "\n\n".join(failures)


def run_live(scene: Reworked, spark: SparkSession) -> None:
    """A live run, which is refused as long as its rows have other columns than the table."""
    try:
        scene.run(submit=in_session(spark))
    except TidegateError as error:
        assert error.code == "SCHEMA_CHANGE", error


def finish(scene: Reworked, spark: SparkSession) -> Any:
    """The work is completed, then a live run reads what is new; everything is there, once. Returns the report."""
    report = scene.complete(spark)
    assert (report["outcome"], report["rows"]["read"]) == ("published", scene.read), report
    assert report["rows"]["published"] == 18 and report["table"]["rows_removed"] == 18, report
    read_more(scene, spark)
    left = [one for name in ("intents", "staging") for one in (scene.state / name).rglob("[!.]*.parquet")]
    # What a stopped process was about to remove of its attempt stays until maintenance, and is not held.
    assert not [*left, *(scene.state / "backfills").rglob("held.json")]
    assert scene.complete(spark) == report, "a retry"
    return report


def read_more(scene: Reworked, spark: SparkSession) -> None:
    """A live run reads another file; everything that was offered is there, once."""
    scene.offer(2)
    scene.run(submit=in_session(spark))
    scene.check_rows([scene.row(key) for key in scene.good], spark)
    assert scene.run(submit=in_session(spark))["outcome"] == "nothing_new"
