"""Do the checkpoint, the batch's manifest, the ledger and the table's log agree on a batch?

Spark goes on where its last batch ends, whatever number or file stands there. Each of the others was written from what
the batch really took. Pure: a function of :class:`~tidegate.preflight.facts.Facts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tidegate.preflight.facts import Facts
from tidegate.staging.manifest import OffsetRanges

Ranges = Mapping[str, Mapping[str, tuple[int | None, int]]]
"""{topic: {partition: (from, until)}}, until exclusive; from None where it is not known."""


def find_divergence(facts: Facts, batch: int) -> list[str]:
    """Where the checkpoint says something else about ``batch`` than the others do; each is compared as far as it is
    there."""
    found = [] if facts.seal.is_moving else list(_backwards(facts, batch))
    for name, known, where in _known_offsets(facts, batch):
        found += _compare_offsets(facts, batch, name, known, where)
    return found + _compare_files(facts, batch) + _compare_ledger(facts, batch)


def _backwards(facts: Facts, batch: int) -> Iterator[str]:
    for name, taken in facts.given[batch].items():
        pairs = [pair for numbers in taken.offsets.values() for pair in numbers.values()]
        if taken.is_backwards or any(start is not None and start > until for start, until in pairs):
            yield f"batch {batch} of source {name} ends before it begins"


def _known_offsets(facts: Facts, batch: int) -> Iterator[tuple[str, Ranges, str]]:
    """(source, what is known of its ranges, by whom)."""
    for manifest in facts.manifests.get(str(facts.query_id), ()):
        if manifest.batch_id == batch:
            for name, taken in manifest.sources.items():
                if taken.offsets is not None:
                    yield name, _pairs(taken.offsets), "its manifest"
    note = facts.published
    if note is not None and (note.query_id, note.batch_id) == (facts.query_id, batch):
        for name, ends in (note.positions or {}).items():
            yield name, _until(ends), "the note of its publish"
    commit = facts.table.metadata if facts.table is not None else {}
    if commit.get("tidegate.query_id") == facts.query_id and commit.get("tidegate.positions"):
        _, last = json.loads(commit["tidegate.batches"])
        for name, ends in json.loads(commit["tidegate.positions"]).items() if last == batch else ():
            yield name, _until(ends), "the table's log"


def _until(ends: Mapping[str, Mapping[str, int]]) -> Ranges:
    return {topic: {number: (None, until) for number, until in numbers.items()} for topic, numbers in ends.items()}


def _pairs(ranges: OffsetRanges) -> Ranges:
    return {
        topic: {number: (pair[0], pair[1]) for number, pair in numbers.items()} for topic, numbers in ranges.items()
    }


def _compare_offsets(facts: Facts, batch: int, source: str, known: Ranges, where: str) -> list[str]:
    """Each partition that the checkpoint names must stand where ``known`` says, unless a loss was accepted there."""
    given = facts.given[batch][source].offsets if source in facts.given[batch] else {}
    moved = facts.seal.moved.ends if facts.seal.moved is not None and facts.seal.moved.batch == batch else {}
    ends = {topic: {number: pair[1] for number, pair in numbers.items()} for topic, numbers in given.items()}
    if source in moved and ends == moved[source]:
        return []
    found = []
    for topic, numbers in given.items():
        for number, pair in numbers.items():
            told = known.get(topic, {}).get(number)
            if told is None or pair[1] != told[1] or (None not in (pair[0], told[0]) and pair[0] != told[0]):
                found.append(
                    f"batch {batch} has offsets {_show(pair)} of topic {topic} partition {number} of source {source}, "
                    f"and {where} has {'none' if told is None else _show(told)}"
                )
    if where == "its manifest":  # a commit may hold batches of when there were more topics
        gone = [topic for topic, numbers in known.items() if numbers and topic not in given]
        found += [f"batch {batch} lacks topic {topic} of source {source}, and {where} has it" for topic in gone]
    return found


def _show(pair: tuple[int | None, int]) -> str:
    start, until = pair
    return f"up to {until}" if start is None else f"{start} to {until}"


def _compare_files(facts: Facts, batch: int) -> list[str]:
    given = facts.given[batch]
    return [
        f"batch {batch} has other files of source {name} than its manifest"
        for manifest in facts.manifests.get(str(facts.query_id), ())
        if manifest.batch_id == batch
        for name, taken in manifest.sources.items()
        if taken.files is not None
        and sorted(file["link"] for file in taken.files) != (given[name].links if name in given else [])
    ]


def _compare_ledger(facts: Facts, batch: int) -> list[str]:
    """The files of a batch were staged in it and in no other; those of a batch that was only planned in none yet."""
    mine, nowhere = (facts.query_id, batch), (None, None)
    settled = batch <= facts.settled_up_to(str(facts.query_id))
    staged = any(manifest.batch_id == batch for manifest in facts.manifests.get(str(facts.query_id), ()))
    fit: set[tuple[str | None, int | None] | None] = {mine} if settled else {mine, nowhere} if staged else {nowhere}
    found = []
    for source, taken in facts.given[batch].items():
        known = (facts.taken_links or {}).get(source)
        for link in taken.links if known is not None else ():
            assert known is not None
            if known.get(link) not in fit and not (settled and link not in known):
                found.append(f"batch {batch} has file {link} of source {source}, which is not of this batch")
    return found
