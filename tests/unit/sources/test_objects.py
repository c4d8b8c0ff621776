"""Objects of a store as a source: what is listed, what identifies an object, and how one is read by ranges."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import PermissionDeniedError
from pyarrow import orc

from tests.support import avro_files
from tests.support.faulty_store import FaultyStore, seeded, use_store
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.core import storage
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.core.storage import range_file
from tidegate.core.storage.faults import ObjectChangedError, StoreError
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.user_objects import StoredObject, list_below
from tidegate.sources.files import intake
from tidegate.sources.files.batch_plan import divide_files
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.findings import note_first_look, note_scan
from tidegate.sources.files.forms import find_fault, form_of
from tidegate.sources.files.ledger import is_retired, piece_number, shown_path
from tidegate.sources.files.listing import list_source
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.files.unreadable import find_unreadable, kept_file, quarantine_whole, read_whole_again
from tidegate.sources.readers import links
from tidegate.sources.readers.links import Pointer, open_link, read_pointer
from tidegate.sources.readers.part_readers import Part, open_reader
from tidegate.sources.readers.unreadable import REPLACED, PartUnreadable, StoreFault
from tidegate.spark.driver.failures import explain, is_object_fault, is_read_fault, is_row_fault
from tidegate.spec.models import FilesSource

TOP = "s3://bucket/in"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    made = FaultyStore()
    use_store(monkeypatch, made)
    return made


@pytest.fixture
def inbox(tmp_path: Path, store: FaultyStore) -> Iterator[Inbox]:
    with make_inbox(tmp_path, path=TOP) as made:
        yield made


def put(store: FaultyStore, key: str, data: bytes = b"{}\n") -> None:
    store.inside.put(key, data)


def point(tmp_path: Path, store: FaultyStore, name: str, data: bytes) -> Path:
    """A link to a new object."""
    put(store, f"in/{name}", data)
    link = tmp_path / "links" / name
    Pointer.of(f"{TOP}/{name}", list_source(TOP).files[0][1]).link(link)  # type: ignore[arg-type]
    return link


# Lists

KEYS = [
    *("a.json", "b.json.gz", "_hidden.json", ".dot.json", "c.json.tmp", "d.JSON.Part", "empty.json", "x[1] ä%41.json"),
    *("day=1/e.json", "day=1/_f.json", "day=1/city=x%2Fy/g.json", "_tmp/h.json", ".git/i.json", "_k=v/j.json"),
    *("sub/k.json", "sub/day=2/l.json", "sub/deep/er/m.json", ".tidegate-archive/n.json", "2024-01/o.json"),
    *("2024-01/_p/q.json", "2024-02/r.csv", "_2024/s.json", "day=1/day=2/t.json"),
]
PATTERNS = [
    *("", "/", "/*", "/*.json", "/**", "/**/*.json", "/sub", "/sub/*", "/20*/*.json", "/2024-0?/*", "/*/day=2"),
    *("/[ds]*", "/**/er/*.json", "/_tmp/*", "/*/*/*", "/sub/**/m.json", "/**/day=*", "/day=1/*"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("deep", [False, True])
def test_a_prefix_is_listed_as_the_same_folder_on_a_disk(
    tmp_path: Path, store: FaultyStore, pattern: str, deep: bool
) -> None:
    for key in KEYS:
        data = b"" if key == "empty.json" else b"{}"
        put(store, f"in/{key}", data)
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / key).write_bytes(data)
    put(store, "in-other/no.json")
    put(store, "other/no.json")
    found = {}
    for top in (f"{tmp_path}/in", TOP):
        listing = list_source((top + pattern).rstrip("/"), is_recursive=deep, name_filter="*[!v]")
        sizes = {path.removeprefix(top): one.st_size for path, one in listing.files}
        skipped = {one.path.removeprefix(top): one.why for one in listing.skipped if not one.why.startswith("hidden f")}
        found[top] = listing.base.removeprefix(top), sizes, skipped
    assert found[TOP] == found[f"{tmp_path}/in"]
    assert found[TOP][1] or pattern == "/*/day=2"


def test_the_object_that_marks_the_folder_of_the_source_is_none(store: FaultyStore, inbox: Inbox) -> None:
    """S3 lists `in/` below the prefix `in/`, and the client leaves out the slash."""
    put(store, "in/a.json")
    put(store, "in", b"")
    marker = store.inside.head("in")
    real = store.list

    def list_with_marker(prefix: str | None = None, **more: Any) -> Iterator[Any]:
        return iter([[marker, *page] for page in real(prefix, **more)])

    store.list = list_with_marker  # type: ignore[method-assign]
    listing = list_source(TOP, is_recursive=True)
    assert ([path for path, _ in listing.files], listing.skipped) == ([f"{TOP}/a.json"], [])


def test_hidden_folders_are_named_once(store: FaultyStore) -> None:
    for key in ("_tmp/a.json", "_tmp/b.json", "c.json"):
        put(store, f"in/{key}")
    [skipped] = list_source(TOP).skipped
    assert (skipped.path, skipped.why[:13]) == (f"{TOP}/_tmp", "hidden folder")


def test_one_object_is_a_source_too(store: FaultyStore) -> None:
    put(store, "in/a.json")
    [(path, _)] = list_source(f"{TOP}/a.json").files
    assert path == f"{TOP}/a.json"


def test_a_list_costs_one_request_and_outlasts_faults(store: FaultyStore, inbox: Inbox) -> None:
    for number in range(5):
        put(store, f"in/{number}.json")
    note_first_look(inbox.ledger, SOURCE, inbox.spec, inbox.scan())
    inbox.admit()
    store.requests.clear()
    assert inbox.scan().new == ()
    assert store.requests == ["list"]
    store.choose = seeded(1, 0.5)
    assert inbox.scan().new == ()


@pytest.mark.parametrize("table", ["in", "in/sub=1", ""])
def test_the_objects_of_a_table_are_refused(store: FaultyStore, inbox: Inbox, table: str) -> None:
    put(store, f"{table}/a.parquet".lstrip("/"))
    put(store, f"{table}/_delta_log/00000000000000000000.json".lstrip("/"))
    with pytest.raises(UsageError) as caught:
        inbox.scan()
    assert caught.value.code == "SOURCE_IS_TABLE"
    assert f"s3://bucket/{table}".rstrip("/") in caught.value.message


class OnePrefix(FaultyStore):
    """A store of which a policy allows only what is below ``in/``."""

    def _check(self, prefix: str | None) -> None:
        if not (prefix or "").startswith("in/"):
            raise PermissionDeniedError("status code: 403 Forbidden: <Code>AccessDenied</Code>")

    def get(self, path: str, *, options: Any = None) -> Any:
        self._check(path)
        return super().get(path, options=options)

    def list(self, prefix: str | None = None, *, chunk_size: int = 50, offset: str | None = None) -> Iterator[Any]:
        self._check(prefix)
        return super().list(prefix, chunk_size=chunk_size, offset=offset)

    def list_with_delimiter(self, prefix: str | None = None) -> Any:
        self._check(prefix)
        return super().list_with_delimiter(prefix)


def test_the_rights_for_its_own_prefix_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = OnePrefix()
    use_store(monkeypatch, store)
    with make_inbox(tmp_path, path=TOP) as inbox:
        assert inbox.scan().new == ()
        put(store, "in/a.json")
        assert len(inbox.admit().links) == 1
    with make_inbox(tmp_path / "2", path="s3://bucket/other") as inbox:
        with pytest.raises(StoreError, match="AccessDenied"):
            inbox.scan()


def test_a_local_file_cannot_lead_a_reader_to_an_object(tmp_path: Path, store: FaultyStore) -> None:
    put(store, "in/secret.json", b"secret")
    with make_inbox(tmp_path) as inbox:
        target = f'tidegate-object/["{TOP}/secret.json", "\\"0\\"", 6, 0]'
        inbox.write("text.json", target)
        (tmp_path / "inbox" / "link.json").symlink_to(target)
        admitted = inbox.admit(inbox.scan(now=2e9))
        [link] = admitted.links
        with open_link(inbox.intake / link) as file:
            assert file.read() == target.encode()


# What identifies an object


def found(size: int = 3, e_tag: str = '"a"', at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> StoredObject:
    return StoredObject.of({"path": "x", "size": size, "e_tag": e_tag, "last_modified": at, "version": None})


def test_another_etag_is_another_object_and_has_another_time() -> None:
    assert found() == found(at=datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC))  # a HEAD has whole seconds
    assert found() == found(e_tag="a")  # lists of Azure have no quotes
    assert found(e_tag='"b"').st_mtime_ns != found().st_mtime_ns
    assert found(e_tag='"b"').st_mtime == found().st_mtime == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "e_tag", ['"d41d8cd98f00b204e9800998ecf8427e-3"', '"0x8DD1B1A5E6F7A12"', '"CJqk9aPZ/IkDEAE="', '""']
)
def test_any_etag_is_a_number_that_the_ledger_holds(e_tag: str) -> None:
    one = found(e_tag=e_tag)
    assert 0 <= one.st_ctime_ns < 2**63
    other = found(e_tag=f'{e_tag[:-3]}1"')
    assert (other.st_ctime_ns == one.st_ctime_ns) == (e_tag[1:18] == other.e_tag[1:18])


def test_paths_of_objects_have_no_pieces() -> None:
    uri = "s3://bucket/a//00000001"
    assert (shown_path(uri), piece_number(uri), is_retired(f"{TOP}//~3")) == (uri, 0, False)
    assert (shown_path("s3://00000001"), piece_number("s3://00000002")) == ("s3:", 2)  # a file of this name


def test_an_object_is_read_once_until_its_etag_changes(store: FaultyStore, inbox: Inbox) -> None:
    put(store, "in/day=1/a.json", b"1\n")
    put(store, "in/day=1/empty.json", b"")
    scan = inbox.scan()
    assert [(one.path, one.partition) for one in scan.new] == [(f"{TOP}/day=1/a.json", {"day": "1"})]
    assert [one["path"] for one in scan.skipped] == [f"{TOP}/day=1/empty.json"]
    inbox.admit(scan)
    inbox.stage()
    assert list(inbox.intake.iterdir()) == []
    assert (inbox.scan().new, inbox.scan().changed) == ((), ())
    put(store, "in/day=1/a.json", b"22\n")
    [changed] = inbox.scan().changed
    assert (changed["path"], changed["how"], changed["unread_bytes"]) == (f"{TOP}/day=1/a.json", "was rewritten", 3)
    note_scan(inbox.ledger, SOURCE, inbox.scan())
    assert inbox.scan().changed == ()
    store.inside.delete("in/day=1/a.json")
    assert inbox.scan().vanished == (f"{TOP}/day=1/a.json",)


def test_the_same_bytes_written_again_are_no_change(store: FaultyStore, inbox: Inbox) -> None:
    put(store, "in/a.json")
    inbox.admit()
    inbox.stage()
    [row] = inbox.ledger.rows(SOURCE)
    # As if it had been written an hour ago: this store gives each write another ETag.
    inbox.ledger.note_same(SOURCE, [(row.path, row.mtime_ns - 3_600_000_000_000, row.ctime_ns or 0, True)])
    scan = inbox.scan()
    assert (scan.changed, [one[0] for one in scan.same]) == ((), [row.path])
    note_scan(inbox.ledger, SOURCE, scan)
    assert inbox.scan().same == ()


def test_older_objects_come_first_and_those_of_a_second_by_name(store: FaultyStore, inbox: Inbox) -> None:
    for number in range(20):
        put(store, f"in/{number:02}.json")
    inbox.admit()
    waiting = inbox.ledger.waiting(SOURCE)
    seconds = [row.mtime_ns // 1_000_000_000 for row in waiting]
    assert seconds == sorted(seconds)
    assert [row.path for row in waiting] == sorted(row.path for row in waiting)


@pytest.mark.parametrize(("start", "passed_over"), [("now", 1), ("2000-01-01T00:00:00Z", 0), ("all", 0)])
def test_a_start_is_compared_with_the_time_of_the_store(
    tmp_path: Path, store: FaultyStore, start: str, passed_over: int
) -> None:
    put(store, "in/a.json")
    with make_inbox(tmp_path, path=TOP, start=start) as inbox:
        scan = inbox.scan()
        assert len(scan.before_start) == passed_over
        assert len(scan.new) == 1 - passed_over
        note_first_look(inbox.ledger, SOURCE, inbox.spec, scan)
        inbox.admit(scan)
        put(store, "in/b.json")
        assert [one.path for one in inbox.scan().new] == [f"{TOP}/b.json"]


def test_settle_goes_by_the_time_of_the_store(tmp_path: Path, store: FaultyStore) -> None:
    put(store, "in/a.json", b"no line end")
    now = datetime.now(UTC)
    with make_inbox(tmp_path, path=TOP) as inbox:
        assert len(inbox.scan().new) == 1  # an object appears whole
    with make_inbox(tmp_path, path=TOP, settle="1 minute") as inbox:
        assert [one["path"] for one in inbox.scan().settling] == [f"{TOP}/a.json"]
        assert len(inbox.scan(now=(now + timedelta(minutes=2)).timestamp()).new) == 1


# Lists of a part


class CountingStore(FaultyStore):
    """A store that counts the keys it lists. ``written``: for how many seconds a key is there, where it is not new."""

    listed = 0

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, int] = {}

    def list(self, prefix: str | None = None, *, chunk_size: int = 50, offset: str | None = None) -> Iterator[Any]:
        for page in super().list(prefix, chunk_size=chunk_size, offset=offset):
            self.listed += len(page)
            for one in page:
                one["last_modified"] -= timedelta(seconds=self.written.get(one["path"], 0))
            yield page


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    made = CountingStore()
    use_store(monkeypatch, made)
    return made


def names(scan: FilesScan) -> list[str]:
    return [one.path.removeprefix(f"{TOP}/") for one in scan.new]


def take(inbox: Inbox, batch_id: int, at: float) -> list[str]:
    """What a run takes at this time, in seconds."""
    scan = inbox.scan(now=at)
    note_first_look(inbox.ledger, SOURCE, inbox.spec, scan)
    note_scan(inbox.ledger, SOURCE, scan)
    inbox.admit(scan)
    inbox.stage(batch_id)
    return names(scan)


@pytest.mark.parametrize("path", ["", "/*/*.json", "/"])
def test_a_list_of_a_part_costs_what_is_new(tmp_path: Path, counting: CountingStore, path: str) -> None:
    with make_inbox(tmp_path, path=TOP + path, list_all_every="1 day") as inbox:
        for day in range(10, 30):
            for number in range(200):
                put(counting, f"in/day=2026-01-{day}/{number:04}.json")
            taken = take(inbox, day, at=1e9 + day)
            assert taken == [f"day=2026-01-{day}/{number:04}.json" for number in range(200)]
        for tick in range(3):
            counting.requests.clear()
            counting.listed = 0
            assert take(inbox, 30 + tick, at=1e9 + 40) == []
            assert counting.requests == ["list"]
        assert counting.listed == 0
        put(counting, "in/day=2026-01-30/0000.json")
        assert take(inbox, 40, at=1e9 + 41) == ["day=2026-01-30/0000.json"]
        assert counting.listed == 1


def test_all_keys_are_listed_when_it_is_time(tmp_path: Path, counting: CountingStore) -> None:
    with make_inbox(tmp_path, path=TOP, list_all_every="1 hour") as inbox:
        for name in ("2.json", "3.json", "_SUCCESS", "4.json"):
            put(counting, f"in/{name}")
        for tick in range(3):
            take(inbox, tick, at=1000 + tick)
        put(counting, "in/1.json")
        put(counting, "in/2.json", b"another")
        counting.inside.delete("in/3.json")
        scan = inbox.scan(now=1003)
        assert (names(scan), scan.changed, scan.vanished, scan.late) == ([], (), (), ())
        for now in (1001 + 3600, 999):  # the interval has passed; the clock was set back
            scan = inbox.scan(now=now)
            assert (names(scan), scan.vanished, scan.late) == (["1.json"], (f"{TOP}/3.json",), (f"{TOP}/1.json",))
            assert [one["path"] for one in scan.changed] == [f"{TOP}/2.json"]
        assert take(inbox, 3, at=4601) == ["1.json"]
        put(counting, "in/5.json")
        assert take(inbox, 4, at=4602) == ["5.json"]
        assert take(inbox, 5, at=4603) == []
        put(counting, "in/10.json")
        assert inbox.scan(now=4604).new == ()
        inbox.keys["path"] = f"{TOP}/*.json"  # what was passed by under another path may be read under this one
        assert names(inbox.scan(now=4604)) == ["10.json"]
        del inbox.keys["list_all_every"]
        assert names(inbox.scan(now=4604)) == ["10.json"]


def test_a_list_of_a_part_does_not_pass_what_settles(tmp_path: Path, counting: CountingStore) -> None:
    now = datetime.now(UTC).timestamp()
    with make_inbox(tmp_path, path=TOP, list_all_every="1 day", settle="1 minute") as inbox:
        for name, seconds in {"a": 100, "b": 0, "c": 100}.items():
            put(counting, f"in/{name}")
            counting.written[f"in/{name}"] = seconds
        assert take(inbox, 0, at=now) == ["a", "c"]
        for batch in (1, 2):
            assert take(inbox, batch, at=now) == []
        put(counting, "in/aa")  # late, but before what settles was taken
        counting.written["in/aa"] = 100
        assert take(inbox, 3, at=now) == ["aa"]
        assert take(inbox, 4, at=now + 100) == ["b"]
        for batch in (5, 6):
            assert take(inbox, batch, at=now + 100) == []
        counting.listed = 0
        assert take(inbox, 7, at=now + 100) == []
        assert counting.listed == 0


def test_a_list_of_a_part_does_not_pass_what_cannot_be_read(tmp_path: Path, store: FaultyStore) -> None:
    with make_inbox(tmp_path, path=TOP, list_all_every="1 day", schema="id BIGINT, day DATE") as inbox:
        for day in ("2026-01-01", "2026-01-02x", "2026-01-03"):
            put(store, f"in/day={day}/a.json")
        for batch, taken in enumerate([["day=2026-01-01/a.json", "day=2026-01-03/a.json"], [], [], []]):
            assert [one["path"] for one in inbox.scan(now=1000 + batch).skipped] == [f"{TOP}/day=2026-01-02x/a.json"]
            assert take(inbox, batch, at=1000 + batch) == taken
        inbox.keys["schema"] = "id BIGINT, day STRING"
        assert take(inbox, 5, at=1005) == ["day=2026-01-02x/a.json"]


def test_a_list_of_a_part_does_not_pass_what_a_killed_run_has_seen(tmp_path: Path, store: FaultyStore) -> None:
    with make_inbox(tmp_path, path=TOP, list_all_every="1 hour") as inbox:
        put(store, "in/2.json")
        for batch in range(3):
            take(inbox, batch, at=1000 + batch)
        put(store, "in/1.json")
        assert inbox.scan(now=1004).new == ()
        note_scan(inbox.ledger, SOURCE, inbox.scan(now=9000))  # lists all keys, and is killed before it takes any
        for batch, taken in enumerate([["1.json"], [], []], 3):
            assert take(inbox, batch, at=9001 + batch) == taken


@pytest.mark.parametrize("seed", range(20))
def test_each_object_is_taken_once_whenever_a_run_ends(tmp_path: Path, store: FaultyStore, seed: int) -> None:
    """Of a run that is killed, only the first steps are done. Names that come late are found within the interval."""
    draw = random.Random(seed)
    offered: set[str] = set()
    taken: list[str] = []
    now = datetime.now(UTC).timestamp() + 10
    with make_inbox(tmp_path, path=TOP, list_all_every="10 minutes") as inbox:
        for run in range(40):
            now += 60
            for _ in range(draw.randrange(4)):
                name = f"{run - draw.choice((0, 0, 0, 1, 7)) + 10}-{draw.randrange(10**6)}.json"
                put(store, f"in/{name}")
                offered.add(name)
            steps = draw.randrange(5)
            scan = inbox.scan(now=now)
            if steps > 0:
                note_first_look(inbox.ledger, SOURCE, inbox.spec, scan)
            if steps > 1:
                note_scan(inbox.ledger, SOURCE, scan)
            if steps > 2:
                inbox.admit(scan)
                taken += names(scan)
            if steps > 3:
                inbox.stage(run)
        for run in (41, 42):
            taken += take(inbox, run, at=now + 600 * run)
    assert sorted(taken) == sorted(offered)


def test_one_object_is_looked_at_in_each_run(tmp_path: Path, store: FaultyStore) -> None:
    put(store, "in/a.json")
    with make_inbox(tmp_path, path=f"{TOP}/a.json", list_all_every="1 day") as inbox:
        for tick in range(3):
            take(inbox, tick, at=1000 + tick)
        put(store, "in/a.json", b"another")
        assert [one["path"] for one in inbox.scan(now=1003).changed] == [f"{TOP}/a.json"]


KEYS_IN_ORDER = [
    "!",
    '"',
    "#a",
    "%41",
    "A=1/b c.json",
    "[1",
    "_k=v/a",
    "a.json",
    "a/b.json",
    "b+&@",
    "{z",
    "~",
    "ä",
    "𝄞",
]


@pytest.mark.parametrize("after", KEYS_IN_ORDER)
def test_a_part_begins_after_any_key(store: FaultyStore, after: str) -> None:
    for key in KEYS_IN_ORDER:
        put(store, f"in/{key}")
    assert sorted(list_below(ObjectPath(TOP), after)) == [key for key in KEYS_IN_ORDER if key > after]


# Reading


@pytest.mark.parametrize("seed", range(3))
def test_any_range_is_read_through_faults(
    tmp_path: Path, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(range_file, "_FIRST_BYTES", 1000)
    monkeypatch.setattr(range_file, "_MOST_BYTES", 5000)
    data, draw = random.Random(seed).randbytes(100_000), random.Random(seed)
    link = point(tmp_path, store, "x", data)
    store.choose = seeded(seed, 0.3)
    with open_link(link) as file:
        assert file.read() == data
        for _ in range(50):
            at, size = draw.randrange(110_000), draw.randrange(9000)
            assert (file.seek(at), file.read(size)) == (at, data[at : at + size])
        assert file.seek(-3, os.SEEK_END) == len(data) - 3
        assert file.read() == data[-3:]


def test_reading_on_takes_few_requests(tmp_path: Path, store: FaultyStore) -> None:
    link = point(tmp_path, store, "x", bytes(30 << 20))
    store.requests.clear()
    with open_link(link) as file:
        while file.read(100_000):
            pass
    assert len(store.requests) <= 7  # of 1, 2, 4 and 8 MiB


@pytest.mark.parametrize("is_gone", [False, True])
def test_another_object_is_never_read_in_its_place(
    tmp_path: Path, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    monkeypatch.setattr(range_file, "_FIRST_BYTES", 10)
    monkeypatch.setattr(links, "_BUFFER_BYTES", 10)
    link = point(tmp_path, store, "x.json", b"0123456789" * 100)
    with open_link(link) as file:
        assert file.read(5) == b"01234"
        put(store, "in/x.json", b"abcdefghij" * 100)
        if is_gone:
            store.inside.delete("in/x.json")
        with pytest.raises(OSError, match=f"{TOP}/x.json was re") as caught:
            file.read(100)
    assert isinstance(caught.value, FileNotFoundError if is_gone else ObjectChangedError)


def test_a_store_that_fails_is_no_fault_of_the_object(tmp_path: Path, store: FaultyStore) -> None:
    spec = FilesSource.read({"type": "files", "path": TOP, "format": "json", "schema": "id BIGINT"})
    link = point(tmp_path, store, "x.json", b'{"id": 1}\n')
    store.choose = lambda name, number: "throttled"
    with storage.limit_patience(0.05), pytest.raises(TryAgainError) as caught:
        find_fault(link, spec)
    assert (caught.value.code, f"{TOP}/x.json" in caught.value.message) == ("STORAGE_FAILED", True)
    store.choose = lambda name, number: None
    assert find_fault(link, spec) is None
    put(store, "in/x.json", b"{}")
    with pytest.raises(TryAgainError, match="was replaced since it was listed"):
        find_fault(link, spec)


@pytest.mark.parametrize(
    ("number", "code", "may_have_changed"),
    [
        (REPLACED, "FILE_CHANGING", True),
        (errno.ENOENT, "FILE_VANISHED", True),
    ],
)
def test_what_a_worker_did_not_get_is_an_error_that_names_the_object(
    tmp_path: Path, number: int, code: str, may_have_changed: bool
) -> None:
    fault = PartUnreadable("/state/intake/orders/1.json", f"{TOP}/a.json is not there", number)
    error = Exception(f"from a worker:\n{PartUnreadable.__module__}.PartUnreadable: {fault}\n")
    assert is_object_fault(error) is may_have_changed
    named = explain(error, "orders", tmp_path / "transform.py", tmp_path)
    assert isinstance(named, TryAgainError)
    assert (named.code, f"{TOP}/a.json" in named.message) == (code, True)


@pytest.mark.parametrize("exit_code", [64, 75])
def test_what_a_store_did_not_do_for_a_worker_ends_the_run_as_it_would_end_it_here(
    tmp_path: Path, exit_code: int
) -> None:
    refused = {"code": "STORE_REFUSED", "message": f"no right to {TOP}", "where": TOP, "next_run": "x", "fix": "y"}
    fault = StoreFault({**refused, "exit_code": exit_code})
    error = Exception(f"from a worker:\n{StoreFault.__module__}.StoreFault: {fault}\n")
    assert not is_object_fault(error) and not is_read_fault(error) and not is_row_fault(error)
    named = explain(error, "orders", tmp_path / "transform.py", tmp_path, on_cluster=True)
    assert named.to_dict() == {**refused, "exit_code": exit_code}


TABLE = pa.table({"id": list(range(50_000)), "name": [f"name {number}" for number in range(50_000)]})
LINES = b"".join(b'{"id": %d, "name": "name %d"}\n' % (number, number) for number in range(50_000))

_AVRO = avro_files.record({"id": "long", "name": "string"})


def in_file(write: Callable[[pa.Table, io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(TABLE, out)
    return out.getvalue()


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "x.json": ("json", lambda: LINES),
    "x.json.gz": ("json", lambda: gzip.compress(LINES[: len(LINES) // 2]) + gzip.compress(LINES[len(LINES) // 2 :])),
    "x.json.bz2": ("json", lambda: bz2.compress(LINES)),
    "x.json.zst": ("json", lambda: pa.compress(LINES, "zstd", asbytes=True)),
    "x.csv": ("csv", lambda: b"id,name\n" + b"".join(b"%d,name %d\n" % (one, one) for one in range(50_000))),
    "x.parquet": ("parquet", lambda: in_file(lambda table, out: pq.write_table(table, out, row_group_size=10_000))),
    "x.avro": ("avro", lambda: avro_files.pack(_AVRO, TABLE.to_pylist(), "deflate", 1000)),
    "x.orc": ("orc", lambda: in_file(lambda table, out: orc.write_table(table, out))),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_format_is_read_by_ranges_as_from_a_disk(
    tmp_path: Path, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(range_file, "_FIRST_BYTES", 10_000)
    monkeypatch.setattr(range_file, "_MOST_BYTES", 100_000)
    kind, make = BODIES[name]
    options = {"header": "true"} if kind == "csv" else {}
    spec = FilesSource.read(
        {"type": "files", "path": TOP, "format": kind, "schema": "id BIGINT, name STRING", "options": options}
    )
    data = make()
    link, local = point(tmp_path, store, name, data), tmp_path / name
    local.write_bytes(data)
    monkeypatch.setattr("tidegate.sources.files.batch_plan.PART_BYTES", 300_000)
    store.choose = seeded(3, 0.2)
    read = {}
    for path in (link, local):
        reader, rows = open_reader(form_of(spec)), []
        reader.check(str(path))
        for part in divide_files(path.parent, [path.name], spec):
            for one in reader.read(Part(str(path), part.begin, part.end)):
                assert not one.batch.wrong
                rows += pa.RecordBatch.from_arrays(one.batch.columns, ["id", "name"]).to_pylist()
        read[path] = rows
    assert read[link] == read[local] == TABLE.to_pylist()


# The intake


def test_links_that_are_gone_are_made_again_for_the_object_as_it_is(store: FaultyStore, inbox: Inbox) -> None:
    for name in ("same", "other", "gone"):
        put(store, f"in/{name}.json", name.encode())
    inbox.admit()
    by_path = {row.path: inbox.intake / row.link for row in inbox.ledger.rows(SOURCE)}
    for link in by_path.values():
        link.unlink()
    put(store, "in/other.json", b"something else")
    store.inside.delete("in/gone.json")
    restored = inbox.restore()
    assert restored.lost == (f"{TOP}/gone.json",)
    assert restored.changed == (f"{TOP}/other.json",)
    with open_link(by_path[f"{TOP}/other.json"]) as file:
        assert file.read() == b"something else"
    store.requests.clear()
    assert inbox.restore().changed == (f"{TOP}/other.json",)
    assert store.requests == ["get"]  # of the one that is gone: links alone cost nothing
    inbox.ledger.drop_linked(SOURCE, restored.lost)
    inbox.stage()
    scan = inbox.scan()
    assert (scan.new, scan.changed, scan.same) == ((), (), ())  # it was read as it is


def test_objects_that_were_replaced_are_read_as_they_are(store: FaultyStore, inbox: Inbox) -> None:
    for name in ("same", "other", "gone"):
        put(store, f"in/{name}.json", name.encode())
    admitted = inbox.admit()
    put(store, "in/other.json", b"something else")
    store.inside.delete("in/gone.json")
    replaced, gone = intake.renew_links(inbox.intake / link for link in admitted.links)
    assert [read_pointer(link).uri for link in replaced] == [f"{TOP}/other.json"]  # type: ignore[union-attr]
    assert gone == [f"{TOP}/gone.json"]
    assert intake.renew_links(inbox.intake / link for link in admitted.links) == ([], [])
    assert inbox.restore().lost == (f"{TOP}/gone.json",)


def test_a_damaged_object_is_kept_and_can_be_read_again(store: FaultyStore, inbox: Inbox) -> None:
    whole = gzip.compress(b'{"id": 1}\n' * 1000)
    put(store, "in/x.json.gz", whole[:-20])
    [link] = inbox.admit().links
    spec = FilesSource.read({**inbox.keys, "schema": "id BIGINT"})
    folder = inbox.paths.unreadable
    reasons = find_unreadable(folder, inbox.intake, [link], spec)
    assert "breaks off" in reasons[link]
    [row] = inbox.ledger.rows(SOURCE)
    originals = {link: row.linked_file}
    assert quarantine_whole(folder, inbox.intake, reasons, spec, originals, lambda: None) == [f"{TOP}/x.json.gz"]
    kept = kept_file(folder, link)
    assert kept is not None
    assert kept.read_bytes() == whole[:-20]
    assert read_pointer(inbox.intake / link) is None  # a stand-in
    assert find_fault(inbox.intake / link, spec) is None
    assert find_differences(inbox.project, inbox.paths, {SOURCE: spec}, [row]) == []
    put(store, "in/x.json.gz", b"another one")
    inbox.ledger.return_to_linked({"q": -1})
    read_whole_again(inbox.paths, SOURCE, inbox.ledger)
    [again] = inbox.ledger.rows(SOURCE)
    assert (inbox.intake / again.link).exists() is False  # made by restore_links, from the kept copy
    inbox.restore()
    with open_link(inbox.intake / again.link) as file:
        assert file.read() == whole[:-20]


def test_what_differs_from_what_was_read_is_found_by_etags(store: FaultyStore, inbox: Inbox) -> None:
    for name in ("same", "other", "gone"):
        put(store, f"in/{name}.json", name.encode())
    inbox.admit()
    inbox.stage()
    put(store, "in/other.json", b"OTHER")
    store.inside.delete("in/gone.json")
    rows = inbox.ledger.rows(SOURCE)
    assert sorted(find_differences(inbox.project, inbox.paths, {SOURCE: inbox.spec}, rows)) == [
        f"{TOP}/gone.json is gone",
        f"{TOP}/other.json was rewritten after it was read: 5 bytes then, 5 now",
    ]


def test_a_refused_list_says_so(store: FaultyStore, inbox: Inbox) -> None:
    store.choose = lambda name, number: "throttled"
    with storage.limit_patience(0.05), pytest.raises(StoreError, match="did not serve requests for s3://bucket/in"):
        inbox.scan()
