"""Lines of parts for executors that do not see the files of this machine: each has what its link leads to."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
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

_WITHIN_BYTES, _TOGETHER_BYTES = 64 << 10, 4 << 20
"""A file of more bytes is sent as an object, and so are all files behind the first ones with so many bytes together:
lines are in the driver's memory and in the tasks that it sends."""
_AT_ONCE = 8


def find_unseen(spark: SparkSession, paths: PipelinePaths) -> Mirror | None:
    """The working copy of a state on an object store, where tasks run on other machines; else None: they see the state
    folder."""
    return None if str(spark.sparkContext.master).startswith("local") else paths.mirror


def show_parts(parts: Sequence[Part], folder: Path, unseen: Mirror | None) -> list[str]:
    """The ``parts``, of files below ``folder``, as lines. If tasks do not see the working copy ``unseen``, each line
    has the bytes of its file, or the object that has them. Raises StoreError."""
    sent: dict[str, Sent | None] = {}
    if unseen is not None:
        links = list(dict.fromkeys(part.link for part in parts if isinstance(part, FilePart)))
        within = _choose_small(folder, links)
        with ThreadPoolExecutor(_AT_ONCE, "tidegate-sending") as pool:
            found = pool.map(lambda link: _send(folder / link, unseen, is_small=link in within), links)
            sent = dict(zip(links, found, strict=True))
    return [json.dumps(_describe(part, sent)) for part in parts]


def _describe(part: Part, sent: Mapping[str, Sent | None]) -> dict[str, object]:
    found = sent.get(part.link) if isinstance(part, FilePart) else None
    return asdict(part) if found is None else {**asdict(part), "sent": found}


def _choose_small(folder: Path, links: Iterable[str]) -> set[str]:
    """The links to files whose bytes are sent."""
    chosen, left = set[str](), _TOGETHER_BYTES
    for link in links:
        with contextlib.suppress(FileNotFoundError):  # an object, or nothing
            size = storage.stat(folder / link).size_bytes
            if size <= min(_WITHIN_BYTES, left):
                chosen.add(link)
                left -= size
    return chosen


def _send(link: Path, unseen: Mirror, *, is_small: bool) -> Sent | None:
    """What ``link`` leads to: an object of the source, the bytes of a small file, or an object with those of another
    one; None where nothing is there, which the reader reports."""
    if (pointer := read_pointer(link)) is not None:
        return {"object": pointer}
    try:
        if is_small:
            return {"content": base64.b64encode(storage.read(link)).decode()}
        return {"object": Pointer(str(unseen.share(link)), "", storage.stat(link).size_bytes, 0)}
    except FileNotFoundError:
        return None
