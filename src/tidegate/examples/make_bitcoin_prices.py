"""Bitcoin trades as NDJSON files: ``python -m tidegate.examples.make_bitcoin_prices --out data/inbox/trades --delivery
1``.

Each delivery is half an hour of trades and, from the second on, stragglers around the watermark: some in time, some too
late for one of their two windows, some for both. The same seed, numbers and delivery give the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from tidegate.examples.command import check_numbers, run_maker, spoil, write_whole
from tidegate.examples.outcome import (
    EPOCH,
    FIRST_MOMENT,
    Outcome,
    Record,
    Row,
    dump,
    read_time,
    show_time,
)
from tidegate.examples.truth import MALFORMED, REJECTED, Fault

_WRONG_TYPES = ({"amount": "two"}, {"price": "a lot"}, {"dt": "just now"})
FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED, None, lambda trade, rng: trade.update(rng.choice(_WRONG_TYPES))),
    Fault("overflow", MALFORMED, None, lambda trade, rng: trade.update(amount=2**31 + rng.randrange(10**6))),
    Fault("missing_price", MALFORMED, None, lambda trade, _: trade.pop("price")),
)
FAT_FINGER = Fault("fat_finger", REJECTED, "average_price_in_range")
"""A price so high that the averages of both its windows are quarantined. The second delivery has one, and every
third after it."""

SPAN = timedelta(minutes=30)
WATERMARK = timedelta(minutes=20)
WINDOW = timedelta(minutes=10)
SLIDE = timedelta(minutes=5)
HIGHEST_AVERAGE = 10_000_000.0
TICK = timedelta(milliseconds=1)


def iter_trades(
    delivery: int, rows: int = 600, *, seed: int = 1, faults: float = 0.01, stragglers: float = 0.05
) -> Iterable[Record]:
    """The trades of delivery number ``delivery`` (from 1). ``faults`` and ``stragglers`` are shares, 0 to 1.

    The last trade is at the very end of the half hour, so the watermark ends on a window's edge; the first four
    stragglers are the last moment that is too late for a window, and the first that is not, of either window.
    """
    rng = random.Random(f"bitcoin {seed} {delivery}")
    start = FIRST_MOMENT + (delivery - 1) * SPAN
    watermark = start - WATERMARK
    edges = [watermark - SLIDE - TICK, watermark - SLIDE, watermark - TICK, watermark] if delivery > 1 else []
    # Quarters of a dollar: sums of them are exact in a DOUBLE in whatever order they are added.
    quarters = 4 * rng.randrange(58_000, 66_000)
    for number in range(rows):
        moment = start + (number + 1) * SPAN / rows
        if number < min(len(edges), rows - 1):
            moment = edges[number]
        elif delivery > 1 and number < rows - 1 and rng.random() < stragglers:
            moment = watermark + timedelta(milliseconds=rng.randrange(-900_000, 1_200_000))
        quarters += rng.randrange(-60, 61)
        trade = {"dt": show_time(moment), "amount": rng.randrange(1, 10), "price": quarters / 4}
        if delivery % 3 == 2 and number == rows // 2:
            yield dump({**trade, "dt": show_time(start + timedelta(minutes=2)), "price": 1e12}), FAT_FINGER
        elif len(edges) <= number < rows - 1 and rng.random() < faults:
            fault = rng.choice(FAULTS)
            yield spoil(dump(trade), fault, rng), fault
        else:
            yield dump(trade), None


@dataclass
class _Window:
    trades: int = 0
    amount: int = 0
    value: float = 0.0


def list_outcomes(deliveries: Iterable[Sequence[Record]]) -> list[Outcome]:
    """What the run of each delivery must come to. Rows are (start, end, average_price, trades, amount)."""
    watermark = EPOCH
    windows: dict[datetime, _Window] = {}
    outcomes = []
    for records in deliveries:
        outcome = Outcome(offered=len(records))
        newest = EPOCH
        for text, fault in records:
            if fault is not None and fault.effect == MALFORMED:
                outcome.malformed.append(text)
                continue
            trade = json.loads(text)
            moment = read_time(trade["dt"])
            newest = max(newest, moment)
            starts = _list_windows(moment)
            still_open = [start for start in starts if start + WINDOW > watermark]
            if not still_open:
                outcome.late.append(text)
            elif still_open != starts:
                outcome.partly_late.append(text)
            for start in still_open:
                window = windows.setdefault(start, _Window())
                window.trades += 1
                window.amount += trade["amount"]
                window.value += trade["amount"] * trade["price"]
        watermark = outcome.watermark = max(watermark, newest - WATERMARK)
        for start in sorted(start for start in windows if start + WINDOW <= watermark):
            row = _make_row(start, windows.pop(start))
            outcome.add(row, None if row[2] <= HIGHEST_AVERAGE else FAT_FINGER.rule)
        outcomes.append(outcome)
    return outcomes


def _list_windows(moment: datetime) -> list[datetime]:
    """Starts of the two windows that hold ``moment``; a window has its start and not its end."""
    last = moment - (moment - EPOCH) % SLIDE
    return [last - SLIDE, last]


def _make_row(start: datetime, window: _Window) -> Row:
    return start, start + WINDOW, window.value / window.amount, window.trades, window.amount


def make_bitcoin_prices(
    out: Path, delivery: int, rows: int = 600, *, seed: int = 1, files: int = 1, faults: float = 0.01
) -> Outcome:
    """Write delivery number ``delivery`` into ``files`` new files in folder ``out``, and say what its run must come to.

    The outcome holds when the deliveries before it had the same numbers and each had a run of its own.
    """
    check_numbers(faults, delivery=(delivery, 1), rows=(rows, 10), files=(files, 1))
    deliveries = [list(iter_trades(number, rows, seed=seed, faults=faults)) for number in range(1, delivery + 1)]
    for number in range(files):
        lines = [text for text, _ in deliveries[-1][number::files]]
        write_whole(out / f"trades-{seed}-{delivery:05d}-{number + 1:03d}.json", lines)
    return list_outcomes(deliveries)[-1]


main = partial(run_maker, make_bitcoin_prices)


if __name__ == "__main__":
    raise SystemExit(main())
