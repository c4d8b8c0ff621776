"""Orders of a web shop as NDJSON files: ``python -m tidegate.examples.make_orders --out data/inbox/orders --rows
5000``.

A file appears under its name only when it is whole (it is written under a hidden name, then renamed).
The same seed, start id and counts give the same bytes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path

from tidegate.examples.command import USUAL, Draw, check_numbers, run_maker, spoil
from tidegate.examples.truth import MALFORMED, REJECTED, REPORTED, Fault, Truth

_WRONG_TYPES = ({"quantity": "three"}, {"customer_id": "C-77"}, {"ordered_at": "yesterday"})
FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED, None, lambda order, rng: order.update(rng.choice(_WRONG_TYPES))),
    Fault("overflow", MALFORMED, None, lambda order, rng: order.update(quantity=2**31 + rng.randrange(10**6))),
    Fault("missing_id", REJECTED, "order_id_present", lambda order, _: order.pop("order_id")),
    Fault("negative_amount", REJECTED, "amount_in_range", lambda order, _: order.update(amount=-order["amount"])),
    Fault("zero_quantity", REJECTED, "quantity_in_range", lambda order, _: order.update(quantity=0)),
    Fault(
        "unknown_status",
        REJECTED,
        "status_known",
        lambda order, rng: order.update(status=rng.choice(("teleported", "PAID", ""))),
    ),
    Fault(
        "promised_in_the_past",
        REJECTED,
        "promised_after_ordered",
        lambda order, _: order.update(promised_at="2019-12-31T18:00:00Z"),
    ),
    Fault("long_country", REJECTED, "country_code_length", lambda order, _: order["shipping"].update(country="DEU")),
    Fault("unknown_field", REPORTED, "coupon", lambda order, rng: order.update(coupon=f"SPRING{rng.randrange(100)}")),
)

STATUSES = (
    "placed",
    "paid",
    "paid",
    "packed",
    "shipped",
    "shipped",
    "delivered",
    "delivered",
    "delivered",
    "cancelled",
)
COUNTRIES = ("DE", "DE", "DE", "FR", "FR", "NL", "AT", "IT", "ES", "PL", "SE", "DK")


def iter_orders(rows: int, how: Draw = USUAL, *, days: int = 3) -> Iterator[tuple[str, Fault | None]]:
    """Each order as its JSON line (no newline) and its fault, if it has one.

    Order ``n`` of the delivery has the id ``o-`` + (``start_id`` + n) in twelve digits. ``ordered_at`` rises through
    ``days`` days from ``first_day``, as it does in a real shop.
    """
    rng = random.Random(f"orders {how.seed} {how.start_id}")
    draw = rng.random
    start = datetime.combine(how.first_day, time(), UTC)
    step = days * 86400 / max(rows, 1)
    minutes = [(start + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:") for minute in range(days * 1440)]
    promises = [(start + timedelta(days=day)).strftime("%Y-%m-%dT18:00:00Z") for day in range(days + 7)]
    seconds = [f"{second:02d}" for second in range(60)]
    statuses, countries = len(STATUSES), len(COUNTRIES)
    for number in range(rows):
        second = int(number * step)
        a, b, c = draw(), draw(), draw()
        cents = int(a * a * 40000) + 99
        order_id = how.start_id + number
        quantity = 1 + int(b * b * 12)
        promise = second // 86400 + 1 + int(c * 5)
        millis = int(b * 1000)
        line = (
            f'{{"order_id":"o-{order_id:012d}","customer_id":{100000 + int(c * 900000)},'
            f'"ordered_at":"{minutes[second // 60]}{seconds[second % 60]}.{millis:03d}Z",'
            f'"promised_at":"{promises[promise]}","status":"{STATUSES[int(a * statuses)]}","quantity":{quantity},'
            f'"amount":{cents * quantity // 100}.{cents * quantity % 100:02d},'
            f'"shipping":{{"country":"{COUNTRIES[int(b * countries)]}","postcode":"{10000 + int(a * 89999)}"}}}}'
        )
        if draw() < how.faults:
            fault = FAULTS[int(draw() * len(FAULTS))]
            yield spoil(line, fault, rng), fault
        else:
            yield line, None


def make_orders(out: Path, rows: int, how: Draw = USUAL, *, files: int = 1, days: int = 3) -> Truth:
    """Write ``rows`` orders into ``files`` new files in folder ``out`` and return the truth about them.

    A file is named after the seed, the start id and its number, so deliveries with other start ids lie side by side.
    """
    check_numbers(how.faults, rows=(rows, 0), files=(files, 1), days=(days, 1))
    out.mkdir(parents=True, exist_ok=True)
    truth = Truth(offered=rows)
    orders = iter_orders(rows, how, days=days)
    for number in range(files):
        share = rows * (number + 1) // files - rows * number // files
        path = out / f"orders-{how.seed}-{how.start_id:012d}-{number + 1:05d}.json"
        beside = out / f".{path.name}.tmp"
        with open(beside, "w", encoding="utf-8", buffering=1 << 20) as handle:
            for _ in range(share):
                line, fault = next(orders)
                handle.write(line)
                handle.write("\n")
                if fault is not None:
                    truth.count_fault(fault)
        truth.bytes += beside.stat().st_size
        os.replace(beside, path)
        truth.files.append(path.name)
    return truth


main = partial(run_maker, make_orders, rows=5000, files=5)


if __name__ == "__main__":
    raise SystemExit(main())
