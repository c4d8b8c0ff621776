"""Some records of a part: Arrow columns, and the faults of malformed records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidegate.sources.readers.values import Fault

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
        more = f"; and {len(texts) - NAMED_AT_MOST} more" if len(texts) > NAMED_AT_MOST else ""
        detail = "; ".join(texts[:NAMED_AT_MOST]) + more
        return cls(detail.encode("utf-8", "replace").decode(), raw)


@dataclass(frozen=True)
class Batch:
    """``columns`` in the order of the schema; ``wrong`` and ``unknown`` by the place of a record in them."""

    columns: Sequence[pa.Array]
    wrong: Mapping[int, Wrong]
    unknown: Mapping[int, Sequence[str]]
    """Paths of the fields that the schema lacks."""
    rescued: Mapping[int, str] = field(default_factory=dict)
    """Those fields as JSON, with the policy ``rescue``."""

    def refuse_unknown(self, lines: Sequence[bytes]) -> dict[int, Wrong]:
        """The records with unknown fields as malformed ones (``unknown_fields: quarantine``)."""
        return {
            at: Wrong(f"fields that the schema lacks: {', '.join(names)}", lines[at])
            for at, names in self.unknown.items()
            if at not in self.wrong
        }
