"""Students as CSV files, and the table of their classes: ``python -m tidegate.examples.make_students --out
data/inbox/students --static data/static/classes --delivery 1``.

The first delivery begins with the six students that everybody knows. From the third on one more of them has a class,
which only a table read afresh can show. The same seed, numbers and delivery give the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tidegate.examples.command import check_numbers, run_maker, write_whole
from tidegate.examples.outcome import Outcome, Record
from tidegate.examples.truth import MALFORMED, REJECTED, Fault

FAULTS = (
    Fault("torn_line", MALFORMED),
    Fault("wrong_type", MALFORMED),
    Fault("score_too_high", REJECTED, "score_in_range"),
)
STUDENTS = (
    ("LiLei", 12, 75.5),
    ("Hanmeimei", 16, 90.0),
    ("Lily", 15, 68.0),
    ("Michael", 20, 70.5),
    ("Andy", 17, 80.0),
    ("Justin", 19, 87.0),
)
CLASSES = {"LiLei": "class1", "Hanmeimei": "class2", "Lily": "class3"}
LATE_ENTRY = ("Michael", "class1")
LATE_ENTRY_FROM = 3
HIGHEST_SCORE = 100.0


def iter_students(delivery: int, rows: int = 6, *, seed: int = 1, faults: float = 0.0) -> Iterable[Record]:
    """The students of delivery number ``delivery`` (from 1), each as a line of CSV. ``faults`` is a share, 0 to 1."""
    rng = random.Random(f"students {seed} {delivery}")
    for number in range(rows):
        if delivery == 1 and number < len(STUDENTS):
            name, age, score = STUDENTS[number]
        else:
            name, age, score = rng.choice(STUDENTS)[0], rng.randrange(12, 21), rng.randrange(100, 201) / 2
        fault = rng.choice(FAULTS) if rng.random() < faults else None
        if fault is None:
            yield f"{name},{age},{score}", None
        elif fault.name == "torn_line":
            yield f"{name},{age}", fault
        elif fault.name == "wrong_type":
            yield f"{name},twelve,{score}", fault
        else:
            yield f"{name},{age},{score + 1000}", fault


def list_classes(delivery: int) -> dict[str, str]:
    """Name -> class as in the table when delivery number ``delivery`` is read."""
    return dict([*CLASSES.items(), LATE_ENTRY]) if delivery >= LATE_ENTRY_FROM else dict(CLASSES)


def list_outcomes(deliveries: Iterable[tuple[Sequence[Record], Mapping[str, str]]]) -> list[Outcome]:
    """What the run of each delivery (students, classes at that time) must come to.

    Rows are (name, age, score, class); class is None for a student who has none.
    """
    outcomes = []
    for records, classes in deliveries:
        outcome = Outcome(offered=len(records))
        for text, fault in records:
            if fault is not None and fault.effect == MALFORMED:
                outcome.malformed.append(text)
                continue
            name, age, score = text.split(",")
            row = (name, int(age), float(score), classes.get(name))
            outcome.add(row, None if row[2] <= HIGHEST_SCORE else "score_in_range")
        outcomes.append(outcome)
    return outcomes


def make_students(
    out: Path, static: Path, delivery: int, rows: int = 6, *, seed: int = 1, faults: float = 0.0
) -> Outcome:
    """Write the classes into folder ``static``, then delivery number ``delivery`` into ``out``.

    Says what the run must come to that reads both.
    """
    check_numbers(faults, delivery=(delivery, 1), rows=(rows, 0))
    records, classes = list(iter_students(delivery, rows, seed=seed, faults=faults)), list_classes(delivery)
    write_whole(static / "classes.csv", ["name,class", *(f"{name},{class_}" for name, class_ in classes.items())])
    write_whole(out / f"students-{seed}-{delivery:05d}.csv", (text for text, _ in records))
    return list_outcomes([(records, classes)])[0]


main = partial(run_maker, make_students)


if __name__ == "__main__":
    raise SystemExit(main())
