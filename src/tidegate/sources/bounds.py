"""How large a record may be: a worker holds each several times over, and one that is too large would end it."""

from __future__ import annotations

LONGEST_RECORD_BYTES = 8 << 20
"""A driver of 1 GiB reads records of so many bytes, several at a time (docs/how-to/size-it.md)."""

TOO_LARGE = f"the limit is {LONGEST_RECORD_BYTES:,} bytes"
"""What is said of every record that is larger. Quarantine has no more than its beginning, so its file is kept."""

CUT_CHARACTERS = 1000
"""What quarantine keeps of the text of a Kafka record that is longer: the topic has the whole."""

MANY_VALUES = 2_000_000
"""A JSON record with more commas is not parsed: each element of an array takes some hundred bytes in memory. Two tasks
with arrays of 4 million numbers each, 8 MiB of text, end a driver of 1 GiB; 2 million passed."""
