"""Decide which quarantined records can be replayed exactly, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.rework.backfill.lineage import Increment
from tidegate.sources.bounds import TOO_LARGE
from tidegate.spec.models import PipelineSpec
from tidegate.spec.record_texts import why_no_text
from tidegate.table.quarantine.filters import WITHOUT_RULE

_NO_TEXT = "they have no text: a whole file in quarantine, or an empty value"


def why_not(row: Mapping[str, Any], spec: PipelineSpec, edited: str | None) -> str | None:
    """Explain why a record cannot be replayed, in words that follow a count; None when it can. ``edited`` is the text
    that a person gave it."""
    source = row["source"]
    if row["reason"] == "late":
        return "they came late: their window or join is closed"
    if source is None:
        return "their records are unknown, because the transform does not keep them"
    stream = spec.record_streams.get(str(source))
    if stream is None:
        return f"the pipeline has no source {source} any more"
    if row["raw"] is None and (edited is None or stream.takes_files):
        return _NO_TEXT
    return why_no_text(stream, edited) or _why_other_text(row, edited)


def _why_other_text(row: Mapping[str, Any], edited: str | None) -> str | None:
    """Explain why ``raw`` is not the record as it came; None where it is."""
    detail = str(row["detail"] or "") if row["reason"] == "malformed" and edited is None else ""
    if detail.startswith("not valid ") and not detail.startswith("not valid JSON"):
        return "their bytes are not a text, and quarantine has them in base64: give the text with --file"
    if TOO_LARGE in detail:
        return "they are too large, and quarantine has only their beginning"
    return None


def why_not_batches(row: Mapping[str, Any], found: Sequence[Increment | None], *, is_unpublished: bool) -> str | None:
    """Explain why the batches of a record prevent its replay; None when they do not.

    ``found`` are the publishes of the batches, None for an unknown one; ``is_unpublished``: one of them is not
    published yet."""
    if is_unpublished:
        return "their run is not over: it is held or still running"
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return "the table's log does not contain their run"
    if row["reason"] in WITHOUT_RULE:
        return None
    if any(one.rows.get("transformed", 1) > one.rows.get("entered", 0) for one in known):
        return "a rule rejected one row of several, and the other rows of their records are in the table"
    return None
