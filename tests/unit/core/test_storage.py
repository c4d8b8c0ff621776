"""Writes that are whole, durable, and sure of what they did when a reply got lost; notes of which the newest counts."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core import storage
from tidegate.core.errors import TryAgainError


def test_a_file_is_created_although_its_copy_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was suspended for a day, and another one removed what it took for a leftover."""
    link, removed = os.link, list[Any]()

    def remove_first(source: Any, target: Any) -> None:
        if not removed:
            os.unlink(source)
            removed.append(source)
        link(source, target)

    monkeypatch.setattr(os, "link", remove_first)
    assert storage.put_if_absent(tmp_path / "token", b"mine") is True
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert (tmp_path / "token").read_bytes() == b"mine"


def test_a_late_writer_of_an_older_note_changes_nothing(tmp_path: Path) -> None:
    notes = tmp_path / "published"
    assert storage.read_note(notes) is None
    for version in (8, 9, 10):
        storage.write_note(notes, version, {"version": version})
    assert storage.read_note(notes) == {"version": 10}
    # Frozen before it wrote, thawed after two more publishes.
    storage.write_note(notes, 8, {"version": 8})
    assert storage.read_note(notes) == {"version": 10}


def test_notes_do_not_pile_up(tmp_path: Path) -> None:
    for version in range(30):
        storage.write_note(tmp_path, version, {})
    storage.write_note(tmp_path, 12, {})
    storage.write_note(tmp_path, 30, {})
    assert [path.name for path in tmp_path.iterdir()] == ["30.json"]


def test_what_is_no_note_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".7.json.tmp").write_text("torn")
    (tmp_path / "README").write_text("mine")
    assert storage.read_note(tmp_path) is None
    storage.write_note(tmp_path, 3, {"version": 3})
    assert storage.read_note(tmp_path) == {"version": 3}


@pytest.mark.parametrize("number", [3, 9, 12])
def test_a_note_in_place_of_all_others_is_never_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Killed at each step, the old highest note counts, or the new one; the next try completes it."""
    for at in itertools.count(1):
        notes = tmp_path / f"killed at {at}"
        notes.mkdir()
        for version in (10, 8, 9):
            (notes / f"{version}.json").write_bytes(storage.dump_json({"version": version}))
        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            try:
                storage.write_note(notes, number, {"mine": number}, only=True)
            except KilledHere:
                assert storage.read_note(notes) in ({"version": 10}, {"mine": number}), calls.names
        storage.write_note(notes, number, {"mine": number}, only=True)
        assert [path.name for path in notes.iterdir() if not path.name.startswith(".")] == [f"{number}.json"]
        if calls.count < at:
            break
    assert at > 3


def lose_reply(patch: pytest.MonkeyPatch, name: str, error: type[OSError]) -> None:
    """Let the call ``os.<name>`` do its work once and fail: NFS sent it again, because the reply was lost."""
    real: Callable[..., Any] = getattr(os, name)

    def call(*args: Any, **more: Any) -> None:
        real(*args, **more)
        patch.setattr(os, name, real)
        raise error

    patch.setattr(os, name, call)


def test_a_link_whose_reply_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_reply(monkeypatch, "link", FileExistsError)
    assert storage.put_if_absent(tmp_path / "a", b"mine") is True
    assert storage.put_if_absent(tmp_path / "a", b"mine") is False  # the same bytes of another call are not ours
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_name_that_came_and_went_was_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*paths: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(os, "link", link)
    assert storage.put_if_absent(tmp_path / "a", b"mine") is False


def test_a_replacement_whose_reply_was_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    lose_reply(monkeypatch, "replace", FileNotFoundError)
    storage.replace(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"

    def fail(*paths: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FileNotFoundError):
        storage.replace(tmp_path / "a", b"newer")


class Synced:
    """What this thread synced, in order, by path: the heartbeat of a test that is over may still be at work."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        real, thread = os.fsync, threading.get_ident()

        def fsync(handle: int) -> None:
            if threading.get_ident() == thread:
                self.paths.append(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        patch.setattr(os, "fsync", fsync)


def test_of_many_folders_each_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / str(number) for number in range(9)]
    synced, real = set(), os.fsync

    def fsync(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(os, "fsync", fsync)
    storage.sync_folders(folders)
    assert synced >= {str(folder) for folder in folders}
    folders[4].rmdir()
    with pytest.raises(FileNotFoundError):
        storage.sync_folders(folders)


@pytest.mark.parametrize("write", [storage.put_if_absent, storage.replace])
def test_folders_made_for_a_file_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], Any]
) -> None:
    synced = Synced(monkeypatch)
    write(tmp_path / "a" / "b" / "file", b"x")
    folders = [path for path in synced.paths if Path(path).is_dir()]
    assert folders == [str(one) for one in (tmp_path.parent, tmp_path, tmp_path / "a", tmp_path / "a" / "b")]
    synced.paths.clear()
    write(tmp_path / "a" / "b" / "other", b"x")
    assert [path for path in synced.paths if Path(path).is_dir()] == [str(tmp_path / "a" / "b")]


def test_the_folder_that_a_folder_is_made_in_is_on_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maker may have been killed before it synced the one above; one that may not be opened is not ours."""
    (tmp_path / "a").mkdir()
    synced = Synced(monkeypatch)
    storage.make_folder(tmp_path / "a" / "b")
    assert synced.paths == [str(tmp_path), str(tmp_path / "a")]
    real = os.open

    def refuse(path: Any, *how: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *how)

    monkeypatch.setattr(os, "open", refuse)
    storage.make_folder(tmp_path / "a" / "c")
    assert synced.paths[-1] == str(tmp_path / "a") and (tmp_path / "a" / "c").is_dir()


def test_a_name_that_was_there_is_on_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maker may have been killed before it synced the folder; what follows relies on it."""
    (tmp_path / "a").write_bytes(b"x")
    synced = Synced(monkeypatch)
    assert storage.put_if_absent(tmp_path / "a", b"y") is False
    assert synced.paths[-1] == str(tmp_path)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_moved_file_is_on_disk_under_its_new_name_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    source, target = tmp_path / "from" / "x", tmp_path / "to" / "y"
    source.parent.mkdir()
    source.write_bytes(b"bytes")
    synced = Synced(monkeypatch)
    if devices == 2:
        real = os.rename

        def rename(old: Path, new: Path) -> None:
            if Path(old) == source:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            real(old, new)

        monkeypatch.setattr(os, "rename", rename)
        unlink = os.unlink

        def forget(path: Path, **more: Any) -> None:
            if Path(path) == source:
                assert synced.paths[-1] == str(target.parent), "the copy must be on disk before the source goes"
            unlink(path, **more)

        monkeypatch.setattr(os, "unlink", forget)
    assert storage.move(source, target) is True
    assert synced.paths[1] == str(tmp_path) and synced.paths[-2:] == [str(target.parent), str(source.parent)]
    assert target.read_bytes() == b"bytes" and not source.exists()
    synced.paths.clear()
    assert storage.move(source, target) is False
    assert synced.paths == [str(target.parent), str(source.parent)]


def test_a_rename_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "from" / "x", tmp_path / "to" / "x"
    source.parent.mkdir()
    source.write_bytes(b"bytes")
    synced = Synced(monkeypatch)
    with pytest.raises(FileNotFoundError):
        storage.rename(source, target)
    assert source.read_bytes() == b"bytes" and not target.parent.exists() and synced.paths == []
    target.parent.mkdir()
    storage.rename(source, target)
    assert target.read_bytes() == b"bytes" and synced.paths == [str(target.parent), str(source.parent)]


def test_notes_that_were_put_back_stay_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (8, 9):
        storage.write_note(tmp_path, version, {"version": version})
    order: list[str] = []
    real, unlink = storage.sync_folder, os.unlink
    sync = "tidegate.core.storage.files.sync_folder"
    monkeypatch.setattr(sync, lambda path: (order.append("sync"), real(path))[1])
    monkeypatch.setattr(os, "unlink", lambda path, **more: (order.append("unlink"), unlink(path, **more))[1])
    storage.write_note(tmp_path, 3, {"version": 3}, only=True)
    assert order == ["sync", "unlink", "sync"]


def test_what_is_not_there_is_an_empty_list(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert (storage.list_names(gone), storage.list_folder(gone), storage.list_folders(gone)) == ([], [], [])
    assert storage.list_tree(gone) == [] and not storage.has_name(gone, lambda name: True)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):  # to take it for an empty folder would hide what is wrong
        storage.list_names(tmp_path / "file")


def test_listings_hide_what_is_hidden_unless_it_is_asked_for(tmp_path: Path) -> None:
    names = ["b/part-2.parquet", "a/.part-1.parquet", "a/part-1.parquet", "c.json", ".c.json.tmp"]
    for name in names:
        storage.replace(tmp_path / name, b"x")
    assert storage.list_folder(tmp_path, "[!.]*.json") == [tmp_path / "c.json"]
    assert storage.list_folder(tmp_path) == [tmp_path / "a", tmp_path / "b", tmp_path / "c.json"]
    assert storage.list_folders(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert storage.list_tree(tmp_path) == sorted(tmp_path / name for name in names)
    assert storage.list_tree(tmp_path, "part-*") == [tmp_path / "a/part-1.parquet", tmp_path / "b/part-2.parquet"]


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch)
    with storage.create(tmp_path / "folder" / "file") as handle:
        handle.write(b"whole")
    assert synced.paths[-2:] == [str(tmp_path / "folder" / "file"), str(tmp_path / "folder")]
    with pytest.raises(FileExistsError), storage.create(tmp_path / "folder" / "file"):
        pass
    assert storage.read(tmp_path / "folder" / "file") == b"whole"
    with pytest.raises(TryAgainError, match="DISK_FULL"), storage.create(tmp_path / "other") as handle:
        handle.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not storage.exists(tmp_path / "other")


def test_a_second_name_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    storage.link(tmp_path / "a", tmp_path / "b")
    storage.link(tmp_path / "a", tmp_path / "b")
    assert storage.is_same(tmp_path / "a", tmp_path / "b")
    storage.remove(tmp_path / "a")
    storage.link(tmp_path / "a", tmp_path / "b")  # killed and called again: what it was for is done
    storage.remove(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        storage.link(tmp_path / "a", tmp_path / "b")
