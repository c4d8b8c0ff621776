"""`make run` prints what docs/how-to/make-run.md shows, and README.md in part.

The demonstration, the makers of its data and the comparison at its end are the real ones. Kafka, Airflow and the runs
of the pipelines are not: a run here writes the rows and figures that plain Python makes of the same data. That real
runs of the examples with memory come to the same, types of columns included, is tested in
tests/streams/test_examples.py.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.examples import TABLE_TYPES
from tests.support.page_outputs import shown
from tidegate.examples import make_ad_clicks, make_clicks, make_orders, make_word_count
from tidegate.examples.command import Draw
from tidegate.examples.outcome import FIRST_DAY
from tidegate.examples.truth import REPORTED, Fault, Truth
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project
from tools import demo
from tools.deliveries import STATEFUL, list_outcomes, list_rows

_SIMPLE = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(12,2)": pa.decimal128(12, 2),
    "struct<source:string,medium:string>": pa.struct([("source", pa.string()), ("medium", pa.string())]),
}
_ADDED = {
    "orders": {"country": "string", "postcode": "string", "day": "date"},
    "clicks": {"host": "string", "key_user_id": "bigint"},
}
"""What the transforms of the pipelines without memory add to the columns of their sources."""


class Client:
    """Airflow's client: a DAG that is triggered has a run that publishes, and one that finds nothing new; one with too
    many faults, a run that waits for a person."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[str, list[dict[str, str]]] = {}

    def wait_for_dags(self, names: list[str]) -> None:
        assert names == list(demo.PIPELINES)

    def pause(self, name: str) -> None: ...

    def unpause(self, name: str) -> None: ...

    def list_required_actions(self, name: str, run_id: str) -> list[dict[str, Any]]:
        assert name == demo.HELD and run_id
        return [{"task_instance": {"task_id": "audit", "state": "awaiting_input"}}]

    def list_dag_runs(self, name: str) -> list[dict[str, str]]:
        return self.runs.get(name, [])

    def trigger(self, name: str) -> None:
        deliveries = json.loads(demo.NOTES_PATH.read_text())[name]["deliveries"]
        is_held = _is_held(name, deliveries)
        figures = self._hold(name, deliveries) if is_held else self._publish(name, deliveries)
        paths = load_project(self.root).paths(name)
        paths.runs.mkdir(parents=True, exist_ok=True)
        for kind, report in (
            ("scheduled", {"outcome": "published", "quality": {"verdict": "passed"}, **figures}),
            *([] if is_held else [("manual", {"outcome": "nothing_new", "rows": {}})]),
        ):
            run_id = f"{kind}__2026-03-02T23:5{deliveries}:00+00:00"
            text = json.dumps({"run_id": run_id, "duration_seconds": {"ingest": 50.0, "audit": 17.5}, **report})
            (paths.runs / f"{kind}-{deliveries}.json").write_text(text)
        state = "running" if is_held else "success"
        run = {"dag_run_id": run_id, "state": state, "queued_at": datetime.now(UTC).isoformat()}
        self.runs.setdefault(name, []).append(run)

    def answer(self, name: str, run_id: str, task: str, option: str, fields: dict[str, Any]) -> None:
        assert (name, task, option, fields) == (demo.HELD, "audit", "Release", {"reason": demo.RELEASED})
        deliveries = json.loads(demo.NOTES_PATH.read_text())[name]["deliveries"]
        path = load_project(self.root).paths(name).runs / f"scheduled-{deliveries}.json"
        report = json.loads(path.read_text())
        assert report["run_id"] == run_id and report["outcome"] == "held"
        path.write_text(json.dumps({**report, **self._publish(name, deliveries), "outcome": "published"}))
        (run,) = (run for run in self.runs[name] if run["dag_run_id"] == run_id)
        run["state"] = "success"

    def _hold(self, name: str, deliveries: int) -> dict[str, Any]:
        """The figures of a run that is held; the table stays as it is."""
        truth, rows = _read_records(name, deliveries)
        counts = {"read": truth.offered, "malformed": truth.malformed, "rejected": truth.rejected, "staged": len(rows)}
        assert truth.quarantined / truth.offered > 0.1
        return {"outcome": "held", "quality": {"verdict": "failed"}, "rows": counts}

    def _publish(self, name: str, deliveries: int) -> dict[str, Any]:
        """Write the table as it is after so many deliveries; the figures of the last one's run."""
        if name not in STATEFUL:
            truths, rows = zip(*(_read_records(name, number) for number in range(1, deliveries + 1)), strict=True)
            self._write(name, [row for part in rows for row in part], _types_of(name))
            truth = truths[-1]
            counts = {"read": truth.offered, "malformed": truth.malformed, "rejected": truth.rejected}
            return {"rows": {**counts, "published": truth.published}, "table": {"version": deliveries - 1}}
        outcomes = list_outcomes(name, deliveries, demo.ROWS[name], demo.FAULTS[name])
        types = TABLE_TYPES[name]
        self._write(name, [dict(zip(types, row, strict=True)) for row in list_rows(name, outcomes)], types)
        last = outcomes[-1]
        return {
            "rows": {
                "read": last.offered,
                "malformed": len(last.malformed),
                "late": len(last.late),
                "rejected": sum(map(len, last.rejected.values())),
                "published": len(last.rows),
            },
            # Replacing takes a version of its own from the second run on.
            "table": {"version": (deliveries - 1) * (2 if name == "word_count" else 1)},
            "watermark": last.watermark and last.watermark.isoformat(),
        }

    def _write(self, name: str, rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> None:
        """One file a partition. The rows that the page shows come first: which ones do depends on the files' names."""
        wanted = _shown_rows(name)
        # After the first delivery some of them may be yet to come.
        matches = ([row for row in rows if _cells(row)[: len(cells)] == cells] for cells in wanted)
        firsts = [some[0] for some in matches if some]
        found = firsts + [row for row in rows if not any(row is first for first in firsts)]
        folder = load_project(self.root).paths(name).table
        partition_by = load_pipeline(load_project(self.root), name).table.partition_by
        table = pa.Table.from_pylist(found, schema=pa.schema(types))
        folder.mkdir(parents=True, exist_ok=True)
        if not partition_by:
            pq.write_table(table, folder / "part.parquet")
            return
        (column,) = partition_by
        for value in sorted(set(table[column].to_pylist())):
            (folder / f"{column}={value}").mkdir(exist_ok=True)
            part = table.filter(pa.compute.equal(table[column], value)).drop_columns([column])
            pq.write_table(part, folder / f"{column}={value}" / "part.parquet")


def _is_held(name: str, delivery: int) -> bool:
    return name == demo.HELD and delivery % demo.ROUNDS == 0


def _read_records(name: str, number: int) -> tuple[Truth, list[dict[str, Any]]]:
    """What becomes of delivery ``number`` of a pipeline without memory, with the rows of its table."""
    count, faults = demo.ROWS[name], demo.HELD_FAULTS if _is_held(name, number) else demo.FAULTS[name]
    start, day = (number - 1) * count + 1, FIRST_DAY + timedelta(days=number - 1)
    records: Iterator[tuple[str, str, Fault | None]]
    if name == "orders":
        made = make_orders.iter_orders(count, Draw(faults=faults, start_id=start, first_day=day), days=2)
        records = (("", text, fault) for text, fault in made)
    else:
        records = make_clicks.iter_clicks(count, Draw(faults=faults, start_id=start, first_day=day))
    truth, rows = Truth(offered=count), []
    for key, text, fault in records:
        if fault is not None:
            truth.count_fault(fault)
        if fault is None or fault.effect == REPORTED:
            rows.append(_order(json.loads(text, parse_float=Decimal)) if name == "orders" else _click(key, text))
    return truth, rows


def _order(value: dict[str, Any]) -> dict[str, Any]:
    shipping = value.pop("shipping")
    value |= {"ordered_at": _time(value["ordered_at"]), "promised_at": _time(value["promised_at"])}
    return {**value, "amount": Decimal(value["amount"]), **shipping, "day": value["ordered_at"].date()}


def _click(key: str, text: str) -> dict[str, Any]:
    value = json.loads(text)
    value["clicked_at"] = _time(value["clicked_at"])
    return {**value, "host": urlsplit(value["url"]).hostname, "key_user_id": int(key)}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _types_of(name: str) -> dict[str, pa.DataType]:
    root = Path(__file__).resolve().parents[3]
    source = load_pipeline(load_project(root), name).sources[name]
    columns = {column.name: column.type.replace(" ", "") for column in parse_ddl(str(source.schema))}
    columns.pop("shipping", None)
    return {column: _SIMPLE[kind] for column, kind in {**columns, **_ADDED[name]}.items()}


def _shown_rows(name: str) -> list[list[str]]:
    """The first two cells of each row that the page shows of a table."""
    block = re.search(rf"^{name}: .*?^├.*?┤$(.*?)^└", shown("make run"), re.MULTILINE | re.DOTALL)
    assert block, name
    return [[cell.strip() for cell in line.strip("│").split("│")[:2]] for line in block[1].strip().splitlines()]


def _cells(row: dict[str, Any]) -> list[str]:
    return [_cell(value) for value in list(row.values())[:2]]


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        fraction = f".{value.microsecond:06d}".rstrip("0").rstrip(".")
        return f"{value:%Y-%m-%d %H:%M:%S}{fraction}+00"
    return str(value)


def _mask(text: str) -> list[str]:
    """Without times of day, seconds, how many ticks fell into it, and the widths that come of them."""
    text = re.sub(r"\[ *(\d+\.\d+|…)s\]", "[SECONDS]", text)
    text = re.sub(r"(scheduled|manual) \d\d:\d\d:\d\d", "RUN", text)
    text = re.sub(r"^\d+ more runs found nothing new *\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(\d+\.\d+|…) │$", "SECONDS │", text, flags=re.MULTILINE)
    text = re.sub(r"([ ━─])\1+", r"\1", text)
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs").symlink_to(demo.REPO_ROOT / "jobs")
    client = Client(tmp_path)
    airflow = SimpleNamespace(url="http://localhost:8080", user="admin", password="(generated)", client=client)
    for name, value in {
        "REPO_ROOT": tmp_path,
        "NOTES_PATH": tmp_path / "data/demo.json",
        "ensure_jars": lambda: None,
        "find_broker": lambda: None,
        "start_broker": lambda *_, **__: SimpleNamespace(bootstrap_servers="127.0.0.1:9092"),
        "find_airflow": lambda: None,
        "start_database": dict,
        "start_airflow": lambda *_, **__: airflow,
        "TICK_SECONDS": 0,
        "say": lambda text: print(f"[ 0.0s] {text}"),
    }.items():
        monkeypatch.setattr(demo, name, value)
    for maker in (make_clicks, make_word_count, make_ad_clicks):
        monkeypatch.setattr(maker, "send_records", lambda _servers, _topic, records, **_: list(records))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return client


def test_make_run_prints_what_the_page_shows(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    demo.run_demo()
    printed, page = _mask(capsys.readouterr().out), _mask(shown("make run"))
    assert printed == page, "\n".join(difflib.unified_diff(page, printed, "make-run.md", "make run", lineterm=""))


def test_the_readme_shows_a_part_of_the_page() -> None:
    page = _mask(shown("make run"))
    assert [line for line in _mask(shown("make run, shortened")) if line != "..." and line not in page] == []


def test_a_second_make_run_goes_on(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """What was held is released, and what waited is taken in; every record is accounted for, or it would raise."""
    demo.run_demo()
    demo.run_demo()
    printed = capsys.readouterr().out
    assert printed.count("releasing it (orders)") == 1
    assert [len(client.runs[name]) for name in ("clicks", demo.HELD, demo.BEHIND)] == [4, 4, 2]
    notes = json.loads(demo.NOTES_PATH.read_text())
    assert notes[demo.BEHIND]["deliveries"] == 2 and notes[demo.BEHIND]["waits"]["read"] == demo.ROWS[demo.BEHIND]
