"""Which files a batch takes: each once, whoever plans, within the limits, and all bytes of each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_kafka import write_list, write_offsets
from tests.support.sweep import examples
from tidegate.sources.files.batch_plan import Limits, divide, write_batches
from tidegate.sources.port import Cut
from tidegate.sources.readers.lines import PART_BYTES
from tidegate.spec.models import FilesSource
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import FilePart

JSON = FilesSource(type="files", path="in", format="json", schema="id INT")

ALL = Limits()


class Query:
    """An intake with files of some sizes, and the batch files of a query."""

    def __init__(self, root: Path, **sizes: int) -> None:
        self.intake, self.files = root / "intake", BatchFiles(root / "checkpoint", "s")
        self.intake.mkdir()
        self.waiting: list[str] = []
        self.add(**sizes)

    def add(self, **sizes: int) -> None:
        for link, size in sizes.items():
            (self.intake / link).write_bytes(b"x" * size)
            self.waiting.append(link)

    def write(self, limits: Limits = ALL, check: Any = lambda: None) -> list[list[str]]:
        """The links of each file that is there then."""
        write_batches(self.files, self.intake, self.waiting, JSON, limits, check)
        return self.links()

    def links(self) -> list[list[str]]:
        return [self.files.read(number).links for number in self.files.numbers()]

    def plan(self, *, committed: bool = True) -> None:
        """Spark takes the next file; what it reads is staged then."""
        number, batch = self.files.last_planned() + 1, self.files.last_planned() + 1
        (self.files.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.files.checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        write_list(self.files.checkpoint, "s", [self.files.path(number)])
        write_offsets(self.files.checkpoint, batch)
        if committed:
            (self.files.checkpoint / "commits" / str(batch)).touch()
            taken = self.files.read(number).links
            self.waiting = [link for link in self.waiting if link not in taken]


@settings(deadline=None, max_examples=examples(60))
@given(
    looks=st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=4),
    limits=st.one_of(
        st.builds(Limits), st.builds(Limits, files=st.integers(1, 4)), st.builds(Limits, bytes=st.integers(1, 90))
    ),
    taken=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    in_flight=st.booleans(),
)
def test_each_file_is_in_one_batch(
    tmp_path_factory: pytest.TempPathFactory, looks: list[list[int]], limits: Limits, taken: list[int], in_flight: bool
) -> None:
    query = Query(tmp_path_factory.mktemp("query"))
    sizes: dict[str, int] = {}
    for look, (found, batches) in enumerate(zip(looks, taken, strict=False)):
        new = {f"{look}-{number}": size for number, size in enumerate(found)}
        sizes |= new
        query.add(**new)
        query.write(limits)
        for _ in range(min(batches, len(query.files.list_open()))):
            query.plan()
    if in_flight and query.files.list_open():
        query.plan(committed=False)
        query.write(limits)
    assert [link for batch in query.links() for link in batch] == list(sizes)
    for batch in query.links():
        assert limits.files is None or len(batch) <= limits.files
        assert limits.bytes is None or len(batch) < 2 or sum(sizes[link] for link in batch) <= limits.bytes


def test_as_many_files_as_fit(tmp_path: Path) -> None:
    query = Query(tmp_path, a=2, b=2, c=1, d=9, e=1)
    assert query.write(Limits(bytes=4)) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert [query.files.path(number).stat().st_mtime_ns for number in (0, 1)] == [10**18, 10**18 + 10**9]
    os.utime(query.files.path(0), ns=(2 * 10**18, 2 * 10**18))  # a copy that was restored without times
    query.write()
    assert query.files.path(0).stat().st_mtime_ns == 10**18


def test_a_limit_that_has_become_smaller_counts_for_what_nobody_has_begun(tmp_path: Path) -> None:
    query = Query(tmp_path, a=1, b=1, c=1)
    assert query.write(Limits(files=3)) == [["a", "b", "c"]]
    assert query.write(Limits(files=2)) == [[], ["a", "b"], ["c"]]
    assert query.write(Limits(files=9)) == [[], ["a", "b"], ["c"], []]


def test_a_file_that_is_gone_is_planned_no_more(tmp_path: Path) -> None:
    """Of a batch that Spark has not planned; the files behind it are planned again."""
    query = Query(tmp_path, a=1, b=1, c=1, d=1)
    assert query.write(Limits(files=1)) == [["a"], ["b"], ["c"], ["d"]]
    query.plan()
    query.waiting.remove("c")
    assert query.write(Limits(files=2)) == [["a"], ["b"], [], [], ["d"]]


def test_a_file_that_spark_has_listed_and_not_planned_stays(tmp_path: Path) -> None:
    """Spark was killed between its list and its plan: it will read the batch file, which must be there."""
    query = Query(tmp_path, a=1, b=1)
    query.write(Limits(files=1))
    query.plan()
    write_list(query.files.checkpoint, "s", [query.files.path(1)])
    query.waiting.remove("b")
    assert query.write() == [["a"], [], []]
    query.add(c=1)
    assert query.write() == [["a"], [], [], ["c"]]


@pytest.mark.parametrize("comes_more", [False, True])
def test_two_that_plan_at_once_agree(tmp_path: Path, comes_more: bool) -> None:
    """A stale process finds its number taken, and may not remove what it does not know."""
    query, checks = Query(tmp_path, a=1, b=1, c=1, d=1), 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:  # a new run has the lease, after this was looked at
            if comes_more:
                query.add(e=1)
            query.write(Limits(files=2))
        elif checks > 3:
            raise LookupError

    if comes_more:
        with pytest.raises(LookupError):
            query.write(Limits(files=1), check)
    else:
        query.write(Limits(files=1), check)
    assert query.links() == [["a"], ["b", "c"], ["d", "e"] if comes_more else ["d"]]


@pytest.mark.parametrize("has_new", [False, True])
def test_a_stale_process_adds_nothing_behind_a_file_that_is_gone(tmp_path: Path, has_new: bool) -> None:
    """It was about to put file 1 when ``a`` vanished."""
    query = Query(tmp_path, a=1)
    query.write(Limits(files=1))
    query.waiting.remove("a")
    if has_new:
        query.add(b=1)
    query.write(Limits(files=2))
    stale = BatchFile(1, parts=[FilePart("c")])
    assert query.files.put(stale) != stale
    assert query.links() == [[], ["b"] if has_new else []]


def test_a_batch_of_a_stale_process_with_a_file_that_was_read_is_dropped(tmp_path: Path) -> None:
    query, checks = Query(tmp_path, a=1, b=1), 0
    query.write(Limits(files=1))
    query.plan()
    query.plan()
    query.add(c=1)

    def stale() -> None:
        nonlocal checks
        checks += 1
        if checks == 1:
            query.files.put(BatchFile(2, parts=[FilePart("b"), FilePart("c")]))

    assert query.write(check=stale) == [["a"], ["b"], [], ["c"]]


@pytest.mark.parametrize(
    ("link", "keys", "cuts"),
    [
        ("0.json", {}, [0, PART_BYTES, 2 * PART_BYTES]),
        ("0.json.gz", {}, [0]),
        ("0.parquet", {"format": "parquet"}, [0, PART_BYTES, 2 * PART_BYTES]),
        ("0.gz", {"format": "parquet"}, [0, PART_BYTES, 2 * PART_BYTES]),
        ("0.json", {"options": {"lineSep": ";"}}, [0]),
        ("0.text", {"format": "text", "options": {"wholetext": True}}, [0]),
        ("0.xml", {"format": "xml", "options": {"rowTag": "a"}}, [0]),
        ("0.json", {"options": {"multiLine": True}}, [0]),
        ("0.json", {"options": {"encoding": "UTF-16"}}, [0]),
    ],
)
def test_large_files_are_divided(link: str, keys: dict[str, Any], cuts: list[int]) -> None:
    spec = JSON.replace(**keys)
    parts = list(divide(link, 2 * PART_BYTES + 1, spec))
    assert [part.begin for part in parts] == cuts
    assert [part.end for part in parts] == [*cuts[1:], None], "the last part ends where the file does"
    assert [len(list(divide(link, size, spec))) for size in (0, 1, PART_BYTES)] == [1, 1, 1]


def test_what_the_spec_leaves_open_is_cut_by_size_where_that_may_be() -> None:
    bounded = JSON.replace(options={"maxFilesPerTrigger": "7"})
    assert Limits.of(JSON, Cut.BY_SIZE) == Limits(bytes=512 << 20) and Limits.of(JSON, Cut.BY_OPTIONS) == ALL
    assert Limits.of(bounded, Cut.BY_SIZE) == Limits.of(bounded, Cut.BY_OPTIONS) == Limits(files=7)
    assert Limits.of(bounded, Cut.NOWHERE) == ALL
