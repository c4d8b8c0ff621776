"""A published table without Spark, and a foreach sink on it that writes down what it is given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.staged import Stager, make_paths
from tidegate.runs.deliver import describe_sinks
from tidegate.sinks.feed import Feeder, begin_sink, feed_sink, raise_numbers
from tidegate.sinks.foreach import ForeachFeeder
from tidegate.spec.models import ForeachSink, PipelineSpec
from tidegate.table.log.state import TableState, read_table_state
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent

SINK = ForeachSink(type="foreach", writer="sinks.py:Writer")
WRITER = """\
import json
from pathlib import Path

HERE = Path(__file__).parent

class Writer:
    def open(self, partition_id, epoch_id):
        self.out = (HERE / "fed.jsonl").open("a")
        self.done = 0
        return True

    def process(self, row):
        if (HERE / "fail").exists() and self.done == int((HERE / "fail").read_text()):
            raise ValueError(f"no more than {self.done}")
        self.done += 1
        self.out.write(json.dumps([row.id, row._version, row._run_id]) + "\\n")

    def close(self, error):
        self.out.close()
        (HERE / "closed").write_text(repr(error))
"""


class Bench:
    """A table that gets a version per call of ``publish``, and one foreach sink that writes down what it is given."""

    def __init__(self, root: Path) -> None:
        self.paths = make_paths(root)
        self.paths.job.mkdir(parents=True)
        (self.paths.job / "sinks.py").write_text(WRITER)
        self.stager = Stager(self.paths, {"id": "long", "day": "date"}, ["day"])
        self.batches = 0
        self.offered: dict[int, int] = {}
        """id -> version"""

    def publish(self, rows: int = 4, outcome: str = "published", **more: Any) -> int:
        """One more version; its number."""
        ids = [self.batches * 100 + number for number in range(rows)]
        content = [{"id": key, "day": f"2026-01-0{1 + key % 2}", **more} for key in ids]
        version = self.publish_rows(content, outcome)
        if outcome == "published":
            self.offered |= dict.fromkeys(ids, version)
        return version

    def publish_rows(self, content: list[dict[str, Any]], outcome: str = "published") -> int:
        """One more version with these rows; its number."""
        manifest = self.stager.stage(self.batches, content)
        intent = plan_publish(
            [manifest],
            run_id=f"run-{self.batches}",
            partition_by=self.stager.partition_by,
            app_version_before=self.batches - 1,
            discard=outcome == "discarded",
            custom_metadata={"tidegate.outcome": outcome},
        )
        version = finish_intent(self.paths, write_intent(self.paths, intent), is_current=lambda: True).version
        assert version is not None
        self.batches += 1
        return version

    def table(self) -> TableState | None:
        return read_table_state(self.paths.table)

    def begin(self) -> None:
        begin_sink(self.paths, SINK.name, self.table(), "begin")

    def feed(self, check_lease: Callable[[], None] = lambda: None, make: Callable[[], Feeder] | None = None) -> None:
        """What a run does."""
        table = self.table()
        begin_sink(self.paths, SINK.name, table, "feeder")
        if table is None:
            return
        table = raise_numbers(self.paths, table)
        maker = make or partial(ForeachFeeder, SINK, self.paths, table.schema_json)
        feed_sink(self.paths, SINK, table, maker, run_id="feeder", check_lease=check_lease)

    def had(self) -> int | None:
        """The number of the last version that the sink has had, as reports have it."""
        spec = PipelineSpec.construct(sinks=[SINK])
        (state,) = describe_sinks(self.paths, spec)
        return state["version"]

    def fed(self) -> list[tuple[int, int, str]]:
        """(id, version, run id) in the order in which the sink had them."""
        path = self.paths.job / "fed.jsonl"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def check(self) -> None:
        """Every offered row was fed, with its version and run, and versions came in order."""
        assert {key: version for key, version, _ in self.fed()} == self.offered
        assert all(run_id == f"run-{key // 100}" for key, _, run_id in self.fed())
        versions = [version for _, version, _ in self.fed()]
        assert versions == sorted(versions)

    def repeated(self) -> set[int]:
        """The versions of rows that came more than once."""
        return {self.offered[key] for key, count in Counter(key for key, _, _ in self.fed()).items() if count > 1}
