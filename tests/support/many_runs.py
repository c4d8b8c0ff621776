"""A project with many pipelines that have run many times, made without a run: for pages that show them.

    python -m tests.support.many_runs FOLDER [PIPELINES] [RUNS]

The first pipelines have one special thing each (:data:`SCENES`), the others are well. What reports say is made up, and
adds up as a run's would.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.staged import QUERY, make_schema
from tidegate.core.outputs import RowKey
from tidegate.core.paths import PipelinePaths, encode_run_id
from tidegate.core.storage import dump_json
from tidegate.runs.reports.report import new_report
from tidegate.spec.project import Project, load_project
from tidegate.table.quarantined import QUARANTINE_SCHEMA_JSON

SCENES = (
    "held",
    "failing",
    "behind",
    "broken",
    "fresh",
    "torn",
    "windows",
    "running",
    "late",
    "odd",
)
"""What is special about the first pipelines, in their order."""
RULES = {
    "id_present": ("expect_column_values_to_not_be_null", "critical", {"column": "order_id"}, False),
    "amount_positive": (
        "expect_column_values_to_be_between",
        "critical",
        {"column": "amount", "min_value": 0},
        True,
    ),
    "currency_known": (
        "expect_column_values_to_be_in_set",
        "warning",
        {"column": "currency", "value_set": ["EUR", "USD", "GBP"]},
        True,
    ),
    "rows_expected": ("expect_table_row_count_to_be_between", "warning", {"min_value": 100}, False),
    "mean_amount": (
        "expect_column_mean_to_be_between",
        "info",
        {"column": "amount", "min_value": 20, "max_value": 60},
        False,
    ),
}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></script>"
_SUBJECTS = ("orders", "clicks", "payments", "sessions", "stock", "prices", "devices", "returns", "ads", "baskets")
_COLUMNS = "order_id STRING, amount DOUBLE, currency STRING, day DATE"
_INTERVAL = timedelta(minutes=10)


@dataclass(frozen=True)
class Made:
    """The project and the names of its pipelines, by what is special about them."""

    project: Project
    scenes: dict[str, str]


def make_many(root: Path, pipelines: int = 12, runs: int = 60, *, kafka_share: float = 0.4, seed: int = 7) -> Made:
    """The project below ``root``, which must not be there; the brokers are none."""
    dice = random.Random(seed)
    now = datetime.now(UTC).replace(microsecond=0)
    root.mkdir(parents=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "expectations").mkdir()
    project = load_project(root, {})
    scenes: dict[str, str] = {}
    for number in range(pipelines):
        scene = SCENES[number] if number < len(SCENES) else "well"
        name = f"{_SUBJECTS[number % len(_SUBJECTS)]}_{number:03d}"
        scenes.setdefault(scene, name)
        _Maker(project, name, scene, random.Random(dice.random()), now, kafka_share).make(
            0 if scene == "fresh" else runs
        )
    return Made(project, scenes)


class _Maker:
    """One pipeline on its way."""

    def __init__(
        self, project: Project, name: str, scene: str, dice: random.Random, now: datetime, kafka_share: float
    ) -> None:
        self.project, self.name, self.scene, self.dice, self.now = project, name, scene, dice, now
        self.paths: PipelinePaths = project.paths(name)
        self.version = -1
        self.files: list[dict[str, Any]] = []
        self.base = dice.choice([400, 2_500, 12_000, 90_000])
        self.has_kafka = dice.random() < kafka_share

    def make(self, runs: int) -> None:
        """Spec, suite, reports, table, quarantine."""
        self._write_spec()
        self.paths.runs.mkdir(parents=True)
        (self.project.root / "data" / "inbox" / self.name).mkdir(parents=True)
        (self.paths.table / "_delta_log").mkdir(parents=True)
        lag = timedelta(hours=9) if self.scene == "behind" else timedelta(minutes=3)
        for number in range(runs):
            began = self.now - lag - _INTERVAL * (runs - 1 - number)
            self._write_run(number, began, is_last=number == runs - 1)
        if runs:
            self._write_quarantine()
        if self.scene == "torn" and runs > 2:
            newest = sorted(self.paths.runs.glob("*.json"))
            newest[-1].write_text(newest[-1].read_text()[:300])
            newest[-3].write_text(json.dumps({"pipeline": self.name, "of_another_version": True}))

    def _write_spec(self) -> None:
        self.paths.job.mkdir(parents=True)
        source = (
            f"{{type: kafka, topics: [{self.name}], format: json, schema: '{_COLUMNS}'}}"
            if self.has_kafka
            else f"{{type: files, path: data/inbox/{self.name}, format: json, schema: '{_COLUMNS}'}}"
        )
        second = (
            "  rates: {type: files, path: data/inbox/rates, format: csv, schema: 'currency STRING, rate DOUBLE'}\n"
            if self.scene in ("windows", "held")
            else ""
        )
        text = (
            f"version: 1\nname: {self.name}\ndescription: Rows of {self.name.replace('_', ' ')}, as they come in.\n"
            f'owner: shop-data\ntags: [example]\nschedule: "*/10 * * * *"\nsources:\n  incoming: {source}\n{second}'
            "quality: {on_critical: hold, max_quarantine_share: 0.2}\ntable: {partition_by: [day]}\n"
        )
        if second:
            text += "transform: transform.py\n"
            transform = "def transform(incoming, rates):\n    return incoming.join(rates, 'currency')\n"
            (self.paths.job / "transform.py").write_text(transform)
        if self.scene == "broken":
            text = text.replace("format: json", "format: jason").replace("owner:", "ownr:")
        if self.scene == "late":
            text += f"sinks: [{{type: kafka, topic: {self.name}-out}}]\n"
        (self.paths.job / "pipeline.yaml").write_text(text)
        rules = [
            {"type": kind, "kwargs": kwargs, "severity": severity, "meta": {"rule": rule}}
            | ({"meta": {"rule": rule, "on_failure": "quarantine"}} if quarantines else {})
            for rule, (kind, severity, kwargs, quarantines) in RULES.items()
        ]
        suite = {"name": self.name, "expectations": rules}
        (self.project.root / "expectations" / f"{self.name}.yaml").write_text(json.dumps(suite))

    def _write_run(self, number: int, began: datetime, *, is_last: bool) -> None:
        dice = self.dice
        run_id = f"scheduled__{began.isoformat()}"
        report: dict[str, Any] = dict(new_report(self.name, run_id).to_json())
        report["started_at"] = began.isoformat(timespec="milliseconds")
        seconds = {"ingest": 9 + dice.random() * 8, "audit": 1.5 + dice.random(), "publish": 0.3 + dice.random() * 0.4}
        ended = began + timedelta(seconds=sum(seconds.values()) + 3)
        report |= {"ended_at": ended.isoformat(timespec="milliseconds"), "duration_seconds": seconds}
        outcome = "published"
        if dice.random() < 0.12 and not is_last:
            outcome = "nothing_new"
        elif self.scene == "failing" and (is_last or dice.random() < 0.1):
            outcome = "failed"
        elif self.scene == "held" and is_last:
            outcome = "held"
        if outcome == "nothing_new":
            report["duration_seconds"] = {"ingest": 0.2}
        else:
            self._fill(report, outcome, number)
        report["outcome"] = outcome
        if outcome == "failed":
            report["error"] = {
                "code": "SOURCE_UNREACHABLE",
                "message": "the broker localhost:9092 does not answer: Connection refused (after 6 s)",
                "where": f"source incoming of pipeline {self.name}",
                "next_run": "the next run reads these records",
                "fix": "start the broker, or correct kafka.bootstrap_servers in tidegate.yaml",
                "exit_code": 75,
            }
        if self.scene == "running" and is_last:
            report |= {"outcome": None, "ended_at": None}
            report["rows"] |= {"published": 0}
            report["table"] = {}
        if self.scene == "odd" and is_last:
            report["notes"] = [HOSTILE, "a second note"]
            report["error"] = {"code": HOSTILE, "message": HOSTILE, "fix": HOSTILE, "where": None, "exit_code": 70}
            report["decision"] = {"decision": "release", "who": HOSTILE, "reason": HOSTILE, "at": report["ended_at"]}
        name = encode_run_id(run_id)
        (self.paths.runs / f"{name}.json").write_bytes(dump_json(report))
        if is_last:
            lines = "".join(json.dumps(event) + "\n" for event in _list_progress(report, began))
            (self.paths.runs / f"{name}.progress.jsonl").write_text(lines)

    def _fill(self, report: dict[str, Any], outcome: str, number: int) -> None:
        dice = self.dice
        read = int(self.base * (0.6 + dice.random() * 0.8) * (3 if number % 37 == 5 else 1))
        rows: dict[RowKey, int] = dict.fromkeys(report["rows"], 0)
        bad = 0.3 if self.scene == "held" and outcome == "held" else 0.004
        rows["read"], rows["malformed"] = read, int(read * bad * dice.random())
        rows["entered"] = read - rows["malformed"]
        if self.scene in ("windows", "late"):
            rows["late"], rows["duplicates"] = int(read * 0.01 * dice.random()), int(read * 0.02 * dice.random())
        left = rows["entered"] - rows["late"] - rows["duplicates"]
        rows["transformed"] = left // 40 if self.scene == "windows" else int(left * (0.93 + dice.random() * 0.07))
        rows["rejected"] = int(rows["transformed"] * 0.006 * dice.random() * (6 if outcome == "held" else 1))
        rows["staged"] = rows["transformed"] - rows["rejected"]
        if outcome == "published":
            rows["published"] = rows["staged"]
        share = read // 3 if self.scene in ("windows", "held") else 0
        source: dict[str, Any] = {"rows": read - share, "malformed": rows["malformed"]}
        if self.has_kafka:
            source["offsets"] = {self.name: {str(p): [number * 1000, number * 1000 + read // 3] for p in range(3)}}
            source["pending_offsets"] = 0
        else:
            source |= {"files": dice.randint(1, 40), "bytes": read * 180}
        report["sources"] = {"incoming": source}
        if share:
            report["sources"]["rates"] = {"rows": share, "malformed": 0, "files": 1, "bytes": share * 30}
        report["rows"], report["batches"] = rows, 1 + read // 30_000
        started = datetime.fromisoformat(report["started_at"])
        if self.scene in ("windows", "late"):
            report["watermark"] = (started - timedelta(minutes=25)).isoformat(timespec="milliseconds")
        fails, warns = outcome == "held", number % 9 == 4
        offending = {"amount_positive": rows["rejected"]}
        observed = {"rows_expected": rows["staged"], "mean_amount": round(41.5 + dice.random() * 4, 2)}
        report["quality"] = {
            "suite": self.name,
            "verdict": "failed" if fails else "warned" if warns else "passed",
            "results": [
                {
                    "rule": rule,
                    "type": kind,
                    "severity": severity,
                    "success": rule != ("amount_positive" if fails else "rows_expected" if warns else ""),
                    "unexpected_count": offending.get(rule, 0) if "values" in kind else None,
                    "observed_value": observed.get(rule),
                }
                for rule, (kind, severity, _, _) in RULES.items()
            ],
        }
        if outcome == "published":
            self._commit(report, rows["staged"], started)
        if fails:
            verdict = {
                "kind": "verdict",
                "run_id": report["run_id"],
                "batches": [[QUERY, number]],
                "quality": report["quality"],
                "failed_critical": ["amount_positive"],
                "reasons": [f"amount_positive: {rows['rejected']:,} of {rows['staged']:,} rows are below 0"],
                "at": report["ended_at"],
                "folds": [],
                "rules": "",
            }
            self.paths.verdicts.mkdir(parents=True, exist_ok=True)
            (self.paths.verdict(report["run_id"])).write_bytes(dump_json(verdict))

    def _commit(self, report: dict[str, Any], rows: int, at: datetime) -> None:
        self.version += 1
        actions: list[dict[str, Any]] = []
        if self.version == 0:
            schema = make_schema(order_id="string", amount="double", currency="string", day="date")
            actions += _begin_table(schema, ["day"])
        day, at_ms = f"{at:%Y-%m-%d}", int(at.timestamp() * 1000)
        actions.append(_add(f"day={day}/part-{self.version:05d}.parquet", rows, {"day": day}, at_ms))
        actions.append({"txn": {"appId": QUERY, "version": self.version}})
        info = {"timestamp": at_ms, "operation": "WRITE", "tidegate.run_id": report["run_id"]}
        actions.append({"commitInfo": info})
        log = self.paths.table / "_delta_log" / f"{self.version:020d}.json"
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        report["table"] = {
            "path": str(self.paths.table), "version": self.version, "files_added": 1, "files_removed": 0,
            "rows_added": rows, "rows_removed": 0,
        }  # fmt: skip

    def _write_quarantine(self) -> None:
        folder = self.paths.quarantine
        (folder / "_delta_log").mkdir(parents=True)
        run_id = f"scheduled__{(self.now - timedelta(hours=1)).isoformat()}"
        reasons = [
            ("malformed", "amount: 'abc' is not a DOUBLE", '{"order_id": "o-1", "amount": "abc"}', 37),
            ("malformed", "the line is not JSON", HOSTILE, 12),
            ("amount_positive", "amount is below 0", '{"order_id": "o-2", "amount": -3}', 21),
            ("currency_known", "currency is not one of EUR, USD, GBP", '{"order_id": "o-3", "currency": "XXX"}', 9),
        ]
        rows = [
            {
                "pipeline": self.name,
                "run_id": run_id,
                "source": "incoming",
                "position": json.dumps({"file": f"data/inbox/{self.name}/1.json", "line": number}),
                "raw": raw,
                "reason": reason,
                "detail": detail,
                "quarantined_at": self.now - timedelta(hours=1),
            }
            for reason, detail, raw, count in reasons
            for number in range(count)
        ]
        texts = [(name, pa.string()) for name in list(rows[0]) if name != "quarantined_at"]
        schema = pa.schema([*texts, ("quarantined_at", pa.timestamp("us", tz="UTC"))])
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / "part-0.parquet")
        actions = [*_begin_table(QUARANTINE_SCHEMA_JSON, []), _add("part-0.parquet", len(rows), {}, 0)]
        (folder / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


def _begin_table(schema_json: str, partition_by: list[str]) -> list[dict[str, Any]]:
    metadata = {
        "id": QUERY,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": partition_by,
        "configuration": {},
        "createdTime": 0,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def _add(path: str, rows: int, partition: dict[str, str], at_ms: int) -> dict[str, Any]:
    file = {
        "path": path,
        "partitionValues": partition,
        "size": rows * 21 + 900,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
    }
    return {"add": file}


def _list_progress(report: dict[str, Any], began: datetime) -> Iterator[dict[str, Any]]:
    batches, read = report["batches"], report["rows"]["read"]
    application = f"app-{began:%Y%m%d%H%M%S}-0001"
    yield {"event": "session", "application": application, "ui": "http://driver:4040", "eventLog": True}
    for number in range(batches):
        rows = read // batches + (read % batches if number == batches - 1 else 0)
        at = began + timedelta(seconds=3 + number * 2)
        yield {"event": "staged", "batchId": number, "rows": rows, "transformed": rows, "late": 0, "watermarkMs": None}
        yield {
            "event": "progress", "batchId": number, "timestamp": at.isoformat(timespec="milliseconds"),
            "numInputRows": rows, "inputRowsPerSecond": rows / 2, "processedRowsPerSecond": rows / 1.7,
            "batchDuration": 1700, "durationMs": {"addBatch": 1200, "triggerExecution": 1700, "walCommit": 60},
        }  # fmt: skip


def main(arguments: list[str]) -> None:
    """The command line; see the module's docstring."""
    numbers = [int(one) for one in arguments[1:]]
    make_many(Path(arguments[0]).resolve(), *numbers)


if __name__ == "__main__":
    main(sys.argv[1:])
