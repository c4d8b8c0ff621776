"""Records on which the transform fails, marked as malformed before it gets them (``on_row_error: quarantine``).

A record is known by its file, or its place in a topic, and its text: equal records of one file fail alike. Every read
of a batch goes through :func:`mark_failing`, in the stream and in a second look, so that counts, records and reasons
agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class FailingRecord:
    """A record of ``source``, or ``count`` equal ones of a file; ``detail`` is why it goes to quarantine."""

    source: str
    position: str
    digest: str
    detail: str
    count: int = 1

    @property
    def key(self) -> str:
        """Its key among the records of its source: :func:`record_key` as a value."""
        return f"{self.place} {self.digest}"

    @property
    def place(self) -> str:
        """The position, of a record of a file without its line."""
        return self.position.partition("#")[0]


def record_key() -> Column:
    """The place of a parsed record and the digest of its text, with a blank between them."""
    digest = F.sha2(F.coalesce(F.col("_raw"), F.lit("")).cast("binary"), 256)
    return F.concat_ws(" ", _place(), digest)


def _place() -> Column:
    return F.substring_index("_position", "#", 1)


def mark_failing(parsed: DataFrame, source: str, failing: Sequence[FailingRecord]) -> DataFrame:
    """``parsed`` of a source with those of ``failing`` that are its records marked malformed, with their details."""
    known = {one.key: one.detail for one in failing if one.source == source}
    if not known:
        return parsed
    # A text is digested only where its file, or its place in a topic, has such a record at all.
    places = sorted({one.place for one in failing if one.source == source})
    details = F.create_map(*(F.lit(text) for pair in known.items() for text in pair))
    why = F.when(_place().isin(places), F.try_element_at(details, record_key()))
    return parsed.withColumns(
        {"_detail": F.coalesce("_detail", why), "_malformed": F.col("_malformed") | why.isNotNull()}
    )
