"""Do the checkpoint, the batch's manifest, the ledger and the table's log agree on a batch?

Spark continues where its last batch ends, whatever number or file is there. Each of the others was written from what
the batch really took. Pure: a function of :class:`~tidegate.runs.preflight.facts.Facts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tidegate.runs.preflight.facts import Facts
from tidegate.state.batch_files import Given
from tidegate.state.topics import Offsets, positions_from_json


def find_divergence(facts: Facts, batch: int) -> list[str]:
    """Where the checkpoint says something else about ``batch`` than the others do; each is compared as far as it is
    there."""
    found = list(_backwards(facts, batch))
    for name, begins, ends, where in _known_offsets(facts, batch):
        found += _compare_offsets(facts, batch, name, begins, ends, where)
    return found + _compare_files(facts, batch) + _compare_ledger(facts, batch)


def _backwards(facts: Facts, batch: int) -> Iterator[str]:
    for name, taken in facts.given[batch].items():
        if taken.is_backwards:
            yield f"batch {batch} of source {name} ends before it begins"


def _known_offsets(facts: Facts, batch: int) -> Iterator[tuple[str, Offsets, Offsets, str]]:
    """(source, where its ranges begin, as far as that is known, and where they end, by whom)."""
    for manifest in facts.manifests.get(str(facts.query_id), ()):
        if manifest.batch_id == batch:
            for name, taken in manifest.sources.items():
                if taken.offsets is not None:
                    begins = {partition: one.begin for partition, one in taken.offsets.items()}
                    ends = {partition: one.end for partition, one in taken.offsets.items()}
                    yield name, begins, ends, "its manifest"
    note = facts.published
    if note is not None and (note.query_id, note.batch_id) == (facts.query_id, batch):
        for name, ends in (note.positions or {}).items():
            yield name, {}, ends, "the note of its publish"
    commit = facts.table.metadata if facts.table is not None else {}
    if commit.get("tidegate.query_id") == facts.query_id and commit.get("tidegate.positions"):
        _, last = json.loads(commit["tidegate.batches"])
        if last == batch:
            for name, ends in positions_from_json(json.loads(commit["tidegate.positions"])).items():
                yield name, {}, ends, "the table's log"


def _compare_offsets(facts: Facts, batch: int, source: str, begins: Offsets, ends: Offsets, where: str) -> list[str]:
    """Each partition that the batch file names must be where ``begins`` and ``ends`` say."""
    given = facts.given[batch].get(source, Given())
    if given.is_former:
        return []
    found = []
    for partition, until in given.ends.items():
        start, known_start, known_until = given.begins.get(partition), begins.get(partition), ends.get(partition)
        if until != known_until or (None not in (start, known_start) and start != known_start):
            found.append(
                f"batch {batch} has offsets {_show(start, until)} of {partition} of source {source}, "
                f"and {where} has {'none' if known_until is None else _show(known_start, known_until)}"
            )
    if where == "its manifest":  # a commit may hold batches of when there were more topics
        given_topics = {topic for topic, _ in given.ends}
        gone = dict.fromkeys(topic for topic, _ in ends if topic not in given_topics)
        found += [f"batch {batch} lacks topic {topic} of source {source}, and {where} has it" for topic in gone]
    return found


def _show(start: int | None, until: int) -> str:
    return f"up to {until}" if start is None else f"{start} to {until}"


def _compare_files(facts: Facts, batch: int) -> list[str]:
    given = facts.given[batch]
    return [
        f"batch {batch} has other files of source {name} than its manifest"
        for manifest in facts.manifests.get(str(facts.query_id), ())
        if manifest.batch_id == batch
        for name, taken in manifest.sources.items()
        if taken.files is not None
        and sorted(file["link"] for file in taken.files) != list(given[name].links if name in given else ())
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


def list_files_missing_from_ledger(facts: Facts, batch: int) -> list[str]:
    """The files of a batch which the table's log holds, and the ledger does not: it is an older copy."""
    if batch > facts.settled_up_to(str(facts.query_id)) or facts.taken_links is None:
        return []
    return [
        link
        for source, taken in facts.given[batch].items()
        for link in taken.links
        if facts.taken_links.get(source, {}).get(link) == (None, None)
    ]
