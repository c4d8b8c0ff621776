"""Records as Spark gets them: the columns of the schema, and behind them what every record has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.lines import Refused
from tidegate.spec.ddl import Column, parse_ddl
from tidegate.spec.ddl_tree import Node, read_columns

RESCUED_DDL = "_rescued STRING"
"""What a record has behind its own columns with the policy ``rescue``: a JSON object of its unknown fields."""
FRAMEWORK_DDL = "_raw STRING, _position STRING, _malformed BOOLEAN, _detail STRING, _unknown ARRAY<STRING>"
"""What every record has behind its own columns."""
_FRAMEWORK = (
    ("_raw", pa.string()),
    ("_position", pa.string()),
    ("_malformed", pa.bool_()),
    ("_detail", pa.string()),
    ("_unknown", pa.list_(pa.string())),
)


@dataclass(frozen=True)
class Form:
    """How records become columns: ``ddl`` are those of the schema, ``policy`` is ``unknown_fields``, ``options`` are
    the source's for the parser, and the values of the columns ``in_folders`` are in the names of folders."""

    format: str
    ddl: str
    policy: str = "report"
    options: Mapping[str, str] = field(default_factory=dict)
    in_folders: Sequence[str] = ()

    @property
    def ending(self) -> bytes | None:
        """What ends a line; None for any end of a line."""
        ending = self.options.get("lineSep")
        return None if ending is None else ending.encode()

    @property
    def root(self) -> Node:
        """The columns that are in the records, as the fields of a struct."""
        return read_columns(self._columns(is_in_folder=False))

    @property
    def required(self) -> frozenset[str]:
        """The columns that are in the records and NOT NULL."""
        return frozenset(column.name for column in self._columns(is_in_folder=False) if not column.nullable)

    def list_in_folders(self) -> list[Column]:
        """The columns whose values are in the names of folders."""
        return self._columns(is_in_folder=True)

    def _columns(self, *, is_in_folder: bool) -> list[Column]:
        return [column for column in parse_ddl(self.ddl) if (column.name in self.in_folders) == is_in_folder]


class Found(NamedTuple):
    """Some records of a part. ``raws`` are their texts, None where they have none; ``numbers`` are those of their lines
    or rows; ``outside`` are paths of values outside of all records, which are told with the last one."""

    batch: Batch
    raws: Sequence[bytes] | None
    numbers: Sequence[int]
    outside: Sequence[str] = ()

    @classmethod
    def refused(cls, root: Node, record: Refused) -> Found:
        """A record that is not looked at, as a malformed one."""
        nothing = [pa.nulls(1, arrow_type(inner)) for _, inner in root.fields]
        raw = record.text.decode("utf-8", "replace").encode()
        return cls(Batch(nothing, {0: Wrong(record.detail, raw)}, {}), [raw], [record.number])


class Completion:
    """Puts the columns of :data:`FRAMEWORK_DDL` behind those of records."""

    def __init__(self, form: Form) -> None:
        self._policy = form.policy
        self._own = [(name, arrow_type(inner)) for name, inner in form.root.fields]

    def complete(
        self, found: Found, positions: pa.Array, others: Sequence[tuple[str, pa.Array]] = ()
    ) -> pa.RecordBatch:
        """The records with the columns ``others`` and the framework's. One without a text of its own keeps one only
        where it is malformed."""
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
