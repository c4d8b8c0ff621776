"""Lines of parts for executors that do not see the files of this machine: each has what its link leads to."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.readers.links import Pointer, Sent, read_pointer
from tidegate.state.topics import FilePart, Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.core.storage.mirror import Mirror

_WITHIN_BYTES = 64 << 10
"""A file of more bytes is sent as an object: lines are held in the driver's memory."""
_AT_ONCE = 8


def find_unseen(spark: SparkSession, paths: PipelinePaths) -> Mirror | None:
    """The working copy of a state on an object store, where tasks run on other machines; else None: they see the state
    folder."""
    return None if str(spark.sparkContext.master).startswith("local") else paths.mirror


def show_parts(parts: Sequence[Part], folder: Path, unseen: Mirror | None) -> list[str]:
    """The ``parts``, of files below ``folder``, as lines; with what tasks do not see of the working copy ``unseen``.
    Raises StoreError."""
    sent: dict[str, Sent | None] = {}
    if unseen is not None:
        links = list(dict.fromkeys(part.link for part in parts if isinstance(part, FilePart)))
        with ThreadPoolExecutor(_AT_ONCE, "tidegate-sending") as pool:
            sent = dict(zip(links, pool.map(lambda link: _send(folder / link, unseen), links), strict=True))
    return [json.dumps(_describe(part, sent)) for part in parts]


def _describe(part: Part, sent: Mapping[str, Sent | None]) -> dict[str, object]:
    found = sent.get(part.link) if isinstance(part, FilePart) else None
    return asdict(part) if found is None else {**asdict(part), "sent": found}


def _send(link: Path, unseen: Mirror) -> Sent | None:
    """What ``link`` leads to: an object of the source, the bytes of a small file, or the object of a large one; None
    where nothing is there, which the reader reports."""
    if (pointer := read_pointer(link)) is not None:
        return {"object": pointer}
    try:
        size = storage.stat(link).size_bytes
    except FileNotFoundError:
        return None
    if size <= _WITHIN_BYTES:
        return {"content": base64.b64encode(storage.read(link)).decode()}
    return {"object": Pointer(str(unseen.share(link)), "", size, 0)}
