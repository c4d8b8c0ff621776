"""The ledger: every mark may be made twice, survives a kill, and a damaged file is named."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.errors import DisagreementError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import Ledger, LedgerRow, NewFile, open_ledger
from tidegate.spec.models import ProjectSpec
from tidegate.spec.project import Project

ODD_NAMES = [
    "a b.json",
    "100%25.json",
    "k=v.json",
    "x[y].json",
    "x{y}.json",
    "日本 ü.json",
    "new\nline.json",
    "quote'\".json",
    os.fsdecode(b"bytes-\xff\xfe.json"),
]


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return Project(tmp_path, ProjectSpec()).paths("orders")


@pytest.fixture
def ledger(paths: PipelinePaths) -> Iterator[Ledger]:
    with open_ledger(paths) as opened:
        yield opened


def take(ledger: Ledger, *names: str, source: str = "trades", folder: str = "") -> list[LedgerRow]:
    return ledger.add_links(source, [NewFile(name, 10, 1000, folder) for name in names])


def as_listed(rows: list[LedgerRow], size: int = 11, mtime_ns: int = 1001) -> list[dict[str, Any]]:
    return [{"path": row.path, "size": size, "mtime_ns": mtime_ns, "link": row.link} for row in rows]


def test_odd_names_are_kept_and_get_plain_links(ledger: Ledger) -> None:
    rows = take(ledger, *ODD_NAMES)
    assert [row.path for row in rows] == ODD_NAMES
    assert set(ledger.known("trades", ODD_NAMES)) == set(ODD_NAMES)
    assert len({row.link for row in rows}) == len(ODD_NAMES)
    for row in rows:
        assert row.link.isascii()
        assert row.link.endswith(".json")
        assert row.link.replace("-", "").replace(".", "").isalnum()
    assert ledger.known("other", ODD_NAMES) == {}


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.json.gz", ".gz"), ("a.csv.BZ2", ".bz2"), ("a.snappy.parquet", ".parquet"), ("a.zst", ".zst"), ("plain", ""),
     ("a.odd ext", ""), ("a.b/c", "")],
)  # fmt: skip
def test_a_link_keeps_the_suffix_that_names_the_compression(ledger: Ledger, name: str, suffix: str) -> None:
    (row,) = take(ledger, name)
    assert os.path.splitext(row.link)[1] == suffix


def test_taking_twice_keeps_the_first_row_and_names_are_never_used_again(ledger: Ledger) -> None:
    first = take(ledger, "a", "b")
    assert take(ledger, "b", "a", "c")[:2] == [first[1], first[0]]
    ledger.drop_linked("trades", ["a"])
    (again,) = take(ledger, "a")
    assert again.link.split("-")[0] > first[1].link.split("-")[0]


def test_the_way_of_a_file(ledger: Ledger) -> None:
    rows = take(ledger, "a", "b", folder="day=1")
    for _ in range(2):
        ledger.mark_staged("trades", "q", 4, as_listed(rows[:1]))
        ledger.mark_staged("trades", "q", 5, as_listed(rows[1:]))
    assert [row.state for row in ledger.rows()] == ["staged", "staged"]
    assert ledger.known("trades", ["a"])["a"][:3] == ("a", 11, 1001)
    for _ in range(2):
        ledger.mark_published("q", 4)
        assert ledger.removable_links() == [("trades", rows[0].link)]
    assert [row.state for row in ledger.rows("trades")] == ["published", "staged"]
    ledger.forget_links([rows[0].link, rows[1].link])
    assert ledger.removable_links() == []
    for query, batch in (("q", 5), ("another", 99)):
        ledger.mark_published(query, batch)
        assert ledger.removable_links() == [("trades", rows[1].link)]
    assert ledger.any_link("trades") == rows[1].link
    ledger.forget_links([rows[1].link])
    assert ledger.any_link("trades") is None


def test_a_file_of_two_batches_stays_in_the_first(ledger: Ledger) -> None:
    rows = take(ledger, "a", "b")
    ledger.mark_staged("trades", "q", 1, as_listed(rows[:1]))
    for _ in range(2):
        ledger.mark_staged("trades", "q", 2, as_listed(rows))
        assert ledger.batches_of("trades", [row.link for row in rows]) == {
            rows[0].link: ("q", 1),
            rows[1].link: ("q", 2),
        }


def test_a_batch_that_comes_again_with_another_file(ledger: Ledger) -> None:
    """As many as before: the ledger is newer than the rest of the state folder."""
    rows = take(ledger, "a", "b")
    for row in rows:
        ledger.mark_staged("trades", "q", 1, as_listed([row]))
    assert [row.state for row in ledger.rows()] == ["staged", "staged"]


def test_marks_can_be_made_again_from_manifests_alone(ledger: Ledger, tmp_path: Path) -> None:
    rows = take(ledger, *ODD_NAMES)
    other = Project(tmp_path / "rebuilt", ProjectSpec()).paths("orders")
    with open_ledger(other, create=True) as rebuilt:
        rebuilt.mark_staged("trades", "q", 0, as_listed(rows))
        assert [row.link for row in rebuilt.rows(state="staged")] == [row.link for row in rows]
        assert {row.path for row in rebuilt.rows("trades", links=[rows[2].link])} == {ODD_NAMES[2]}


def test_untake_gives_back_what_the_table_does_not_have(ledger: Ledger) -> None:
    rows = take(ledger, "a", "b", "c", "d", "e")
    for number, row in enumerate(rows[:3]):
        ledger.mark_staged("trades", "q", number, as_listed([row]))
    ledger.mark_staged("trades", "older", 0, as_listed(rows[3:4]))
    ledger.mark_published("q", 1)
    ledger.forget_links(row.link for row in rows[:2])
    ledger.note_place("trades", ["b"], "reported")
    ledger.mark_staged("trades", "came later", 0, as_listed(rows[4:]))
    for settled in ({"q": 0, "older": -1}, {"q": 0}):
        ledger.return_to_linked(settled)
        linked = [(row.path, row.query_id, row.place) for row in ledger.rows(state="linked")]
        assert linked == [(path, None, "here") for path in "bcd"]
    assert [row.state for row in ledger.rows()] == ["published", "linked", "linked", "linked", "staged"]
    assert ledger.any_link("trades") is not None


def test_what_was_reported_is_kept(ledger: Ledger) -> None:
    take(ledger, *ODD_NAMES)
    ledger.note_changed("trades", [(ODD_NAMES[-1], 5, 6, "grew", 2)])
    ledger.note_place("trades", ODD_NAMES[:2], "reported")
    assert ledger.known("trades", ODD_NAMES[-1:])[ODD_NAMES[-1]].noted == (5, 6)
    assert ledger.count_present("trades") == len(ODD_NAMES) - 2
    assert set(ledger.present_paths("trades")) == set(ODD_NAMES[2:])


WRITER = """
import sys
from pathlib import Path
from tidegate.spec.project import Project
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spec.models import ProjectSpec
ledger = open_ledger(Project(Path(sys.argv[1]), ProjectSpec()).paths("orders"))
for number in range(10**6):
    ledger.add_links("trades", [NewFile(f"{number}-{part}", 1, 1, "") for part in range(5)])
    print(number, flush=True)
"""


@pytest.mark.parametrize("wait_seconds", [0.03, 0.11, 0.27])
def test_a_killed_writer_leaves_whole_transactions_and_all_that_it_said(
    paths: PipelinePaths, tmp_path: Path, wait_seconds: float
) -> None:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = [child.stdout.readline()]
    time.sleep(wait_seconds)
    os.kill(child.pid, signal.SIGKILL)
    said += child.stdout.readlines()
    child.wait()
    child.stdout.close()
    done = [int(line) for line in said if line.endswith("\n")]
    with open_ledger(paths) as ledger:
        count = len(ledger.rows(state="linked"))
        assert count % 5 == 0
        assert count >= 5 * (done[-1] + 1)
        take(ledger, "after")
    assert sorted(path.name for path in paths.state.iterdir()) == ["ledger.sqlite", "ledger.sqlite-journal"]
    assert (paths.state / "ledger.sqlite-journal").stat().st_size == 0


def write_foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE t (a)")
    foreign.close()


def write_torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:1000] + b"\0" * (len(data) - 1000))


def write_other_version(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"not a database, and long enough to be told" * 100),
        write_foreign,
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        write_torn,
        write_other_version,
    ],
    ids=["garbage", "foreign", "cut short", "zeroed", "other version"],
)
def test_a_damaged_ledger_is_refused_by_name(paths: PipelinePaths, spoil: Any) -> None:
    with open_ledger(paths) as ledger:
        take(ledger, *(f"file-{number}" for number in range(500)))
    spoil(paths.ledger)
    before = paths.ledger.read_bytes()
    with pytest.raises(DisagreementError) as refused, open_ledger(paths) as ledger:
        ledger.known("trades", [f"file-{number}" for number in range(500)])
        ledger.rows()
    assert refused.value.code == "LEDGER_UNREADABLE"
    assert "tidegate repair orders --rebuild" in str(refused.value.fix)
    assert paths.ledger.read_bytes() == before


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_lost_ledger_is_not_begun_anew_beside_a_checkpoint(paths: PipelinePaths, is_empty: bool) -> None:
    paths.checkpoint.mkdir(parents=True)
    (paths.checkpoint / "metadata").write_text("{}")
    if is_empty:
        paths.ledger.touch()
    for read_only in (False, True):
        with pytest.raises(DisagreementError) as refused:
            open_ledger(paths, read_only=read_only)
        assert refused.value.code == "LEDGER_INCOMPLETE"
    with open_ledger(paths, create=True) as ledger:
        assert ledger.rows() == []


def test_looking_makes_no_file(paths: PipelinePaths) -> None:
    with open_ledger(paths, read_only=True) as ledger:
        assert ledger.rows() == []
    assert not paths.state.exists()


FROZEN = """
import sys
from pathlib import Path
from tidegate.spec.project import Project
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spec.models import ProjectSpec
ledger = open_ledger(Project(Path(sys.argv[1]), ProjectSpec()).paths("orders"))
ledger._db.execute("PRAGMA cache_size = 5")  # so that it writes pages, and keeps readers out, before it commits
ledger._db.execute("BEGIN " + sys.argv[2])
for number in range(2000):
    ledger._db.execute("UPDATE files SET size = ? WHERE id = ?", (number + 7, number))
print("in the middle", flush=True)
sys.stdin.readline()
try:
    ledger._db.execute("COMMIT")
    ledger.add_links("trades", [NewFile("by the zombie", 1, 1, "")])
    print("wrote", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_process_frozen_in_a_transaction_does_not_block_the_next_one(
    paths: PipelinePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr("tidegate.sources.files.ledger_file._BUSY_SECONDS", 0.3)
    with open_ledger(paths) as ledger:
        take(ledger, *(f"file-{number}" for number in range(2000)))
    child = subprocess.Popen(
        [sys.executable, "-c", FROZEN, str(tmp_path), lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        assert child.stdout.readline() == "in the middle\n"
        os.kill(child.pid, signal.SIGSTOP)
        with open_ledger(paths) as ledger:
            take(ledger, "after")
            rows = ledger.rows()
            assert len(rows) == 2001
            assert {row.size for row in rows} == {10}
            os.kill(child.pid, signal.SIGCONT)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline().strip() != "wrote"
            take(ledger, "last")
        with open_ledger(paths) as ledger:
            assert len(ledger.rows()) == 2002
            assert ledger._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    assert sorted(path.name for path in paths.state.iterdir()) == ["ledger.sqlite", "ledger.sqlite-journal"]


def test_names_are_looked_up_without_reading_the_whole_ledger(ledger: Ledger) -> None:
    take(ledger, *(f"data/inbox/trades/orders_{number:07d}.json" for number in range(100_000)))
    names = [f"data/inbox/trades/orders_{number:07d}.json" for number in range(0, 100_000, 10)]
    thousands = 0

    def count() -> None:
        nonlocal thousands
        thousands += 1

    ledger._db.set_progress_handler(count, 1000)  # called after each thousand steps of SQLite's machine
    assert len(ledger.known("trades", names)) == 10_000
    assert thousands * 1000 / len(names) < 60


def test_a_reader_does_not_wait_for_good_for_a_process_in_a_transaction(
    paths: PipelinePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sources.files.ledger_file._BUSY_SECONDS", 0.1)
    open_ledger(paths).close()
    command = [sys.executable, "-c", FROZEN, str(tmp_path), "EXCLUSIVE"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        with (
            pytest.raises(TryAgainError, match="LEDGER_BUSY: another process kept the ledger of pipeline orders"),
            open_ledger(paths, read_only=True) as reader,
        ):
            reader.rows()
        child.kill()


def test_a_folder_in_the_place_of_the_ledger(paths: PipelinePaths) -> None:
    paths.ledger.mkdir(parents=True)
    with pytest.raises(TryAgainError, match="LEDGER_UNAVAILABLE: the ledger of pipeline orders cannot be opened"):
        open_ledger(paths)
