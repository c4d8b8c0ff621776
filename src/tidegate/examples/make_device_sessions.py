"""Events of devices as NDJSON files: ``python -m tidegate.examples.make_device_sessions --out data/inbox/events
--delivery 1``.

Each delivery is an hour, in which a device is busy for a while and silent for the rest. Some events come a delivery
late. The same seed, numbers and delivery give the same bytes.
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
from tidegate.examples.outcome import EPOCH, FIRST_MOMENT, Outcome, Record, dump, read_time, show_time
from tidegate.examples.truth import MALFORMED, REJECTED, Fault

FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED, None, lambda event, _: event.update(event_time="just now")),
    Fault("missing_time", MALFORMED, None, lambda event, _: event.pop("event_time")),
    Fault("missing_device", REJECTED, "device_present", lambda event, _: event.pop("device")),
)
KINDS = ("open", "tap", "scroll", "close")
SPAN = timedelta(hours=1)
WATERMARK = timedelta(minutes=10)
GAP = timedelta(minutes=30)
TICK = timedelta(milliseconds=1)


def make_deliveries(count: int, rows: int = 300, *, seed: int = 1, faults: float = 0.01) -> list[list[Record]]:
    """The first ``count`` deliveries, of about ``rows`` events each. ``faults`` is a share, 0 to 1."""
    deliveries: list[list[Record]] = [[] for _ in range(count + 1)]  # what comes late must have a place
    for number in range(count):
        rng = random.Random(f"sessions {seed} {number}")
        start, end = FIRST_MOMENT + number * SPAN, FIRST_MOMENT + (number + 1) * SPAN
        busy = [(start + timedelta(minutes=rng.randrange(40)), rng.randrange(2, 20)) for _ in range(1 + rows // 20)]
        for _ in range(rows):
            device = rng.randrange(len(busy))
            since, minutes = busy[device]
            moment = since + timedelta(milliseconds=rng.randrange(minutes * 60_000))
            # Of the last twenty minutes some come with the next delivery: half of those are too late by then.
            held_back = end - moment < timedelta(minutes=20) and rng.random() < 0.2
            event = _make_event(f"d-{device:03d}", moment, rng)
            text, fault = _spoil_some(event, faults, rng)
            deliveries[number + held_back].append((text if fault else _add_readings(text), fault))
        edges = _list_edges(number, start, end)
        deliveries[number] += [(_make_event(device, moment, rng), None) for device, moment in edges]
    return deliveries[:count]


def _list_edges(number: int, start: datetime, end: datetime) -> list[tuple[str, datetime]]:
    """Devices that each sit on an edge of a rule; ``end - WATERMARK`` is the watermark after this delivery."""
    edges = [
        # Silent for just so long, and for a moment less: two sessions, and one.
        ("edge-apart", end - timedelta(minutes=55)),
        ("edge-apart", end - timedelta(minutes=55) + GAP),
        ("edge-together", end - timedelta(minutes=55)),
        ("edge-together", end - timedelta(minutes=55) + GAP - TICK),
        # Over a moment before the watermark comes, and as it comes: the second is not over yet.
        ("edge-before", end - WATERMARK - GAP - TICK),
        ("edge-at", end - WATERMARK - GAP),
        ("edge-clock", end),
    ]
    if number > 0:
        # The last moment that is late, and the first that is not.
        edges += [("edge-late", start - WATERMARK), ("edge-in-time", start - WATERMARK + TICK)]
    return edges


def _make_event(device: str, moment: datetime, rng: random.Random) -> str:
    return dump({"device": device, "event_time": show_time(moment), "kind": rng.choice(KINDS)})


def _add_readings(event: str) -> str:
    """The event with what the device reports about itself: 57 more columns, of which the sessions need none."""
    rng = random.Random(f"readings {event}")
    moment = json.loads(event)["event_time"]
    processes = [
        {"name": name, "cpu": rng.randrange(1000) / 10, "memory": rng.randrange(1 << 34)}
        for name in ("app", "sync", "player")[: rng.randrange(4)]
    ]
    readings = {
        "battery": {"level": rng.random(), "volts": 3.7, "charging": rng.random() < 0.3, "health": "good"},
        "network": {"kind": "5g", "signal": -rng.randrange(120), "cell": {"country": 262, "operator": 1, "id": 7}},
        "place": {"lat": rng.uniform(-90, 90), "lon": rng.uniform(-180, 180), "fixed_at": moment},
        "processes": processes,
        **{f"sensor_{number:02}": rng.uniform(10, 30) for number in range(24)},
        **dict.fromkeys(("app_version", "os_version"), f"{rng.randrange(20)}.{rng.randrange(10)}"),
        "os": "tide",
        "model": f"m{rng.randrange(9)}",
        "locale": "de-DE",
        "screen": "home",
        "element": "list",
        "orientation": "portrait",
        "channel": "store",
        "dark_mode": True,
        "first_run": False,
        "foreground": True,
        "sent_at": moment,
        "booted_at": moment,
        "installed_on": "2026-01-31",
        "updated_on": "2026-02-28",
        **{name: rng.randrange(2000) for name in ("x", "y", "width", "height")},
        **{name: rng.randrange(1 << 40) for name in ("duration_ms", "memory_free", "disk_free", "uptime_ms")},
        "sequence": rng.randrange(1 << 50),
        "frame_rate": 59.5,
        "brightness": 0.5,
        "volume": 0.25,
        "price": rng.randrange(100_000) / 100,
    }
    return dump({**json.loads(event), **readings})


def _spoil_some(line: str, share: float, rng: random.Random) -> Record:
    if rng.random() >= share:
        return line, None
    fault = rng.choice(FAULTS)
    return spoil(line, fault, rng), fault


@dataclass
class _Session:
    start: datetime
    end: datetime
    events: int = 1


def list_outcomes(deliveries: Iterable[Sequence[Record]]) -> list[Outcome]:
    """What the run of each delivery must come to. Rows are (device, session_start, session_end, events).

    A silence of ``GAP`` or longer ends a session. It appears when the watermark is past the end of that silence, not
    when it reaches it.
    """
    watermark = EPOCH
    state: dict[str | None, list[_Session]] = {}
    outcomes = []
    for records in deliveries:
        outcome = Outcome(offered=len(records))
        newest = EPOCH
        for text, fault in records:
            if fault is not None and fault.effect == MALFORMED:
                outcome.malformed.append(text)
                continue
            event = json.loads(text)
            moment = read_time(event["event_time"])
            newest = max(newest, moment)
            if moment <= watermark:
                outcome.late.append(text)
            else:
                state.setdefault(event.get("device"), []).append(_Session(moment, moment))
        watermark = outcome.watermark = max(watermark, newest - WATERMARK)
        for device, sessions in state.items():
            joined = _join(sessions)
            for one in joined:
                if one.end + GAP < watermark:
                    outcome.add((device, one.start, one.end, one.events), None if device else "device_present")
            state[device] = [one for one in joined if one.end + GAP >= watermark]
        outcomes.append(outcome)
    return outcomes


def _join(sessions: list[_Session]) -> list[_Session]:
    joined: list[_Session] = []
    for session in sorted(sessions, key=lambda one: one.start):
        if joined and session.start - joined[-1].end < GAP:
            joined[-1].end = max(joined[-1].end, session.end)
            joined[-1].events += session.events
        else:
            joined.append(session)
    return joined


def make_device_sessions(
    out: Path, delivery: int, rows: int = 300, *, seed: int = 1, files: int = 1, faults: float = 0.01
) -> Outcome:
    """Write delivery number ``delivery`` (from 1) into ``files`` new files in folder ``out``, and say what its run must
    come to.

    The outcome holds when the deliveries before it had the same numbers and each had a run of its own.
    """
    check_numbers(faults, delivery=(delivery, 1), rows=(rows, 0), files=(files, 1))
    deliveries = make_deliveries(delivery, rows, seed=seed, faults=faults)
    for number in range(files):
        lines = [text for text, _ in deliveries[-1][number::files]]
        write_whole(out / f"events-{seed}-{delivery:05d}-{number + 1:03d}.json", lines)
    return list_outcomes(deliveries)[-1]


main = partial(run_maker, make_device_sessions)


if __name__ == "__main__":
    raise SystemExit(main())
