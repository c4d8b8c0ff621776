"""XML files: each a text that becomes a row a record, the record's values as JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql import functions as F

from tidegate.reading.encodings import UNDECODED
from tidegate.sources.files import xml_records
from tidegate.sources.files.xml_records import Type, read_records, rules_of
from tidegate.spec.ddl import Column
from tidegate.spec.ddl_tree import Node, read_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUES, OUTSIDE = "_tidegate_values", "_tidegate_outside"
"""The values of a record as JSON; paths of values outside all records, with the first of a file."""

_RECORDS = "_tidegate_records"
_TYPE = "array<struct<raw: string, fields: string, fault: string, outside: array<string>>>"
OPTIONS = (
    *("rowTag", "attributePrefix", "valueTag", "excludeAttribute", "ignoreNamespace", "ignoreSurroundingSpaces"),
    *("nullValue", "encoding"),
)
"""Reader options that speak of XML, and not of its values."""

cloudpickle.register_pickle_by_value(xml_records)  # type: ignore[no-untyped-call]  # the workers of a cluster need not have tidegate


def split_xml(frame: DataFrame, name: str, columns: Sequence[Column], options: Mapping[str, str]) -> DataFrame:
    """``frame``, whose column ``name`` holds whole files, with a row for each of their records: ``name`` as it stands
    in the file, :data:`VALUES`, :data:`OUTSIDE` and :data:`UNDECODED`, which says why it is not a record."""
    rules = rules_of(options, tuple((column.name, _type_of(read_type(column.type))) for column in columns))

    def cut(data: bytes) -> list[tuple[str, str, str | None, list[str]]]:
        return [tuple(record) for record in read_records(bytes(data), rules)]  # type: ignore[misc]

    others = [F.col(column) for column in frame.columns if column != name]
    records = F.udf(cut, _TYPE, useArrow=False)(F.col(name).cast("binary"))
    return frame.select(*others, F.explode(records).alias(_RECORDS)).select(
        F.col(f"{_RECORDS}.raw").alias(name),
        *others,
        F.col(f"{_RECORDS}.fields").alias(VALUES),
        F.col(f"{_RECORDS}.outside").alias(OUTSIDE),
        F.col(f"{_RECORDS}.fault").alias(UNDECODED),
    )


def _type_of(node: Node) -> Type:
    return (node.kind, tuple((name, _type_of(inner)) for name, inner in node.fields))
