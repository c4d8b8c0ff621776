"""The digest of a staged file: taken when it was written, compared when it is judged and when it is published.

So the published bytes are those that were written and judged, even if the disk or the folder was damaged since.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.state import errors
from tidegate.state.manifest import StagedFile


def describe_damage(path: Path, size_bytes: int, sha256: str) -> str | None:
    """Describe how a file differs from the written one; None when it is whole. Without a digest (an earlier version of
    tidegate staged it) its size alone is compared. Raises FileNotFoundError when it is gone."""
    there = storage.stat(path).size_bytes
    if there != size_bytes:
        return f"it has {there:,} bytes, {size_bytes:,} were written"
    if sha256 and (found := storage.digest(path)) != sha256:
        return f"its sha256 is {found[:16]}..., that of what was written {sha256[:16]}..."
    return None


def is_whole(path: Path, file: StagedFile) -> bool:
    """Whether the file is there and what was written."""
    try:
        return describe_damage(path, file.size_bytes, file.sha256) is None
    except FileNotFoundError:
        return False


def check_whole(state: Path, files: Iterable[StagedFile], pipeline: str) -> None:
    """Raise DisagreementError STAGED_FILE_DAMAGED for the first of ``files`` that is not what was written."""
    for file in files:
        damage = describe_damage(state / file.path, file.size_bytes, file.sha256)
        if damage is not None:
            raise damaged(state / file.path, damage, pipeline)


def damaged(path: Path, damage: str, pipeline: str) -> DisagreementError:
    """The error for a staged file that is not what was written."""
    return errors.STAGED_FILE_DAMAGED(where=str(path), damage=damage, pipeline=pipeline)
