"""Lines of text on Kafka: ``python -m tidegate.examples.make_word_count --delivery 1 --rows 200``.

The topic is created when it is absent. The same seed, numbers and delivery give the same lines.
"""

from __future__ import annotations

import base64
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from tidegate.examples.command import check_numbers, run_maker
from tidegate.examples.kafka import send_records
from tidegate.examples.outcome import Outcome
from tidegate.examples.truth import MALFORMED, REJECTED, Fault

FAULTS = (
    Fault("broken_utf8", MALFORMED),
    Fault("tombstone", MALFORMED),
    Fault("endless_word", REJECTED, "word_length"),
)
LONGEST_WORD = 40
ENDLESS = "a" * 60
TEXT = (
    "The tide, the Tide! A gate opens; the gate closes again. Ebb and flood (flood and ebb) by the harbour wall. "
    "The ship's bell, 12 strokes in 2026: lock-keeper Müller has his café au lait and a naïve heron for company. "
    "Mud and moon, moon and mud, water in the sluice, an eel at the river's end."
)
WORD = re.compile(r"[^\W\d_]+")

Line = tuple[bytes | None, Fault | None]


def iter_lines(delivery: int, rows: int = 200, *, seed: int = 1, faults: float = 0.02) -> Iterable[Line]:
    """The lines of delivery number ``delivery`` (from 1) as Kafka values. ``faults`` is a share, 0 to 1."""
    rng = random.Random(f"words {seed} {delivery}")
    # Not every word comes in every delivery, so that update mode has rows to leave alone.
    words = rng.sample(TEXT.split(), k=30)
    for _ in range(rows):
        line = " ".join(rng.choices(words, k=rng.randrange(0, 12)))
        if rng.random() < faults:
            fault = rng.choice(FAULTS)
            spoilt = {"broken_utf8": line.encode() + b" \xff\xfe", "tombstone": None}
            yield spoilt.get(fault.name, f"{line} {ENDLESS}".encode()), fault
        else:
            yield line.encode(), None


def list_outcomes(deliveries: Iterable[Sequence[Line]]) -> list[Outcome]:
    """What the run of each delivery must come to. Rows are (word, count), of the words that the delivery has.

    A line that is not UTF-8 is among the malformed as base64, as quarantine keeps it; a record without a value is "".
    """
    counts: Counter[str] = Counter()
    outcomes = []
    for lines in deliveries:
        outcome = Outcome(offered=len(lines))
        changed: set[str] = set()
        for value, fault in lines:
            if value is None or (fault is not None and fault.effect == MALFORMED):
                outcome.malformed.append("" if value is None else base64.b64encode(value).decode())
                continue
            words = WORD.findall(value.decode().lower())
            counts.update(words)
            changed.update(words)
        for word in sorted(changed):
            outcome.add((word, counts[word]), None if len(word) <= LONGEST_WORD else "word_length")
        outcomes.append(outcome)
    return outcomes


def make_word_count(
    bootstrap_servers: str,
    delivery: int,
    rows: int = 200,
    *,
    topic: str = "lines",
    seed: int = 1,
    faults: float = 0.02,
) -> Outcome:
    """Send delivery number ``delivery`` to ``topic``, and say what its run must come to.

    The outcome holds when the deliveries before it had the same numbers and each had a run of its own. Raises
    TryAgainError when the broker is away or refuses a record; some records may be in the topic by then.
    """
    check_numbers(faults, delivery=(delivery, 1), rows=(rows, 0))
    deliveries = [list(iter_lines(number, rows, seed=seed, faults=faults)) for number in range(1, delivery + 1)]
    send_records(bootstrap_servers, topic, ((None, value) for value, _ in deliveries[-1]), partitions=2)
    return list_outcomes(deliveries)[-1]


main = partial(run_maker, make_word_count)


if __name__ == "__main__":
    raise SystemExit(main())
