"""The makers of the examples with memory, and what they say each run must come to, by hand-made deliveries.

That Spark agrees is shown in tests/spark/test_streaming_examples.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.examples import SILENT_TOPICS
from tidegate.examples import (
    make_ad_clicks,
    make_bitcoin_prices,
    make_device_sessions,
    make_students,
    make_word_count,
)
from tidegate.examples.outcome import Outcome, Record, dump, read_time, show_time
from tidegate.examples.truth import MALFORMED, Fault
from tidegate.quality.pandas_engine import judge_files
from tidegate.quality.suite import load_suite
from tidegate.spec.checks import check_pipeline
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import load_project
from tools.deliveries import COLUMNS, STATEFUL, list_outcomes, make_delivery

ROOT = Path(__file__).resolve().parents[3]
REJECTING_RULES = {
    "bitcoin_prices": {"average_price_present", "average_price_in_range"},
    "word_count": {"word_length"},
    "students": {"score_in_range"},
    "ad_clicks": {"ad_form"},
    "device_sessions": {"device_present"},
}
TORN = Fault("torn_line", MALFORMED)


def at(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-02T{time}").replace(tzinfo=UTC)


def good(record: dict[str, Any], time_field: str) -> Record:
    return dump({**record, time_field: show_time(at(record[time_field]))}), None


@pytest.mark.parametrize("name", REJECTING_RULES)
def test_the_pipeline_is_whole(name: str) -> None:
    spec = PipelineSpec.read(yaml.safe_load((ROOT / "jobs" / name / "pipeline.yaml").read_text()))
    assert spec.name == name and check_pipeline(spec) == []
    assert spec.transform and (ROOT / "jobs" / name / spec.transform).exists()
    suite = load_suite(load_project(ROOT), name)
    assert suite is not None and {rule.rule for rule in suite.quarantine_rules} >= REJECTING_RULES[name]
    dag = (ROOT / "dags" / f"{name}.py").read_text()
    assert dag == f'from tidegate.airflow import build_dag\n\ndag = build_dag("{name}")\n'


def test_a_delivery_is_the_same_however_many_come_after_it() -> None:
    def trades(count: int) -> list[Any]:
        return [list(make_bitcoin_prices.iter_trades(number, 50)) for number in range(1, count + 1)]

    makers: list[Callable[[int], list[Any]]] = [
        trades,
        make_ad_clicks.make_deliveries,
        make_device_sessions.make_deliveries,
    ]
    for make in makers:
        assert make(5)[:2] == make(2)
        assert make(2)[0] != make(2)[1]


def test_files_are_whole_and_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        for delivery in (1, 2):
            make_bitcoin_prices.make_bitcoin_prices(folder, delivery, 60, files=3)
            make_device_sessions.make_device_sessions(folder, delivery, 60)
            make_students.make_students(folder, folder, delivery, 20, faults=0.3)
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert len(names) == 2 * (3 + 1 + 1) + 1 and not any(name.startswith(".") for name in names)
    assert {name: (tmp_path / "a" / name).read_bytes() for name in names} == {
        name: (tmp_path / "b" / name).read_bytes() for name in names
    }


def test_the_outcome_of_a_delivery_is_the_last_of_all_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a delivery, and what a demonstration compares the tables with, speak of the same data."""
    for maker in (make_word_count, make_ad_clicks):
        monkeypatch.setattr(maker, "send_records", lambda *args, **more: None)
    for name in STATEFUL:
        outcome = make_delivery(name, tmp_path, "nowhere:1", 3, 50, 0.1)
        assert outcome == list_outcomes(name, 3, 50, 0.1)[-1] and outcome.rows
        assert all(len(row) == len(COLUMNS[name]) for row in outcome.transformed)


def test_the_watermark_is_that_of_a_query_that_never_ended() -> None:
    outcomes = make_ad_clicks.list_outcomes(SILENT_TOPICS)
    assert [outcome.watermark and outcome.watermark.hour for outcome in outcomes] == [0, 10, 10, 14, 14]
    assert [len(outcome.rows) for outcome in outcomes] == [0, 1, 0, 2, 0]
    assert [len(outcome.late) for outcome in outcomes] == [0, 0, 0, 0, 1]


def test_what_is_called_malformed_is() -> None:
    trades = [record for number in (1, 2, 3) for record in make_bitcoin_prices.iter_trades(number, faults=0.3)]
    ads = make_ad_clicks.make_deliveries(3, faults=0.3)
    events = [record for delivery in make_device_sessions.make_deliveries(3, faults=0.3) for record in delivery]
    impressions = [record for delivery in ads for record in delivery.impressions]
    clicks = [record for delivery in ads for record in delivery.clicks]
    cases = {"dt": trades, "impression_time": impressions, "click_time": clicks, "event_time": events}
    for time_field, records in cases.items():
        seen = {fault.name for _, fault in records if fault}
        assert len(seen) >= 3
        for text, fault in records:
            assert fits(text, time_field) == (fault is None or fault.effect != MALFORMED), text


def fits(text: str, time_field: str) -> bool:
    """Whether a record would pass its schema."""
    try:
        record = json.loads(text)
        read_time(record[time_field])
        if time_field == "dt":
            return isinstance(record["price"], float) and int(record["amount"]) < 2**31
    except (ValueError, KeyError):
        return False
    return True


def test_a_window_comes_when_the_watermark_reaches_its_end_and_takes_nothing_after() -> None:
    def trades(*given: tuple[str, int, float]) -> list[Record]:
        return [good({"dt": time, "amount": amount, "price": price}, "dt") for time, amount, price in given]

    first, second, third = make_bitcoin_prices.list_outcomes(
        [
            [*trades(("00:01", 1, 10.0), ("00:09:59.999", 3, 20.0), ("00:30", 1, 5.0)), ("{", TORN)],
            trades(("00:04:59.999", 9, 9.0), ("00:05", 2, 30.0), ("00:10", 1, 40.0), ("00:40", 1, 7.0)),
            trades(("00:40", 1, 1e12), ("02:00", 1, 1.0)),
        ]
    )
    assert (first.watermark, second.watermark) == (at("00:10"), at("00:20"))
    assert first.rows == [
        (at("00:00").replace(day=1, hour=23, minute=55), at("00:05"), 10.0, 1, 1),
        (at("00:00"), at("00:10"), 17.5, 2, 4),
    ]
    assert first.malformed == ["{"] and not first.late
    # 00:04:59.999 was in two windows, both over; of 00:05 one is over, of 00:10 none.
    assert [json.loads(text)["amount"] for text in second.late] == [9]
    assert [json.loads(text)["amount"] for text in second.partly_late] == [2]
    assert second.rows == [
        (at("00:05"), at("00:15"), (3 * 20.0 + 2 * 30.0 + 40.0) / 6, 3, 6),
        (at("00:10"), at("00:20"), 40.0, 1, 1),
    ]
    assert [row[0] for row in third.rows] == [at("00:25"), at("00:30")]
    assert [row[0] for row in third.rejected["average_price_in_range"]] == [at("00:35"), at("00:40")]


def test_trades_come_late_in_every_way_from_the_second_delivery_on() -> None:
    outcomes = make_bitcoin_prices.list_outcomes(
        [list(make_bitcoin_prices.iter_trades(number, 200)) for number in range(1, 6)]
    )
    assert [outcome.watermark for outcome in outcomes[:2]] == [at("00:10"), at("00:40")]
    assert not outcomes[0].late and not outcomes[0].partly_late
    assert all(outcome.late and outcome.partly_late for outcome in outcomes[1:])
    assert [bool(outcome.rejected) for outcome in outcomes] == [False, True, False, False, True]


def test_words_are_counted_over_deliveries() -> None:
    first, second = make_word_count.list_outcomes(
        [
            [(b"The ship's bell", None), (None, Fault("tombstone", MALFORMED)), (b"", None)],
            [("THE Müller 12".encode(), None), (b"x" * 41, None), (b"the \xff", Fault("broken_utf8", MALFORMED))],
        ]
    )
    assert first.rows == [("bell", 1), ("s", 1), ("ship", 1), ("the", 1)]
    assert second.rows == [("müller", 1), ("the", 2)]
    assert second.rejected == {"word_length": [("x" * 41, 1)]}
    assert (len(first.malformed), len(second.malformed)) == (1, 1)


def test_the_first_students_are_the_six(tmp_path: Path) -> None:
    outcome = make_students.make_students(tmp_path / "students", tmp_path / "classes", 1)
    assert outcome.rows == [
        ("LiLei", 12, 75.5, "class1"),
        ("Hanmeimei", 16, 90.0, "class2"),
        ("Lily", 15, 68.0, "class3"),
        ("Michael", 20, 70.5, None),
        ("Andy", 17, 80.0, None),
        ("Justin", 19, 87.0, None),
    ]
    assert (tmp_path / "classes/classes.csv").read_text() == "name,class\nLiLei,class1\nHanmeimei,class2\nLily,class3\n"
    make_students.make_students(tmp_path / "students", tmp_path / "classes", 3)
    assert "Michael,class1" in (tmp_path / "classes/classes.csv").read_text()


def test_an_impression_is_unclicked_when_the_watermark_is_past_its_hour() -> None:
    def delivery(impressions: Sequence[str], clicks: Sequence[tuple[str, str]]) -> make_ad_clicks.Delivery:
        return make_ad_clicks.Delivery(
            [
                good({"impression_id": it, "ad": "ad-01", "impression_time": it}, "impression_time")
                for it in impressions
            ],
            [good({"click_id": f"{of}{it}", "impression_id": of, "click_time": it}, "click_time") for of, it in clicks],
        )

    first, second, third = make_ad_clicks.list_outcomes(
        [
            delivery(["08:59:59.999", "09:00", "09:00:00.001", "12:00"], [("12:00", "13:00"), ("13:30", "13:31")]),
            delivery(["10:00", "13:30"], [("09:00", "10:00"), ("09:00:00.001", "10:00:00.001")]),
            delivery(["15:00"], [("12:00", "13:00:00.001"), ("15:00", "15:00")]),
        ]
    )
    assert [outcome.watermark for outcome in (first, second, third)] == [at("10:00"), at("10:31"), at("12:00")]
    assert [(row[0], row[3]) for row in first.rows] == [("12:00", "12:0013:00"), ("08:59:59.999", None)]
    assert [(row[0], row[3]) for row in second.rows] == [
        ("13:30", "13:3013:31"),
        ("09:00:00.001", "09:00:00.00110:00:00.001"),
        ("09:00", None),  # the clicks had been at 13:31 before this delivery, which has none later than 10:00
    ]
    assert len(second.late) == 2
    assert [(row[0], row[3]) for row in third.rows] == [("15:00", "15:0015:00")]


def test_a_session_is_over_when_the_watermark_is_past_its_silence() -> None:
    def events(*given: str) -> list[Record]:
        return [good({"device": one.split()[0], "event_time": one.split()[1]}, "event_time") for one in given]

    first, second = make_device_sessions.list_outcomes(
        [
            events("a 09:00", "a 09:30", "b 09:00", "b 09:29:59.999", "c 09:15", "c 09:45", "z 10:10"),
            events("c 09:44:59.999", "c 10:00", "c 10:00:00.001", "z 11:00"),
        ]
    )
    assert first.watermark == at("10:00")
    assert first.rows == [
        ("a", at("09:00"), at("09:00"), 1),
        ("b", at("09:00"), at("09:29:59.999"), 2),
        ("c", at("09:15"), at("09:15"), 1),
    ]
    assert len(second.late) == 2
    assert second.rows == [
        ("a", at("09:30"), at("09:30"), 1),
        ("c", at("09:45"), at("10:00:00.001"), 2),
        ("z", at("10:10"), at("10:10"), 1),
    ]


@pytest.mark.parametrize(
    ("maker", "arguments"),
    [
        (make_bitcoin_prices, ["--out", "{}", "--delivery", "2", "--rows", "50"]),
        (make_device_sessions, ["--out", "{}", "--delivery", "2", "--rows", "50"]),
        (make_students, ["--out", "{}/in", "--static", "{}/classes"]),
    ],
)
def test_the_command_prints_the_counts(
    maker: Any, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maker.main([argument.format(tmp_path) for argument in arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["offered"] > 0 and printed["rows"] > 0
    assert list(tmp_path.rglob("*-00*"))


@pytest.mark.parametrize("maker", [make_word_count, make_ad_clicks])
def test_without_a_broker_the_command_says_so(maker: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("tidegate.examples.kafka.create_topic", _no_broker)
    assert maker.main([]) == 75
    assert "127.0.0.1:1" in capsys.readouterr().err


def _no_broker(bootstrap_servers: str, topic: str, partitions: int) -> None:
    from tidegate.examples.kafka import _broker_away

    raise _broker_away("127.0.0.1:1", f"no {topic}")


def make_outcomes() -> dict[str, tuple[dict[str, str], list[Outcome]]]:
    """Column types and outcomes of some deliveries of each example."""
    trades = [list(make_bitcoin_prices.iter_trades(number, 100)) for number in range(1, 4)]
    lines = [list(make_word_count.iter_lines(number, 50)) for number in range(1, 4)]
    students = [(list(make_students.iter_students(n, 30)), make_students.list_classes(n)) for n in range(1, 4)]
    ads, events = make_ad_clicks.make_deliveries(3, 100), make_device_sessions.make_deliveries(3, 100)
    return {
        "bitcoin_prices": (
            {
                "start": "timestamp",
                "end": "timestamp",
                "average_price": "double",
                "trades": "bigint",
                "amount": "bigint",
            },
            make_bitcoin_prices.list_outcomes(trades),
        ),
        "word_count": ({"word": "string", "count": "bigint"}, make_word_count.list_outcomes(lines)),
        "students": (
            {"name": "string", "age": "int", "score": "double", "class": "string"},
            make_students.list_outcomes(students),
        ),
        "ad_clicks": (
            {"impression_id": "string", "ad": "string", "impression_time": "timestamp", "click_id": "string"}
            | {"click_time": "timestamp"},
            make_ad_clicks.list_outcomes(ads),
        ),
        "device_sessions": (
            {"device": "string", "session_start": "timestamp", "session_end": "timestamp", "events": "bigint"},
            make_device_sessions.list_outcomes(events),
        ),
    }


def test_great_expectations_passes_what_the_row_rules_leave(tmp_path: Path) -> None:
    kinds = {
        "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    for name, (types, outcomes) in make_outcomes().items():
        suite = load_suite(load_project(ROOT), name)
        assert suite is not None
        for number, outcome in enumerate(outcomes):
            assert outcome.rows
            columns = zip(types.items(), zip(*outcome.rows, strict=True), strict=True)
            path = tmp_path / f"{name}-{number}.parquet"
            pq.write_table(
                pa.table({column: pa.array(values, kinds[type_]) for (column, type_), values in columns}), path
            )
            failed = [result.rule for result in judge_files(suite, [(path, {})], types) if not result.success]
            assert failed == [], name
