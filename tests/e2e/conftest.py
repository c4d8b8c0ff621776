"""One pipeline on files and the real command line: what was offered is in the table or in quarantine, once, intact.

A test writes files whose records have ids of its own choosing, and says where each of them belongs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.readers import canonical, read_agreed
from tests.support.scene import NAME, Scene
from tidegate.runs.recovery.context import Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_RULE = """\
  - type: expect_column_values_to_be_between
    kwargs: {column: amount, min_value: 0, max_value: 1000}
    severity: critical
    meta: {rule: amount_in_range, on_failure: quarantine}
"""


@dataclass
class Pipeline(Scene):
    """A project with one pipeline, and what of the offered records belongs where."""

    spark: SparkSession | None = field(default=None, kw_only=True, repr=False)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """What the table must hold, whole rows."""
    aside: Counter[tuple[str, str | None, str]] = field(default_factory=Counter)
    """What quarantine must hold: (position as JSON, raw, reason)."""

    def run(self, run_id: str | None = None, *, submit: Submit | None = None) -> dict[str, Any]:
        """One run, in the shared session unless ``submit`` is another; its report. What is a matter of the command
        line or of spark-submit, a test runs with :meth:`tidegate` and :meth:`report`."""
        if submit is None:
            assert self.spark is not None, "the pipeline was made without a session"
            submit = in_session(self.spark)
        return super().run(run_id, submit=submit)

    def put(self, name: str | bytes, content: str | bytes, *, mtime: float | None = None) -> str:
        """Write a file under its name, at once whole; its path as reports name it."""
        folder = os.fsencode(self.inbox)
        path = os.path.join(folder, os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        hidden = os.path.join(folder, b"._being_written")
        with open(hidden, "wb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
        os.rename(hidden, path)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return "data/inbox/" + os.fsdecode(name)

    def expect_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """These rows belong into the table."""
        self.rows += [dict(row) for row in rows]

    def expect_aside(
        self,
        file: str | None,
        number: int | None,
        raw: str | None,
        reason: str = "malformed",
        times: int = 1,
        unit: str = "line",
    ) -> None:
        """This record belongs into quarantine, with this position (None: it cannot be told)."""
        self.aside[(position_key(file, number, unit), raw, reason)] += times

    def check(self) -> list[dict[str, Any]]:
        """The table holds the rows, quarantine the rest, each once, for every reader. Returns the quarantine's rows."""
        assert_same(canonical(read_agreed(self.table)), canonical(self.rows), "the table")
        aside = read_agreed(self.quarantine) if self.quarantine.exists() else []
        found = Counter(
            (json.dumps(json.loads(row["position"])) if row["position"] else "null", row["raw"], row["reason"])
            for row in aside
        )
        assert_same(found, self.aside, "quarantine")
        return aside

    def details(self) -> dict[str, str]:
        """What quarantine says of each record: {raw: detail}."""
        return {str(row["raw"]): row["detail"] for row in read_agreed(self.quarantine)}

    def write_spec(self, source: str, *, more: str = "") -> None:
        """pipeline.yaml with the one source ``orders`` (its keys, one a line) and further top-level lines. What the
        tests write is whole, also where it does not end in a line break."""
        if "settle:" not in source:
            source = f"{source.strip()}\nsettle: 0 seconds"
        lines = "".join(f"    {line}\n" for line in source.strip().splitlines())
        (self.root / "jobs" / NAME / "pipeline.yaml").write_text(
            f"version: 1\nname: {NAME}\nschedule: null\nsources:\n  orders:\n    type: files\n{lines}{more}"
        )

    def write_transform(self, text: str, name: str = "transform.py") -> Path:
        """The transform's file."""
        path = self.root / "jobs" / NAME / name
        path.write_text(text)
        return path

    def write_suite(self, expectations: str) -> None:
        """The suite, from the lines of its expectations."""
        (self.root / "expectations" / f"{NAME}.yaml").write_text(f"name: {NAME}\nexpectations:\n{expectations}")


def position_key(file: str | None, number: int | None, unit: str = "line") -> str:
    """A position as the tests compare it."""
    if file is None:
        return "null"
    return json.dumps({"file": file} if number is None else {"file": file, unit: number})


def assert_same(found: Counter[Any], wanted: Counter[Any], where: str) -> None:
    """Two multisets are one, or the differences are named."""
    missing, extra = wanted - found, found - wanted
    assert not missing and not extra, (
        f"{where} lacks {missing.total()}: {_some(missing)}\nand has {extra.total()} that do not belong: {_some(extra)}"
    )


def _some(records: Counter[Any]) -> str:
    return "\n   ".join(str(record)[:300] for record in list(records)[:5])


MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make_pipeline(tmp_path: Path, spark: SparkSession) -> MakePipeline:
    """Makes a project with one pipeline: ``make_pipeline(source_keys, more=..., rules=..., transform=...)``."""

    def make(source: str, *, more: str = "", rules: str | None = None, transform: str | None = None) -> Pipeline:
        root = tmp_path / "project"
        pipeline = Pipeline(root, spark=spark)
        pipeline.create()
        if transform is not None:
            pipeline.write_transform(transform)
            more = "transform: transform.py\n" + more
        pipeline.write_spec(source, more=more)
        if rules is not None:
            pipeline.write_suite(rules)
        return pipeline

    return make
