"""Clicks of a web site as JSON on Kafka: ``python -m tidegate.examples.make_clicks --rows 5000 --partitions 3``.

The topic is created when it is absent. Records are keyed by user, so a user's clicks stay in one partition and in
order. The same seed, start id and counts give the same records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import partial

from tidegate.examples.command import USUAL, Draw, check_numbers, run_maker, spoil
from tidegate.examples.kafka import KafkaRecord, send_records
from tidegate.examples.truth import MALFORMED, REJECTED, REPORTED, Fault, Truth

_WRONG_TYPES = ({"duration_ms": "long"}, {"user_id": "anonymous"}, {"clicked_at": "just now"})
_BAD_URLS = ("javascript:void(0)", "www.tideshop.example/search", "https://")
FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED, None, lambda click, rng: click.update(rng.choice(_WRONG_TYPES))),
    Fault("overflow", MALFORMED, None, lambda click, rng: click.update(duration_ms=2**31 + rng.randrange(10**6))),
    Fault("missing_id", REJECTED, "click_id_present", lambda click, _: click.pop("click_id")),
    Fault("foreign_key", REJECTED, "keyed_by_its_user", lambda click, _: click.update(user_id=click["user_id"] + 1)),
    Fault("bad_url", REJECTED, "url_form", lambda click, rng: click.update(url=rng.choice(_BAD_URLS))),
    Fault(
        "unknown_device",
        REJECTED,
        "device_known",
        lambda click, rng: click.update(device=rng.choice(("fridge", "Phone", ""))),
    ),
    Fault(
        "negative_duration",
        REJECTED,
        "duration_in_range",
        lambda click, _: click.update(duration_ms=-click["duration_ms"]),
    ),
    Fault(
        "unknown_field",
        REPORTED,
        "experiment",
        lambda click, rng: click.update(experiment=f"green-button-{rng.randrange(3)}"),
    ),
)

HOSTS = ("www.tideshop.example", "m.tideshop.example", "blog.tideshop.example")
PAGES = ("", "search", "basket", "checkout", "item/tea", "item/mug", "item/kettle", "item/tin", "help/returns")
REFERRERS = ('"https://find.example/"', '"https://news.example/"', '"https://mail.example/"', "null")
DEVICES = ("desktop", "desktop", "phone", "phone", "phone", "tablet", "tv")
CAMPAIGNS = ("null", "null", '{"source":"newsletter","medium":"mail"}', '{"source":"find","medium":"ad"}')
SECONDS_A_DAY = 86400


def iter_clicks(rows: int, how: Draw = USUAL) -> Iterator[tuple[str, str, Fault | None]]:
    """Each click as (key, JSON value, fault if it has one).

    Click ``n`` of the delivery has the id ``c-`` + (``start_id`` + n) in twelve digits.
    """
    rng = random.Random(f"clicks {how.seed} {how.start_id}")
    draw = rng.random
    start = datetime.combine(how.first_day, time(), UTC)
    step = SECONDS_A_DAY / max(rows, 1)
    minutes = [(start + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:") for minute in range(1440)]
    seconds = [f"{second:02d}" for second in range(60)]
    for number in range(rows):
        second = int(number * step)
        a, b, c = draw(), draw(), draw()
        key = str(1000 + int(a * a * 90000))
        value = (
            f'{{"click_id":"c-{how.start_id + number:012d}","user_id":{key},'
            f'"clicked_at":"{minutes[second // 60]}{seconds[second % 60]}.{int(b * 1000):03d}Z",'
            f'"url":"https://{HOSTS[int(c * 3)]}/{PAGES[int(b * 9)]}","referrer":{REFERRERS[int(a * 4)]},'
            f'"device":"{DEVICES[int(c * 7)]}","duration_ms":{200 + int(b * c * 180000)},'
            f'"campaign":{CAMPAIGNS[int(b * 4)]}}}'
        )
        if draw() < how.faults:
            fault = FAULTS[int(draw() * len(FAULTS))]
            yield key, spoil(value, fault, rng), fault
        else:
            yield key, value, None


def make_clicks(
    bootstrap_servers: str,
    rows: int,
    how: Draw = USUAL,
    *,
    topic: str = "clicks",
    partitions: int = 3,
) -> Truth:
    """Send ``rows`` clicks to ``topic`` and return the truth about them, once the broker has acknowledged every record.

    Raises TryAgainError when the broker is away or refuses a record; some records may be in the topic by then.
    """
    check_numbers(how.faults, rows=(rows, 0), partitions=(partitions, 1))
    truth = Truth(offered=rows)

    def count_and_pass_on() -> Iterator[KafkaRecord]:
        for key, value, fault in iter_clicks(rows, how):
            truth.bytes += len(value) + len(key)
            if fault is not None:
                truth.count_fault(fault)
            yield key, value

    send_records(bootstrap_servers, topic, count_and_pass_on(), partitions=partitions)
    return truth


main = partial(run_maker, make_clicks, rows=5000)


if __name__ == "__main__":
    raise SystemExit(main())
