"""How much of a torn compressed file can be trusted, and why it cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import zipfile
import zlib
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support import avro_files
from tidegate.sources.files.forms import find_fault, form_of
from tidegate.sources.files.unreadable import EMPTY_FILES, write_readable_part
from tidegate.sources.readers.part_readers import Part, open_reader
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.models import FilesSource

_PACK = {".gz": gzip.compress, ".bz2": partial(bz2.compress, compresslevel=1)}
_UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress}


_TEXT = FilesSource(type="files", path="in", format="text")


def _text() -> bytes:
    random.seed(1)
    return b"".join(b"%d %s\n" % (number, random.randbytes(50).hex().encode()) for number in range(10_000))


def _readable(path: Path) -> bytes:
    target = path.with_name(f"part{path.suffix}")
    write_readable_part(path, target)
    return _UNPACK[path.suffix](target.read_bytes())


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_what_is_whole_is_whole(tmp_path: Path, suffix: str) -> None:
    path, text = tmp_path / f"a{suffix}", _text()
    packed = _PACK[suffix](text)
    for content, wanted in ((packed, text), (packed + packed, text + text), (packed + b"\0" * 100, text)):
        path.write_bytes(content)
        assert find_fault(path, _TEXT) is None and _readable(path) == wanted
    assert _UNPACK[suffix](EMPTY_FILES[suffix]) == b""


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_a_tear_keeps_the_lines_before_it(tmp_path: Path, suffix: str) -> None:
    path, text = tmp_path / f"a{suffix}", _text()
    packed = _PACK[suffix](text)
    for cut in (1, 5, 100, len(packed) // 2, len(packed) - 1):
        path.write_bytes(packed[:cut])
        assert re.search(
            "breaks off: the end of the file is missing$|Not a gzipped file", find_fault(path, _TEXT) or ""
        )
        lines = _readable(path)
        assert text.startswith(lines) and lines[-1:] in (b"", b"\n")
        if cut >= len(packed) // 2:
            assert len(lines) > len(text) * 0.4


def test_a_line_ends_where_the_source_says(tmp_path: Path) -> None:
    path, target = tmp_path / "a.gz", tmp_path / "part.gz"
    # Other bytes than the pieces have in which a file is read, and line breaks across their edges.
    text = b"".join(b"%d\n%s;\r\n" % (number, random.randbytes(40).hex().encode()) for number in range(10_000))
    path.write_bytes(gzip.compress(text)[:-9])
    write_readable_part(path, target, b";\r\n")
    found = gzip.decompress(target.read_bytes())
    assert text.startswith(found) and found.endswith(b";\r\n") and len(found) > len(text) - 200


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_nothing_unverified_is_trusted_when_a_checksum_fails(tmp_path: Path, suffix: str) -> None:
    """Every letter of what is kept was written so: a flipped bit gives wrong letters long before the checksum."""
    path, text = tmp_path / f"a{suffix}", _text()
    packed = _PACK[suffix](text)
    for at in range(len(packed) // 10, len(packed), len(packed) // 7):
        broken = bytearray(packed + packed)
        broken[len(packed) + at] ^= 4
        path.write_bytes(broken)
        assert "data does not fit: " in str(find_fault(path, _TEXT))
        lines = _readable(path)
        assert (text + text).startswith(lines) and len(lines) >= len(text)
    path.write_bytes(b"neither of the two")
    assert "data does not fit: " in str(find_fault(path, _TEXT))
    assert _readable(path) == b""


def _blocks(pieces: list[tuple[int, list[bytes]]]) -> bytes:
    """Hadoop's framing: (length of a block's text, its packed pieces)."""
    lengths = [(size.to_bytes(4), [len(one).to_bytes(4) + one for one in packed]) for size, packed in pieces]
    return b"".join(head + b"".join(body) for head, body in lengths)


def _pack_blocks(suffix: str, text: bytes) -> bytes:
    """As Hadoop writes it: 256 KiB of text in a block of one piece; and a block of three pieces at the end."""
    codec = pa.Codec({".lz4": "lz4_raw", ".snappy": "snappy"}[suffix])
    cuts = [text[at : at + (1 << 18)] for at in range(0, len(text), 1 << 18)]
    blocks = [(len(cut), [codec.compress(cut, asbytes=True)]) for cut in cuts]
    last = [text[:1000], text[1000:70_000], text[70_000:70_001]]
    return _blocks([*blocks, (70_001, [codec.compress(one, asbytes=True) for one in last])])


@pytest.mark.parametrize("suffix", [".snappy", ".lz4"])
def test_blocks_of_hadoop_are_whole_or_are_refused(tmp_path: Path, suffix: str) -> None:
    """Spark reads what it can make out of them, without an error: 0 rows of a torn file of 3,000."""
    path, spec = tmp_path / f"a{suffix}", _TEXT
    whole = _pack_blocks(suffix, _text())
    for content in (whole, whole + whole, b"", bytes(4)):  # Spark writes the last for a part without rows
        path.write_bytes(content)
        assert find_fault(path, spec) is None
    for cut in (1, 3, 4, 7, 8, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert find_fault(path, spec), cut
    for content in (
        whole + bytes(4),
        bytes(8),
        bytes(4) + whole,
        whole + bytes(3),
        whole + b"garbage behind",
        whole[:8] + whole[9:],
    ):
        path.write_bytes(content)
        assert find_fault(path, spec)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.lz4", "lz4"), ("a.lz4", "lz4_raw"), ("a.snappy", "snappy"), ("a.lz4", None), ("a.snappy", None)],
)
@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_other_framings_are_refused_with_a_way_out(tmp_path: Path, name: str, codec: str | None, size: int) -> None:
    path, text = tmp_path / name, _text()[:size]
    path.write_bytes(text if codec is None else pa.compress(text, codec, asbytes=True))
    why = find_fault(path, FilesSource(type="files", path="in", format="json", schema="id INT"))
    assert why is not None and "write .gz or .zst" in why


def test_bzip2_data_is_whole_or_is_refused(tmp_path: Path) -> None:
    """Spark looks for the next block that it knows, and says nothing when there is none."""
    path, spec = tmp_path / "a.bz2", _TEXT
    text = _text()
    whole = bz2.compress(text, 1)
    for content in (whole, whole + whole, bz2.compress(b"")):
        path.write_bytes(content)
        assert find_fault(path, spec) is None
    flipped = bytearray(whole)
    flipped[6] ^= 16
    for content in (
        text,
        whole + b"behind",
        whole[:4],
        whole[:9],
        whole[: len(whole) // 2],
        whole[:-10],
        whole[:-1],
        bytes(flipped),
    ):
        path.write_bytes(content)
        assert "bzip2 data" in str(find_fault(path, spec))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".deflate", ".zst", ".snappy", ".lz4"])
def test_the_reader_and_what_is_said_of_a_file_agree(tmp_path: Path, suffix: str) -> None:
    """A file is looked at when a batch has failed: what was read without a fault must have none then."""
    path, text = tmp_path / f"a{suffix}", _text()
    spec = _TEXT
    others = {".deflate": zlib.compress, ".zst": partial(pa.compress, codec="zstd", asbytes=True)}
    whole = ({**_PACK, **others}.get(suffix) or partial(_pack_blocks, suffix))(text)
    plain = text + (text[:70_001] if suffix in (".snappy", ".lz4") else b"")
    for count in (1, 2):
        path.write_bytes(whole * count)
        assert find_fault(path, spec) is None and _count_read(path, spec) == len((plain * count).splitlines())
    torn = [whole[:cut] for cut in (*range(1, 10), 20, len(whole) // 2, *(len(whole) - less for less in (10, 3, 1)))]
    for content in (*torn, *(whole + one for one in torn), whole + b"garbage behind"):
        path.write_bytes(content)
        assert find_fault(path, spec) is not None, len(content)
        with pytest.raises(PartUnreadable):
            _count_read(path, spec)


@pytest.mark.parametrize(("suffix", "is_whole"), [(".gz", False), (".bz2", False), (".deflate", False), (".zst", False),
                                                  (".snappy", True), (".lz4", True)])  # fmt: skip
def test_a_file_of_no_bytes_is_whole_where_writers_leave_one(tmp_path: Path, suffix: str, is_whole: bool) -> None:
    path = tmp_path / f"a{suffix}"
    path.touch()
    if is_whole:
        assert find_fault(path, _TEXT) is None and _count_read(path, _TEXT) == 0
        return
    assert "breaks off" in str(find_fault(path, _TEXT))
    with pytest.raises(PartUnreadable, match="breaks off"):
        _count_read(path, _TEXT)


def _count_read(path: Path, spec: FilesSource) -> int:
    found = open_reader(form_of(spec)).read(Part(str(path), 0, None))
    return sum(len(some.numbers) for some in found)


@pytest.mark.parametrize("name", ["a.json", "a", "a.xz", "a.json.zip"])
def test_compressed_files_under_another_name_are_said_to_be(tmp_path: Path, name: str) -> None:
    spec = FilesSource(type="files", path="in", format="json", schema="id INT")
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a", "{}")
    packed = {
        "gzip": gzip.compress(b"{}"),
        "bzip2": bz2.compress(b"{}"),
        "zstd": pa.compress(b"{}", "zstd", asbytes=True),
        "lz4": pa.compress(b"{}", "lz4", asbytes=True),
        "xz": lzma.compress(b"{}"),
        "a zip archive": zipped.getvalue(),
    }
    path = tmp_path / name
    for kind, content in packed.items():
        path.write_bytes(content)
        assert str(find_fault(path, spec)).startswith(f"it is {kind}")
    path.write_bytes(b"{}")
    assert find_fault(path, spec) is None


def test_torn_avro_files_are_found_without_a_record_being_read(tmp_path: Path) -> None:
    """All of them at once, when a batch has failed for one: also where the header is whole."""
    source = FilesSource(type="files", path="in", format="avro", schema="n INT")
    schema = avro_files.record({"n": "long"})
    whole, path = avro_files.pack(schema, [{"n": n} for n in range(20)]), tmp_path / "a.avro"
    path.write_bytes(whole)
    assert find_fault(path, source) is None
    path.write_bytes(whole[:-10])
    assert re.search("the block at byte|cut off", find_fault(path, source) or "")
    path.write_bytes(whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:])
    assert "does not end with the file's sync marker" in (find_fault(path, source) or "")
