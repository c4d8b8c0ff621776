"""Print quarantined records for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.cli.lines import show_options
from tidegate.core.outputs import QuarantineCount, QuarantinedRecord


def show_causes(rows: Sequence[QuarantineCount]) -> None:
    """Print counts of quarantined records by cause, with an example of each."""
    if not rows:
        print("nothing")
    for row in rows:
        print(f"{row['records']:,} {row['reason']}: {row['detail'] or ''}".rstrip(": "))
        times = f"{row['first_at'][:19]} to {row['last_at'][:19]}"
        held = ", held" if row["held"] else ""
        print(f"  run {row['run_id']}{held}, source {row['source'] or 'unknown'}, {times}")
        if row["example"] is not None:
            is_seen = any(char.isprintable() and not char.isspace() for char in row["example"])
            print(f"  like: {row['example'] if is_seen else repr(row['example'])}")
        show_options(row["detail"])


def show_records(records: Sequence[QuarantinedRecord]) -> None:
    """Print quarantined records, a block each, since raw lines are too long for columns."""
    if not records:
        print("nothing")
    for record in records:
        position = record["position"]
        if isinstance(position, Mapping):
            position = " ".join(f"{key} {value}" for key, value in position.items())
        print(f"{record['reason']}: {record['detail'] or ''}")
        print(f"  from: {record['source'] or 'unknown source'} {position or ''}")
        if record["raw"] is not None:  # for a whole file, the detail says where it is kept
            print(f"  raw:  {record['raw']}")
        held = ", held: not in the quarantine table yet" if record["held"] else ""
        print(f"  run:  {record['run_id']} at {record['quarantined_at']}{held}")
        if record["id"] is not None:
            print(f"  id:   {record['id']}")
