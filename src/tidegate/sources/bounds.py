"""Limits on the size of a record: a worker holds several copies of each, and one that is too large would end it."""

from __future__ import annotations

LONGEST_RECORD_BYTES = 8 << 20
"""A driver of 1 GiB can read records of this size, several at a time (docs/how-to/size-it.md)."""

TOO_LARGE = f"the limit is {LONGEST_RECORD_BYTES:,} bytes"
"""The end of the message for a larger record. Quarantine has only its beginning, so its file is kept."""

CUT_CHARACTERS = 1000
"""How much text quarantine keeps of a longer Kafka record: the topic has all of it."""

MANY_VALUES = 2_000_000
"""A JSON record with more commas is not parsed: each element of an array takes some hundred bytes in memory. Two tasks
with arrays of 4 million numbers each, 8 MiB of text, end a driver of 1 GiB; 2 million passed."""
