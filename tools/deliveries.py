"""Deliveries of the examples with memory, as the demonstration makes them and the tests do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.examples.outcome import Outcome, Row

STATEFUL = ("bitcoin_prices", "word_count", "students", "ad_clicks", "device_sessions")
COLUMNS = {
    "bitcoin_prices": ("start", "end", "average_price", "trades", "amount"),
    "word_count": ("word", "count"),
    "students": ("name", "age", "score", "class"),
    "ad_clicks": ("impression_id", "ad", "impression_time", "click_id", "click_time"),
    "device_sessions": ("device", "session_start", "session_end", "events"),
}
"""The columns of each table in the order of an outcome's rows."""
KEYED = ("word_count",)
"""A row of these replaces the one with the same first column."""
TOPICS = {"word_count": ("lines",), "ad_clicks": ("ad_impressions", "ad_clicks")}


def make_delivery(
    name: str,
    root: Path,
    bootstrap_servers: str,
    delivery: int,
    rows: int,
    faults: float,
    topics: Mapping[str, str] | None = None,
) -> Outcome:
    """Make delivery number ``delivery`` for pipeline ``name`` of the project at ``root``; what its run must come to.

    That holds when the deliveries before had the same numbers and a run each. ``topics``: other names of Kafka topics.
    """
    from tidegate.examples import make_ad_clicks as ads
    from tidegate.examples import make_bitcoin_prices as prices
    from tidegate.examples import make_device_sessions as sessions
    from tidegate.examples import make_students as students
    from tidegate.examples import make_word_count as words

    called = [(topics or {}).get(topic, topic) for topic in TOPICS.get(name, ())]
    inbox = root / "data" / "inbox"
    match name:
        case "bitcoin_prices":
            return prices.make_bitcoin_prices(inbox / "trades", delivery, rows, faults=faults)
        case "word_count":
            return words.make_word_count(bootstrap_servers, delivery, rows, topic=called[0], faults=faults)
        case "students":
            static = root / "data" / "static" / "classes"
            return students.make_students(inbox / "students", static, delivery, rows, faults=faults)
        case "ad_clicks":
            pair = (called[0], called[1])
            return ads.make_ad_clicks(bootstrap_servers, delivery, rows, topics=pair, faults=faults)
        case "device_sessions":
            return sessions.make_device_sessions(inbox / "events", delivery, rows, faults=faults)
    raise ValueError(f"{name} is none of {', '.join(STATEFUL)}")


def list_outcomes(name: str, deliveries: int, rows: int, faults: float) -> list[Outcome]:
    """What the runs of the first ``deliveries`` deliveries must come to; nothing is made."""
    from tidegate.examples import make_ad_clicks as ads
    from tidegate.examples import make_bitcoin_prices as prices
    from tidegate.examples import make_device_sessions as sessions
    from tidegate.examples import make_students as students
    from tidegate.examples import make_word_count as words

    numbers = range(1, deliveries + 1)
    match name:
        case "bitcoin_prices":
            return prices.list_outcomes([list(prices.iter_trades(number, rows, faults=faults)) for number in numbers])
        case "word_count":
            return words.list_outcomes([list(words.iter_lines(number, rows, faults=faults)) for number in numbers])
        case "students":
            made = ((list(students.iter_students(number, rows, faults=faults)), number) for number in numbers)
            return students.list_outcomes((records, students.list_classes(number)) for records, number in made)
        case "ad_clicks":
            return ads.list_outcomes(ads.make_deliveries(deliveries, rows, faults=faults))
        case "device_sessions":
            return sessions.list_outcomes(sessions.make_deliveries(deliveries, rows, faults=faults))
    raise ValueError(f"{name} is none of {', '.join(STATEFUL)}")


def list_rows(name: str, outcomes: Iterable[Outcome]) -> list[Row]:
    """The rows of the table after the runs with these outcomes."""
    rows = [row for outcome in outcomes for row in outcome.rows]
    return list({row[0]: row for row in rows}.values()) if name in KEYED else rows
