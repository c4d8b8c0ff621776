"""Of which sources quarantine has a record as it came, as a text that becomes the same record again."""

from __future__ import annotations

import base64
import binascii

from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, KafkaSource


def why_no_text(stream: FilesSource | KafkaSource, edited: str | None) -> str | None:
    """Why a record of ``stream`` cannot be made of its text, in words that stand behind a count; None when it can.
    ``edited`` is a text that a person wrote."""
    if isinstance(stream, FilesSource):
        return _why_not_files(stream)
    return _why_not_topics(stream, edited)


def _why_not_files(stream: FilesSource) -> str | None:
    if stream.format in SELF_DESCRIBING_FORMATS:
        return f"records of {stream.format} files have no text of their own"
    return None


def _why_not_topics(stream: KafkaSource, edited: str | None) -> str | None:
    if stream.metadata:
        return "their keys, times and headers are not in quarantine, and the transform is given them (metadata: true)"
    if stream.format == "raw" and edited is not None:
        try:
            base64.b64decode(edited, validate=True)
        except (binascii.Error, ValueError):
            return "values of format raw are in base64 here, and the edited text is not"
    return None
