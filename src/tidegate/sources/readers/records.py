"""Records as Spark gets them: the columns of the schema, and behind them what every record has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.words import list_first
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.lines import Refused
from tidegate.sources.readers.values import Fault
from tidegate.spec.ddl import Node

NAMED_AT_MOST = 64
"""How many faults of a record are named; the record itself is kept."""
_PATH_CHARACTERS = 256


class Wrong(NamedTuple):
    """Why a record is malformed, and what is kept of it."""

    detail: str
    raw: bytes | None

    @classmethod
    def of(cls, faults: Sequence[Fault], raw: bytes) -> Wrong:
        """The faults as one text."""
        texts = list(dict.fromkeys(str(fault._replace(path=fault.path[:_PATH_CHARACTERS])) for fault in faults))
        return cls(list_first(texts, NAMED_AT_MOST, "; ").encode("utf-8", "replace").decode(), raw)


@dataclass(frozen=True)
class Batch:
    """``columns`` in the order of the schema; ``wrong`` and ``unknown`` by the place of a record in them."""

    columns: Sequence[pa.Array]
    wrong: Mapping[int, Wrong]
    unknown: Mapping[int, Sequence[str]]
    """Paths of the fields that the schema lacks."""
    rescued: Mapping[int, str] = field(default_factory=dict)
    """Those fields as JSON, with the policy ``rescue``."""

    def refuse_unknown(self, lines: Sequence[bytes | None]) -> dict[int, Wrong]:
        """The records with unknown fields as malformed ones (``unknown_fields: quarantine``)."""
        return {
            at: Wrong(f"fields that the schema lacks: {', '.join(names)}", lines[at])
            for at, names in self.unknown.items()
            if at not in self.wrong
        }


def arrange(
    root: Node,
    columns: Sequence[pa.Array],
    order: Sequence[int],
    others: Mapping[int, Mapping[str, object]],
    wrong: Mapping[int, Wrong],
) -> list[pa.Array]:
    """Columns of all records: those at the places ``order`` are in ``columns``, ``others`` are read one by one.

    Those that are ``wrong`` have no values. A place may be in several of them: the last one counts.
    """
    places = np.full(len(order) + len(others) + len(wrong), -1, np.int64)
    rows = [*others.values(), {}]
    for first, some in ((0, order), (len(order), others)):
        places[list(some)] = np.arange(first, first + len(some))
    places[list(wrong)] = len(order) + len(others)
    taken = pa.array(places[places >= 0])
    return [
        pa.concat_arrays([column, pa.array([row.get(name) for row in rows], arrow_type(node))]).take(taken)
        for (name, node), column in zip(root.fields, columns, strict=True)
    ]


_FRAMEWORK = (
    ("_raw", pa.string()),
    ("_position", pa.string()),
    ("_malformed", pa.bool_()),
    ("_detail", pa.string()),
    ("_unknown", pa.list_(pa.string())),
)


class Found(NamedTuple):
    """Some records of a part. ``raws`` are their texts, None where they have none; ``numbers`` are those of their lines
    or rows; ``outside`` are paths of values outside of all records, which are reported with the last one."""

    batch: Batch
    raws: Sequence[bytes | None] | None
    numbers: Sequence[int]
    outside: Sequence[str] = ()

    @classmethod
    def refused(cls, root: Node, record: Refused) -> Found:
        """A record that is not looked at, as a malformed one."""
        nothing = [pa.nulls(1, arrow_type(inner)) for _, inner in root.fields]
        raw = record.text.decode("utf-8", "replace").encode()
        return cls(Batch(nothing, {0: Wrong(record.detail, raw)}, {}), [raw], [record.number])


class Completion:
    """Puts :data:`tidegate.sources.readers.form.FRAMEWORK_DDL` behind the columns of records."""

    def __init__(self, form: Form) -> None:
        self._policy = form.policy
        self._own = [(name, arrow_type(inner)) for name, inner in form.root.fields]

    def complete(
        self, found: Found, positions: pa.Array, others: Sequence[tuple[str, pa.Array]] = ()
    ) -> pa.RecordBatch:
        """Add the columns ``others`` and the framework's. A record without a text gets one only when it is
        malformed."""
        batch, raws = found.batch, found.raws
        count, wrong = len(positions), batch.wrong
        if self._policy == "quarantine" and batch.unknown and raws is not None:
            wrong = dict(wrong) | batch.refuse_unknown(raws)
        kept = pa.nulls(count, pa.string()) if raws is None else None
        malformed, details = pa.repeat(pa.scalar(False), count), pa.nulls(count, pa.string())
        if wrong:
            given: Sequence[bytes | None] = [None] * count if raws is None else raws
            kept = pa.array([wrong[at].raw if at in wrong else raw for at, raw in enumerate(given)], pa.string())
            malformed = pa.array([at in wrong for at in range(count)], pa.bool_())
            details = pa.array([wrong[at].detail if at in wrong else None for at in range(count)], pa.string())
        unknown = pa.nulls(count, pa.list_(pa.string()))
        if batch.unknown or found.outside:
            names = [batch.unknown.get(at) for at in range(count)]
            if found.outside:
                names[-1] = [*(names[-1] or ()), *found.outside]
            unknown = pa.array(names, pa.list_(pa.string()))
        kept = pa.array(raws, pa.string()) if kept is None else kept
        if self._policy == "rescue":
            others = [("_rescued", pa.array(map(batch.rescued.get, range(count)), pa.string(), size=count)), *others]
        columns = [*batch.columns, *(column for _, column in others), kept, positions, malformed, details, unknown]
        fields = [*self._own, *((name, column.type) for name, column in others), *_FRAMEWORK]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def show_positions(place: str, numbers: Sequence[int]) -> pa.Array:
    """Where records are: ``place``, and behind it the number of the line or row of each."""
    return pc.binary_join_element_wise(place, pa.array(numbers, pa.int64()).cast(pa.string()), "")
