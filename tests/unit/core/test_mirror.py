"""The working copy of a state on an object store: the same on each machine, and written by one process at a time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.faulty_store import FaultyStore, seeded, use_store
from tidegate.core.storage import ObjectPath, UnreadableStateError, files, mirror, object_lists, objects, stores
from tidegate.core.storage.mirror import Mirror, OvertakenError
from tidegate.spark.reading.sending import show_parts
from tidegate.state.topics import FilePart

REMOTE = ObjectPath("s3://bucket/state/orders")
LISTS = "checkpoint/sources/orders"


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    made = FaultyStore()
    use_store(monkeypatch, made)
    monkeypatch.setattr(mirror, "_FRESH_SECONDS", 0.0)  # each check asks the store
    monkeypatch.setattr(mirror, "_HOLDER_SECONDS", 0.0)
    return made


Machine = Callable[[str], Mirror]


@pytest.fixture
def on(tmp_path: Path) -> Machine:
    """A new process on the machine of this name."""
    return lambda name: Mirror(tmp_path / name / "copy", REMOTE)


def hold(copy: Mirror, token: str, *, fences: bool = False) -> Mirror:
    copy.hold(token, lambda: True, since=0.0, fences=fences)
    return copy


def write(copy: Mirror, path: str, text: str, at: int = 0) -> None:
    file = copy.local / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if at:
        os.utime(file, ns=(at, at))


def tree(copy: Mirror) -> dict[str, bytes]:
    """The files of a copy."""
    files = (path for path in copy.local.rglob("*") if path.is_file())
    return {path.relative_to(copy.local).as_posix(): path.read_bytes() for path in files}


def test_a_copy_moves_from_machine_to_machine(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a"), "1-x")
    write(first, "birth.json", "{}")
    write(first, "batches/orders/0.jsonl", "one", at=1_000_000_000_000_000_007)
    write(first, "staging/large.parquet", "x" * 3_000_000)
    write(first, "empty", "")
    of_machine = {"orders/run/driver.log": b"a log", "checkpoint/.offsets.tmp": b"unfinished"}
    for path, data in of_machine.items():
        write(first, path, data.decode())
    first.let_go("1-x")
    second = hold(on("b"), "2-x")
    assert sorted(tree(second)) == ["batches/orders/0.jsonl", "birth.json", "empty", "staging/large.parquet"]
    assert (second.local / "batches/orders/0.jsonl").stat().st_mtime_ns == 1_000_000_000_000_000_007
    (second.local / "staging/large.parquet").unlink()
    write(second, "birth.json", "[]")
    second.let_go("2-x")
    again = hold(on("a"), "3-x")
    assert tree(again) == {**tree(second), **of_machine}
    again.let_go("3-x")
    assert not [one for page in store.inside.list() for one in page if "/blobs/" in one["path"]], (
        "of a file that is gone"
    )


def test_lists_of_files_name_the_copy_of_their_machine(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a b"), "1-x")
    write(first, f"{LISTS}/0", f'v1\n{{"path":"file://{first.local.as_posix().replace(" ", "%20")}/batches/0.jsonl"}}')
    write(first, f"{LISTS}/.0.crc", "of the bytes there")
    first.let_go("1-x")
    second = hold(on("c"), "2-x")
    assert (second.local / LISTS / "0").read_text() == f'v1\n{{"path":"file://{second.local}/batches/0.jsonl"}}'
    assert not (second.local / LISTS / ".0.crc").exists(), "Hadoop would refuse the list"
    lists = [
        copy.portable(copy.local / LISTS / "0", (copy.local / LISTS / "0").read_bytes()) for copy in (first, second)
    ]
    assert lists[0] == lists[1], "one seal fits both"


def test_a_list_that_a_killed_run_had_begun_leaves_no_checksum(store: FaultyStore, on: Machine) -> None:
    """Hadoop gives a new list its name only where there is no checksum file of that name."""
    killed = hold(on("a"), "1-x")
    killed.check("1-x")
    for name in ("0", ".0.crc"):
        write(killed, f"{LISTS}/{name}", "no event has it")
    successor = hold(on("a"), "2-x", fences=True)
    assert not any((successor.local / LISTS / name).exists() for name in ("0", ".0.crc"))


def test_what_executors_wrote_is_not_written_again(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a"), "1-x")
    stores.call(first.blobs, lambda client: client.put((first.blobs / "b1").key, b"r" * 2_000_000))
    first.fetch("b1", first.local / "staging/rows.parquet")
    write(first, "intake/large.json", "x" * 2_000_000)
    shared = first.share(first.local / "intake/large.json")
    assert shared == first.share(first.local / "intake/large.json")
    assert first.share(first.local / "staging/rows.parquet") == first.blobs / "b1"
    first.let_go("1-x")
    kept = [one["path"] for page in store.inside.list() for one in page if "/blobs/" in one["path"]]
    assert sorted(kept) == sorted([(first.blobs / "b1").key, shared.key]), "each large file is one object"
    assert tree(hold(on("b"), "2-x"))["staging/rows.parquet"] == b"r" * 2_000_000


@pytest.mark.parametrize("damage", [None, b"no event", b"x"], ids=["removed", "torn", "short"])
def test_a_damaged_journal_is_refused_by_name(store: FaultyStore, on: Machine, damage: bytes | None) -> None:
    first = hold(on("a"), "1-x")
    for number in range(3):
        write(first, f"file-{number}", "text")
        first.check("1-x")
    first.let_go("1-x")
    key = "state/orders/journal/000000000002.event"
    store.inside.delete(key) if damage is None else store.inside.put(key, damage)
    with pytest.raises(UnreadableStateError, match=r"000000000002\.event is not what tidegate wrote") as caught:
        hold(on("b"), "2-x")
    assert caught.value.where == f"s3://bucket/{key}"
    assert "remove all objects below s3://bucket/state/orders, then" in (caught.value.fix or "")


def test_a_copy_that_somebody_cleared_is_fetched_again(store: FaultyStore, on: Machine) -> None:
    """A cleaner of caches may leave the book of the copy: its files are not those that a holder removed."""
    first = hold(on("a"), "1-x")
    write(first, "manifests/1.json", "{}")
    write(first, "staging/held.parquet", "h" * 2_000_000)
    first.let_go("1-x")
    wanted = tree(first)
    shutil.rmtree(first.local)
    again = hold(on("a"), "2-x")
    assert tree(again) == wanted
    again.let_go("2-x")
    other = on("b")
    other.refresh()
    assert tree(other) == wanted


def test_an_object_that_is_lost_is_named_once(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a"), "1-x")
    write(first, "staging/held.parquet", "h" * 2_000_000)
    first.let_go("1-x")
    [lost] = object_lists.list_entries(first.blobs)
    store.inside.delete((first.blobs / lost.name).key)
    with pytest.raises(UnreadableStateError, match="it was removed") as caught:
        on("b").refresh()
    assert caught.value.where == f"{first.blobs}/{lost.name}"


def test_one_file_of_many_parts_is_sent_once(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a"), "1-x")
    write(first, "intake/orders/large.json", "x" * 3_000_000)
    for number in range(100):
        write(first, f"intake/orders/{number}.json", "y" * 60_000)
    names = [*(["large.json"] * 24), *(f"{number}.json" for number in range(100))]
    lines = show_parts([FilePart(name) for name in names], first.local / "intake/orders", first)
    sent = [json.loads(line)["sent"] for line in lines]
    uploaded = {one["object"][0] for one in sent if "object" in one}
    assert len(uploaded) == len(object_lists.list_entries(first.blobs)) == 1 + 100 - (4 << 20) // 60_000
    assert sum(len(one.get("content", "")) for one in sent) < 6 << 20, "lines are in memory several times"


def test_of_a_database_the_changed_blocks_are_sent(store: FaultyStore, on: Machine) -> None:
    def change(copy: Mirror, sql: str, values: list[tuple[object, ...]]) -> None:
        with closing(sqlite3.connect(copy.local / "ledger.sqlite")) as database, database:
            database.executemany(sql, values)

    first = hold(on("a"), "1-x")
    change(first, "CREATE TABLE files (id INTEGER PRIMARY KEY, path BLOB)", [()])
    change(first, "INSERT INTO files VALUES (?, ?)", [(number, os.urandom(100)) for number in range(20_000)])
    first.check("1-x")
    change(first, "UPDATE files SET path = ? WHERE id = ?", [(b"another", 7)])
    first.check("1-x")
    size = [store.inside.head(f"state/orders/journal/{number:012d}.event")["size"] for number in (1, 2)]
    assert size[0] > 2_000_000 and size[1] < 20_000
    first.let_go("1-x")
    second = hold(on("b"), "2-x")
    assert tree(second)["ledger.sqlite"] == tree(first)["ledger.sqlite"]
    change(second, "DELETE FROM files WHERE id > ?", [(10,)])
    change(second, "VACUUM", [()])
    second.let_go("2-x")
    assert tree(hold(on("a"), "3-x"))["ledger.sqlite"] == tree(second)["ledger.sqlite"]


def test_a_former_holder_is_fenced(store: FaultyStore, on: Machine) -> None:
    """One that was suspended finds its number taken, and so does one whose number is below a snapshot."""
    sleeper = hold(on("a"), "1-x")
    write(sleeper, "one", "1")
    sleeper.check("1-x")
    other = hold(on("b"), "2-x", fences=True)
    write(sleeper, "two", "of the sleeper")
    for call in (sleeper.check, sleeper.let_go):
        with pytest.raises(OvertakenError):
            call("1-x")
    write(other, "two", "2")
    other.let_go("2-x")
    assert tree(hold(on("c"), "3-x")) == {"one": b"1", "two": b"2"}


def test_a_number_below_a_snapshot_is_not_the_next_one(
    store: FaultyStore, on: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_EVENTS_AT_MOST", 3)
    monkeypatch.setattr(mirror, "_KEPT_SECONDS", -1.0)
    sleeper = hold(on("a"), "1-x")
    write(sleeper, "one", "1")
    sleeper.check("1-x")
    other = hold(on("b"), "2-x", fences=True)
    for number in range(4):
        write(other, "two", str(number))
        other.check("2-x")
    other.let_go("2-x")
    hold(on("b"), "3-x").let_go("3-x")
    names = [one["path"].rpartition("/")[2] for page in store.inside.list("state/orders/journal") for one in page]
    assert "000000000002.event" not in names and any(name.endswith(".snapshot") for name in names)
    write(sleeper, "two", "of the sleeper")
    with pytest.raises(OvertakenError):
        sleeper.check("1-x")
    assert tree(hold(on("c"), "4-x")) == {"one": b"1", "two": b"3"}


def test_what_a_dead_process_left_in_its_copy_alone_is_lost(store: FaultyStore, on: Machine) -> None:
    dead = hold(on("a"), "1-x")
    write(dead, "one", "1")
    dead.check("1-x")
    write(dead, "one", "of the dead")
    write(dead, "two", "of the dead")
    assert tree(hold(on("a"), "2-x", fences=True)) == {"one": b"1"}


def test_a_killed_write_is_whole_or_not_there(store: FaultyStore, on: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before or behind any request of a run, the next machine has the state of one of its checks."""
    monkeypatch.setattr(mirror, "_EVENTS_AT_MOST", 2)
    monkeypatch.setattr(stores, "_interruptible", lambda act: act())

    def run(copy: Mirror, token: str, text: str) -> None:
        hold(copy, token, fences=True)
        for name in ("one", "two"):
            write(copy, name, f"{name} {text}")
            write(copy, f"staging/{name}", text * 1_100_000)
            copy.check(token)
        (copy.local / "staging/one").unlink()
        copy.let_go(token)

    def kill_at(last: int, *, behind: bool) -> None:
        def choose(name: str, at: int) -> str | None:
            if at > last or (at == last and not behind):
                raise Killed
            return "lost reply" if at == last else None

        store.choose = choose

    run(on("a"), "1-x", "0")
    ends = 0
    for number in itertools.count(1):
        for behind in (False, True):
            kill_at(len(store.requests) + number, behind=behind)
            with contextlib.suppress(Killed):
                run(on("ab"[number % 2]), f"{number}-{behind}", str(number % 10))
                ends += 1
            store.choose = lambda name, at: None
            found = tree(hold(on("checker"), f"{number}-{behind} read", fences=True))
            texts = {path: data.decode()[-1] for path, data in found.items()}
            assert texts["two"] == texts["staging/two"], "one event has both"
            assert texts.get("staging/one", texts["one"]) == texts["one"]
        if ends == 2:
            break
    assert number > 10


@pytest.mark.parametrize("seed", range(4))
def test_a_store_that_fails_now_and_then(store: FaultyStore, on: Machine, seed: int) -> None:
    store.choose = seeded(seed, 0.3)
    for number in range(6):
        copy = hold(on("ab"[number % 2]), f"{number}-x", fences=number % 3 == 0)
        assert tree(copy) == {f"file {one}": b"x" for one in range(number)}
        write(copy, f"file {number}", "x")
        copy.let_go(f"{number}-x")


def test_a_reader_sees_the_last_event_and_leaves_a_holder_alone(store: FaultyStore, on: Machine) -> None:
    holder = hold(on("a"), "1-x")
    write(holder, "one", "1")
    holder.check("1-x")
    write(holder, "one", "not yet an event")
    beside, elsewhere = on("a"), on("b")
    for reader in (beside, elsewhere):
        reader.refresh()
    assert tree(beside) == {"one": b"not yet an event"}
    assert tree(elsewhere) == {"one": b"1"}
    holder.let_go("1-x")
    elsewhere.refresh()
    assert tree(elsewhere) == {"one": b"not yet an event"}


def test_a_state_that_was_deleted_or_restored_is_what_the_store_has(store: FaultyStore, on: Machine) -> None:
    first = hold(on("a"), "1-x")
    write(first, "one", "1")
    first.let_go("1-x")
    kept = {one["path"]: bytes(store.inside.get(one["path"]).bytes()) for page in store.inside.list() for one in page}
    for key in kept:
        store.inside.delete(key)
    second = hold(on("a"), "1-y")
    assert tree(second) == {}, "the copy does not bring back what was deleted"
    write(second, "two", "2")
    second.let_go("1-y")
    for key, data in kept.items():
        store.inside.put(key, data)
    assert tree(hold(on("a"), "2-x")) == {"one": b"1"}


def test_a_holder_that_was_suspended_in_its_request_is_overtaken(
    store: FaultyStore, on: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number was taken, and is free again below a snapshot: what it had just looked at is outdated."""
    monkeypatch.setattr(mirror, "_FRESH_SECONDS", 1.0)
    monkeypatch.setattr(mirror, "_EVENTS_AT_MOST", 3)
    monkeypatch.setattr(mirror, "_KEPT_SECONDS", -1.0)  # events go as soon as there is a snapshot
    clock = [1000.0]
    monkeypatch.setattr(mirror, "_now", lambda: clock[0])
    sleeper = hold(on("a"), "1-a")
    write(sleeper, "manifest", "of the sleeper")
    sleeper.check("1-a")
    real = objects.put_tagged

    def suspend(path: ObjectPath, body: bytes) -> str | None:
        monkeypatch.setattr(objects, "put_tagged", real)
        for number in range(6):
            clock[0] += 60
            other = hold(on("b"), f"{number + 2}-b", fences=True)
            write(other, "manifest", f"another {number}")
            other.let_go(f"{number + 2}-b")
        assert path.name not in [one.name for one in object_lists.list_entries(REMOTE / "journal")]
        return real(path, body)

    write(sleeper, "intent", "of the sleeper")
    monkeypatch.setattr(objects, "put_tagged", suspend)
    with pytest.raises(OvertakenError):
        sleeper.check("1-a")


def test_a_holder_that_was_suspended_while_it_cleared_up_removes_no_newer_object(
    store: FaultyStore, on: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_EVENTS_AT_MOST", 1)
    monkeypatch.setattr(mirror, "_LEFT_BLOB_SECONDS", -1.0)  # each object is old enough
    first = hold(on("a"), "1-a")
    write(first, "one", "1")
    first.let_go("1-a")
    real = files.put_if_absent

    def suspend(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(files, "put_if_absent", real)
        monkeypatch.setattr(mirror, "_EVENTS_AT_MOST", 64)
        other = hold(on("b"), "3-b", fences=True)
        write(other, "staging/held.parquet", "h" * 2_000_000)
        other.let_go("3-b")
        return real(path, data)

    monkeypatch.setattr(files, "put_if_absent", suspend)
    with contextlib.suppress(OvertakenError):
        hold(on("a"), "2-a", fences=True)
    reader = on("c")
    reader.refresh()
    assert "staging/held.parquet" in tree(reader)
