"""Ad impressions and the clicks on them, on two Kafka topics: ``python -m tidegate.examples.make_ad_clicks --delivery
1``.

Each delivery is three hours of both. A click comes when it happened, which can be a delivery after its impression. From
the third delivery on there are stragglers at the very watermark: the last moment that is late, and the first that is
not. The topics are created when they are absent. The same seed, numbers and delivery give the same records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tidegate.examples.command import check_numbers, run_maker
from tidegate.examples.kafka import send_records
from tidegate.examples.outcome import (
    EPOCH,
    FIRST_MOMENT,
    Outcome,
    Record,
    dump,
    read_time,
    show_time,
)
from tidegate.examples.truth import MALFORMED, REJECTED, Fault

FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED),
    Fault("missing_time", MALFORMED),
)
UNKNOWN_AD = Fault("unknown_ad", REJECTED, "ad_form")
"""An impression whose rows are quarantined, matched or not, whenever they come."""

SPAN = timedelta(hours=3)
IMPRESSION_WATERMARK = timedelta(hours=2)
CLICK_WATERMARK = timedelta(hours=3)
CLICK_WITHIN = timedelta(hours=1)
TICK = timedelta(milliseconds=1)
ZERO = timedelta()


@dataclass
class Delivery:
    """What comes together: impressions and clicks, each as JSON."""

    impressions: list[Record] = field(default_factory=list)
    clicks: list[Record] = field(default_factory=list)


def make_deliveries(count: int, rows: int = 200, *, seed: int = 1, faults: float = 0.01) -> list[Delivery]:
    """The first ``count`` deliveries, of ``rows`` impressions each and a few more. ``faults`` is a share, 0 to 1."""
    deliveries = [Delivery() for _ in range(count + 2)]  # what comes later than its time must have a place
    for number in range(count):
        rng = random.Random(f"ads {seed} {number}")
        start, end = FIRST_MOMENT + number * SPAN, FIRST_MOMENT + (number + 1) * SPAN
        here, clicks = deliveries[number], []
        for index in range(rows - 1):
            impression_id, moment = f"{number + 1:04d}-{index:06d}", start + (index + 1) * SPAN / rows
            if rng.random() < faults:
                here.impressions.append((_dump_impression(impression_id, "?", moment), UNKNOWN_AD))
            else:
                line = _dump_impression(impression_id, f"ad-{rng.randrange(20):02d}", moment)
                here.impressions.append(_spoil_some(line, "impression_time", faults, rng))
            if rng.random() < 0.4:
                # Most clicks come soon, some after the hour: those match nothing.
                soon = timedelta(milliseconds=int(rng.random() ** 2 * 5_400_000))
                clicks.append((f"c-{impression_id}-a", impression_id, moment + soon))
            if rng.random() < 0.05:
                clicks.append((f"c-{impression_id}-b", impression_id, moment + CLICK_WITHIN + rng.choice((ZERO, TICK))))
        for click in clicks:
            number_then = -((FIRST_MOMENT - click[2]) // SPAN) - 1
            deliveries[number_then].clicks.append(_spoil_some(_dump_click(*click), "click_time", faults, rng))
        _add_edges(deliveries, number, end)
        # Nothing is wrong with the last impression and the click on it: they stand at the very end, which makes the
        # watermark after this delivery the end of the one before.
        here.impressions.append((_dump_impression(f"{number + 1:04d}-last", "ad-00", end), None))
        here.clicks.append((_dump_click(f"c-{number + 1:04d}-last", f"{number + 1:04d}-last", end), None))
    return deliveries[:count]


def _add_edges(deliveries: list[Delivery], number: int, end: datetime) -> None:
    """What sits on an edge of a rule around ``end``, which is the watermark after the next delivery.

    Three impressions whose hour is over a moment before that watermark comes, as it comes, and a moment after. Then,
    two deliveries on, a click each on the last two of them, within the hour: the first is late, the second is not. The
    same with two impressions.
    """
    before, at, after, late, in_time = (f"{number + 1:04d}-{name}" for name in ("before", "at", "after", "late", "in"))
    unclicked = ((before, end - CLICK_WITHIN - TICK), (at, end - CLICK_WITHIN), (after, end - CLICK_WITHIN + TICK))
    here, later = deliveries[number], deliveries[number + 2]
    here.impressions += [(_dump_impression(id_, "ad-99", moment), None) for id_, moment in unclicked]
    later.impressions += [
        (_dump_impression(id_, "ad-99", moment), None) for id_, moment in ((late, end), (in_time, end + TICK))
    ]
    later.clicks += [(_dump_click(f"c-{id_}", id_, moment + CLICK_WITHIN), None) for id_, moment in unclicked[1:]]


def _dump_impression(impression_id: str, ad: str, moment: datetime) -> str:
    return dump({"impression_id": impression_id, "ad": ad, "impression_time": show_time(moment)})


def _dump_click(click_id: str, impression_id: str, moment: datetime) -> str:
    return dump({"click_id": click_id, "impression_id": impression_id, "click_time": show_time(moment)})


def _spoil_some(line: str, time_field: str, share: float, rng: random.Random) -> Record:
    """A record, with a fault put into it as often as ``share`` says."""
    if rng.random() >= share:
        return line, None
    fault = rng.choice(FAULTS)
    if fault.name == "torn_line":
        return line[: rng.randrange(1, len(line) - 1)], fault
    record = json.loads(line)
    if fault.name == "wrong_type":
        record[time_field] = "just now"
    else:
        del record[time_field]
    return dump(record), fault


@dataclass
class _Impression:
    id: str
    ad: str
    time: datetime
    clicked: bool = False


def list_outcomes(deliveries: Iterable[Delivery]) -> list[Outcome]:
    """What the run of each delivery must come to.

    Rows are (impression_id, ad, impression_time, click_id, click_time); the last two are None for an impression that
    nobody clicked on, which appears when the watermark is past its hour, not when it reaches it. The watermark is that
    of one uninterrupted query: the slower of both sources, each as far as it *ever* was; while one of them has had no
    record it does not move. Spark alone forgets with each run where a source stood that is silent in it.
    """
    watermark = EPOCH
    impressions_until: datetime | None = None
    clicks_until: datetime | None = None
    impressions: dict[str, list[_Impression]] = {}
    clicks: dict[str, list[tuple[str, datetime]]] = {}
    outcomes = []
    for delivery in deliveries:
        outcome = Outcome(offered=len(delivery.impressions) + len(delivery.clicks))
        new_impressions = _read(delivery.impressions, "impression_time", outcome, watermark)
        new_clicks = _read(delivery.clicks, "click_time", outcome, watermark)
        matches: list[tuple[_Impression, str, datetime]] = []
        for record, moment in new_impressions.kept:
            impression = _Impression(record["impression_id"], record["ad"], moment)
            impressions.setdefault(impression.id, []).append(impression)
            matches += [(impression, click_id, at) for click_id, at in clicks.get(impression.id, ())]
        for record, moment in new_clicks.kept:
            clicks.setdefault(record["impression_id"], []).append((record["click_id"], moment))
            matches += [(one, record["click_id"], moment) for one in impressions.get(record["impression_id"], ())]
        for impression, click_id, at in matches:
            if ZERO <= at - impression.time <= CLICK_WITHIN:
                impression.clicked = True
                _add(outcome, impression, click_id, at)
        impressions_until = _later(impressions_until, new_impressions.newest)
        clicks_until = _later(clicks_until, new_clicks.newest)
        if impressions_until is not None and clicks_until is not None:
            watermark = min(impressions_until - IMPRESSION_WATERMARK, clicks_until - CLICK_WATERMARK)
        outcome.watermark = watermark
        for key, waiting in list(impressions.items()):
            for impression in waiting:
                if impression.time + CLICK_WITHIN < watermark and not impression.clicked:
                    _add(outcome, impression, None, None)
            impressions[key] = [one for one in waiting if one.time + CLICK_WITHIN >= watermark]
        outcomes.append(outcome)
    return outcomes


@dataclass
class _Read:
    kept: list[tuple[dict[str, Any], datetime]] = field(default_factory=list)
    newest: datetime | None = None


def _read(records: Sequence[Record], time_field: str, outcome: Outcome, watermark: datetime) -> _Read:
    """The records that count, parsed; a late one counts for the watermark alone."""
    read = _Read()
    for text, fault in records:
        if fault is not None and fault.effect == MALFORMED:
            outcome.malformed.append(text)
            continue
        record = json.loads(text)
        moment = read_time(record[time_field])
        read.newest = _later(read.newest, moment)
        if moment <= watermark:
            outcome.late.append(text)
        else:
            read.kept.append((record, moment))
    return read


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _add(outcome: Outcome, impression: _Impression, click_id: str | None, click_time: datetime | None) -> None:
    row = (impression.id, impression.ad, impression.time, click_id, click_time)
    outcome.add(row, None if impression.ad.startswith("ad-") else UNKNOWN_AD.rule)


def make_ad_clicks(
    bootstrap_servers: str,
    delivery: int,
    rows: int = 200,
    *,
    topics: tuple[str, str] = ("ad_impressions", "ad_clicks"),
    seed: int = 1,
    faults: float = 0.01,
) -> Outcome:
    """Send delivery number ``delivery`` (from 1) to both topics, and say what its run must come to.

    The outcome holds when the deliveries before it had the same numbers and each had a run of its own. Raises
    TryAgainError when the broker is away or refuses a record; some records may be in the topics by then.
    """
    check_numbers(faults, delivery=(delivery, 1), rows=(rows, 1))
    deliveries = make_deliveries(delivery, rows, seed=seed, faults=faults)
    for topic, records in zip(topics, (deliveries[-1].impressions, deliveries[-1].clicks), strict=True):
        send_records(bootstrap_servers, topic, ((None, text) for text, _ in records), partitions=2)
    return list_outcomes(deliveries)[-1]


main = partial(run_maker, make_ad_clicks)


if __name__ == "__main__":
    raise SystemExit(main())
