"""Files that cannot be read at all: a torn gzip, a parquet file without its footer, a csv header in another order.

Spark would fail the batch for ever, or with ``ignoreCorruptFiles`` lose rows in silence. Here the file itself is kept
in
``state/<name>/unreadable/``, a readable stand-in takes its place in the intake (what could be read of it: the whole
lines before the tear), and the file goes to quarantine as one malformed record.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tidegate import storage
from tidegate.spec.models import FilesSource

_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_CHUNK_BYTES = 1 << 20


def set_aside_unreadable(
    folder: Path, intake: Path, links: Iterable[str], spec: FilesSource, originals: dict[str, dict[str, Any]]
) -> list[str]:
    """Look at every link of a failed batch; put a stand-in where one cannot be read. Returns their original paths."""
    found = []
    for link in links:
        path = intake / link
        reason = why_unreadable(path, spec)
        if reason is None:
            continue
        kept = folder / _flat_name(link)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.link(path.resolve(), kept) if path.is_symlink() else os.link(path, kept)
        original = originals.get(link, {})
        record = {"link": link, "reason": reason, "kept": kept.name, **original}
        storage.put_if_absent(_record_path(folder, link), storage.dump_json(record))
        storage.replace(path, _stand_in(path, spec))
        found.append(str(original.get("path", link)))
    return found


def unreadable_record(folder: Path, link: str) -> dict[str, Any] | None:
    """{"link", "path", "size", "mtime_ns", "reason", "kept"} of a link that was set aside, else None."""
    value = storage.read_json(_record_path(folder, link))
    return dict(value) if value is not None else None


def why_unreadable(path: Path, spec: FilesSource) -> str | None:
    """Why the file cannot be read to its end, or None when it can (or is away: that is another error)."""
    try:
        if spec.format == "parquet":
            return _parquet_fault(path)
        if spec.format == "orc":
            return _orc_fault(path)
        opener = _OPENERS.get(path.suffix)
        if opener is not None:
            with opener(path) as stream:
                while stream.read(_CHUNK_BYTES):
                    pass
        if spec.format == "csv" and str(spec.options.get("header", "false")).lower() == "true":
            return _header_fault(path, spec)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _parquet_fault(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return f"not a readable parquet file: {str(error).splitlines()[0]}"
    return None


def _orc_fault(path: Path) -> str | None:
    import pyarrow as pa
    from pyarrow import orc

    try:
        file = orc.ORCFile(str(path))
        for stripe in range(file.nstripes):
            file.read_stripe(stripe)
    except (pa.ArrowException, OSError) as error:
        return f"not a readable orc file: {str(error).splitlines()[0]}"
    return None


def _header_fault(path: Path, spec: FilesSource) -> str | None:
    import csv

    from tidegate.spec.ddl import parse_ddl

    wanted = [name for name, _, _ in parse_ddl(spec.schema_ or "")]
    separator = str(spec.options.get("sep", spec.options.get("delimiter", ",")))
    with _OPENERS.get(path.suffix, open)(path) as stream:
        line = stream.readline() if path.suffix in _OPENERS else stream.readline().encode()
    names = next(csv.reader([line.decode("utf-8", "replace").lstrip("\ufeff")], delimiter=separator), [])
    if [name.strip().lower() for name in names] != [name.lower() for name in wanted] and names:
        return f"its header is {', '.join(names)}; the schema wants {', '.join(wanted)}"
    return None


def _stand_in(path: Path, spec: FilesSource) -> bytes:
    """What Spark reads instead: the whole lines before the tear, or no rows."""
    if spec.format == "parquet":
        return _empty_columnar(spec, "parquet")
    if spec.format == "orc":
        return _empty_columnar(spec, "orc")
    lines = b""
    if path.suffix in _OPENERS and _header_is_right(path, spec):
        lines = _readable_lines(path)
    compress: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    return compress.get(path.suffix, bytes)(lines)


def _header_is_right(path: Path, spec: FilesSource) -> bool:
    if spec.format != "csv" or str(spec.options.get("header", "false")).lower() != "true":
        return True
    try:
        return _header_fault(path, spec) is None
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


def _readable_lines(path: Path) -> bytes:
    data = bytearray()
    try:
        stream: BinaryIO
        with _OPENERS[path.suffix](path) as stream:
            while chunk := stream.read(4096):
                data += chunk
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        pass
    return bytes(data[: data.rfind(b"\n") + 1])


def _empty_columnar(spec: FilesSource, kind: str) -> bytes:
    """A file of no rows. One column is enough: Spark fills the missing ones with nulls, of which there are none."""
    import io

    import pyarrow as pa

    table = pa.table({"_nothing": pa.array([], pa.string())})
    sink = io.BytesIO()
    if kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, sink)
    else:
        from pyarrow import orc

        orc.write_table(table, sink)
    return sink.getvalue()


def _record_path(folder: Path, link: str) -> Path:
    return folder / f"{_flat_name(link)}.json"


def _flat_name(link: str) -> str:
    """The link's own name is unique; its k=v folders are left out."""
    return link.rsplit("/", 1)[-1]
