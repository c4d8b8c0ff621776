"""Lines of parts for executors that do not see the files of this machine: each has what its link leads to."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
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
    if unseen is None:
        return [json.dumps(asdict(part)) for part in parts]
    with ThreadPoolExecutor(_AT_ONCE, "tidegate-sending") as pool:
        return list(pool.map(partial(_show_whole, folder=folder, unseen=unseen), parts))


def _show_whole(part: Part, folder: Path, unseen: Mirror) -> str:
    line = asdict(part)
    if isinstance(part, FilePart):
        with contextlib.suppress(FileNotFoundError):  # its reader reports it
            line["sent"] = _send(folder / part.link, unseen)
    return json.dumps(line)


def _send(link: Path, unseen: Mirror) -> Sent:
    """What ``link`` leads to: an object of the source, the bytes of a small file, or the object of a large one."""
    if (pointer := read_pointer(link)) is not None:
        return {"object": pointer}
    size = storage.stat(link).size_bytes
    if size <= _WITHIN_BYTES:
        return {"content": base64.b64encode(storage.read(link)).decode()}
    return {"object": Pointer(str(unseen.share(link)), "", size, 0)}
