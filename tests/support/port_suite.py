"""The behaviour of the storage port, as tests that run on every storage; a subclass gives the fixture ``root``."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate.core import storage

ODD_NAMES = (
    "a b",
    "ä€😀",
    "x=1",
    "100%",
    "%41",
    "a+b",
    "q?a#b&c",
    "[x]{y}",
    "*",
    "'\"",
    "~",
    ".hidden",
    "_log",
)


class PortSuite:
    """Cases of every storage: files, memory, S3, Azure."""

    def test_an_absent_file_is_absent_in_every_way(self, root: Path) -> None:
        path = root / "a" / "absent"
        for act in (storage.read, storage.stat, storage.digest, storage.read_with_stat):
            with pytest.raises(FileNotFoundError):
                act(path)
        for limited in (storage.read_start, storage.read_end):
            with pytest.raises(FileNotFoundError):
                limited(path, 3)
        with pytest.raises(FileNotFoundError):
            storage.touch(path)
        assert not storage.exists(path)
        assert storage.read_json(path) is None
        assert storage.list_names(path) == storage.list_tree(path) == storage.list_folders(path) == []
        assert not storage.has_name(path, lambda name: True)
        assert not storage.take_away(path, b"")
        storage.remove(path)
        storage.remove_tree(path)

    def test_the_first_creator_wins(self, root: Path) -> None:
        assert storage.put_if_absent(root / "token", b"first") is True
        assert storage.put_if_absent(root / "token", b"second") is False
        assert storage.put_if_absent(root / "token", b"first") is False, (
            "the same bytes are no proof of one's own write"
        )
        assert storage.read(root / "token") == b"first"

    def test_of_many_creators_exactly_one_wins(self, root: Path) -> None:
        storage.put_if_absent(root / "other", b"x")
        for turn in range(3):
            path = root / f"token{turn}"
            with ThreadPoolExecutor(16) as pool:
                won = list(pool.map(lambda n, path=path: storage.put_if_absent(path, b"%d" % n), range(16)))
            assert sum(won) == 1
            assert storage.read(path) == b"%d" % won.index(True)

    def test_a_file_is_replaced_whole(self, root: Path) -> None:
        storage.replace(root / "note", b"1" * 1000)
        storage.replace(root / "note", b"2")
        assert storage.read(root / "note") == b"2"
        assert storage.stat(root / "note").size_bytes == 1

    def test_readers_see_the_old_bytes_or_the_new_ones(self, root: Path) -> None:
        path = root / "note"
        bodies = [bytes([65 + n]) * (200_000 + n) for n in range(3)]
        storage.replace(path, bodies[0])
        with ThreadPoolExecutor(4) as pool:
            writes = [pool.submit(storage.replace, path, bodies[n % 3]) for n in range(9)]
            seen = [storage.read(path) for _ in range(20)]
            for write in writes:
                write.result()
        assert all(data in bodies for data in seen)

    def test_parts_of_a_file_are_read(self, root: Path) -> None:
        storage.replace(root / "file", b"0123456789")
        assert storage.read_start(root / "file", 4) == b"0123"
        assert storage.read_end(root / "file", 4) == b"6789"
        assert storage.read_start(root / "file", 40) == storage.read_end(root / "file", 40) == b"0123456789"
        data, found = storage.read_with_stat(root / "file")
        assert (data, found.size_bytes) == (b"0123456789", 10)
        assert found == storage.stat(root / "file")
        assert storage.digest(root / "file") == hashlib.sha256(b"0123456789").hexdigest()

    def test_a_time_that_was_given_is_kept(self, root: Path) -> None:
        storage.put_if_absent(root / "batch", b"x", modified_ns=1_700_000_000_123_000_000)
        storage.replace(root / "other", b"y", modified_ns=1_600_000_000_000_000_000)
        assert storage.stat(root / "batch").modified_ns == 1_700_000_000_123_000_000
        assert storage.stat(root / "other").modified_ns == 1_600_000_000_000_000_000

    def test_names_are_listed_at_once(self, root: Path) -> None:
        for name in ("b", "a", ".h", "sub/c", "sub/deep/d"):
            storage.replace(root / name, b"x")
        assert sorted(storage.list_names(root)) == [".h", "a", "b", "sub"]
        assert storage.list_folder(root) == [root / "a", root / "b", root / "sub"]
        assert storage.list_folder(root, ".*") == [root / ".h"]
        assert storage.list_folders(root) == [root / "sub"]
        assert storage.list_tree(root, "[!.]*") == [
            root / "a",
            root / "b",
            root / "sub/c",
            root / "sub/deep/d",
        ]
        assert storage.has_name(root, lambda name: name == "sub")
        assert storage.exists(root / "sub")
        storage.remove(root / "b")
        assert sorted(storage.list_names(root)) == [".h", "a", "sub"]
        storage.remove_tree(root / "sub")
        assert not storage.exists(root / "sub")

    def test_a_name_that_another_begins_with_is_not_below_it(self, root: Path) -> None:
        storage.replace(root / "orders" / "x", b"1")
        storage.replace(root / "orders2" / "y", b"2")
        assert storage.list_tree(root / "orders") == [root / "orders/x"]
        storage.remove_tree(root / "orders")
        assert storage.list_tree(root) == [root / "orders2/y"]

    def test_one_listing_answers_as_the_storage_does(self, root: Path) -> None:
        for name in ("table/a", "table/.h", "table/day=1/b", "table/day=1/c", "other"):
            storage.replace(root / name, name.encode())
        assert storage.take_away(root / "table" / "a", b"table/a")
        table = root / "table"

        def ask() -> list[object]:
            return [
                sorted(storage.list_names(table)),
                storage.list_folders(table),
                storage.list_tree(table),
                storage.list_folder(table / "day=1"),
                [storage.exists(table / name) for name in ("a", ".h", "day=1", "day", "day=1/b")],
                storage.stat(table / ".h").size_bytes,
                storage.read(table / "day=1" / "c"),
                storage.exists(root / "other"),
            ]

        expected = ask()
        with storage.listed_once(table, root / "absent"):
            assert ask() == ask() == expected
            for act in (storage.read, storage.stat):
                with pytest.raises(FileNotFoundError):
                    act(table / "a")
            assert storage.list_names(root / "absent") == []
            storage.replace(table / "a", b"new")
            assert storage.read(table / "a") == b"new", "a write ends the listing"
        assert storage.read(table / "a") == b"new"

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, root: Path, name: str) -> None:
        assert storage.put_if_absent(root / name, b"x")
        assert storage.list_names(root) == [name]
        assert storage.list_tree(root) == [root / name]
        assert storage.read(root / name) == b"x"
        storage.remove(root / name)
        assert storage.list_names(root) == []

    def test_more_names_than_a_page_has(self, root: Path) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: storage.replace(root / f"{n:05d}", b"x"), range(1100)))
        assert sorted(storage.list_names(root)) == [f"{n:05d}" for n in range(1100)]
        storage.remove_tree(root)
        assert storage.list_names(root) == []

    def test_a_big_body_arrives_whole(self, root: Path, tmp_path: Path) -> None:
        body = bytes(range(256)) * 30_000  # 7.7 MB
        (tmp_path / "staged").write_bytes(body)
        storage.make_folder(root)
        assert storage.place(tmp_path / "staged", root / "part.parquet", lambda digest: None)
        storage.remove_copies(root / "part.parquet")
        assert storage.digest(root / "part.parquet") == hashlib.sha256(body).hexdigest()
        assert storage.list_names(root) == ["part.parquet"]

    def test_a_file_is_read_in_ranges(self, root: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.table({"n": range(50_000), "text": [f"row {n}" for n in range(50_000)]})
        with storage.create(root / "rows.parquet") as handle:
            pq.write_table(rows, handle, row_group_size=10_000)
        with pq.ParquetFile(storage.open_input(root / "rows.parquet")) as file:
            assert file.metadata.num_rows == 50_000
            assert file.read_row_group(3, ["n"]).column("n").to_pylist() == list(range(30_000, 40_000))
        assert pq.read_table(storage.open_input(root / "rows.parquet")) == rows

    def test_a_file_is_created_when_its_block_ends(self, root: Path) -> None:
        with storage.create(root / "file") as handle:
            handle.write(b"abc")
        assert storage.read(root / "file") == b"abc"
        with pytest.raises(FileExistsError), storage.create(root / "file") as handle:
            handle.write(b"def")
        with pytest.raises(ZeroDivisionError), storage.create(root / "second") as handle:
            handle.write(b"abc")
            raise ZeroDivisionError
        assert storage.list_names(root) == ["file"]

    def test_a_touched_file_is_younger(self, root: Path) -> None:
        storage.replace(root / "beat", b"token")
        before = storage.stat(root / "beat").modified_ns
        storage.touch(root / "beat")
        assert storage.stat(root / "beat").modified_ns >= before
        assert storage.read(root / "beat") == b"token"

    def test_a_file_is_moved_once(self, root: Path) -> None:
        storage.replace(root / "from" / "x", b"x")
        assert storage.move(root / "from" / "x", root / "to" / "x") is True
        assert storage.move(root / "from" / "x", root / "to" / "x") is False
        with pytest.raises(FileNotFoundError):
            storage.move(root / "from" / "x", root / "to" / "y")
        assert storage.list_tree(root) == [root / "to/x"]

    def test_a_folder_is_moved_with_all_in_it(self, root: Path) -> None:
        for name in ("x", "sub/y"):
            storage.replace(root / "from" / name, name.encode())
        assert storage.move(root / "from", root / "to") is True
        assert storage.list_tree(root) == [root / "to/sub/y", root / "to/x"]
        assert storage.read(root / "to/sub/y") == b"sub/y"

    def test_a_staged_file_that_the_store_has_is_placed_by_a_copy(self, root: Path, tmp_path: Path) -> None:
        """Also where that object is gone, or somewhere else."""
        stored, target = root / "blobs" / "x", root / "table" / "part.parquet"
        storage.replace(stored, b"rows")
        for there in (stored, root / "blobs" / "gone", tmp_path / "other"):
            staged = tmp_path / "staged.parquet"
            staged.write_bytes(b"rows")
            digests: list[str] = []
            storage.make_folder(target.parent)
            assert storage.place(staged, target, digests.append, stored=there)
            storage.remove_copies(target)
            assert (storage.read(target), staged.exists()) == (b"rows", False)
            assert digests in ([], [hashlib.sha256(b"rows").hexdigest()])
            storage.remove(target)
        assert storage.read(stored) == b"rows"

    def test_a_staged_file_is_placed_once(self, root: Path, tmp_path: Path) -> None:
        storage.make_folder(root / "table")
        for staged in (tmp_path / "staged", root / "staged"):
            target = root / "table" / f"{len(str(staged))}.parquet"
            storage.replace(staged, b"rows")
            assert storage.place(staged, target, lambda digest: None) is True
            assert storage.place(staged, target, lambda digest: None) is False
            assert storage.read(target) == b"rows"
            assert not storage.exists(staged)
            storage.remove(target)
            with pytest.raises(FileNotFoundError):
                storage.place(staged, target, lambda digest: None)

    def test_a_copy_that_a_stale_process_removes_is_made_again(self, root: Path, tmp_path: Path) -> None:
        storage.make_folder(root)
        storage.replace(tmp_path / "staged", b"rows")
        checks = list[str]()

        def check(digest: str) -> None:
            checks.append(digest)
            if len(checks) == 1:
                storage.remove_copies(root / "part")

        assert storage.place(tmp_path / "staged", root / "part", check)
        storage.remove_copies(root / "part")
        assert storage.read(root / "part") == b"rows"
        assert not storage.exists(tmp_path / "staged")
        assert len(checks) == (2 if storage.is_object(root) else 0)

    def test_bytes_that_changed_on_the_way_are_refused(self, root: Path, tmp_path: Path) -> None:
        if not storage.is_object(root):
            return  # a rename does not copy
        storage.replace(tmp_path / "staged", b"rows")

        def check(digest: str) -> None:
            raise ValueError(digest)

        with pytest.raises(ValueError, match=hashlib.sha256(b"rows").hexdigest()):
            storage.place(tmp_path / "staged", root / "part", check)
        assert not storage.exists(root / "part")
        assert storage.exists(tmp_path / "staged")

    def test_a_second_name_has_the_same_bytes(self, root: Path) -> None:
        storage.replace(root / "a", b"rows")
        storage.replace(root / "c", b"rows")
        storage.link(root / "a", root / "b")
        storage.link(root / "c", root / "b")
        assert storage.read(root / "b") == b"rows"
        assert storage.is_same(root / "a", root / "b")
        assert not storage.is_same(root / "c", root / "b")
        storage.refresh_time(root / "a")
        storage.remove(root / "a")
        storage.link(root / "a", root / "b")
        with pytest.raises(FileNotFoundError):
            storage.link(root / "a", root / "d")
        storage.clone(root / "b", root / "e")
        assert storage.read(root / "e") == b"rows"

    def test_only_what_was_read_is_taken_away(self, root: Path) -> None:
        storage.put_if_absent(root / "decision", b"release")
        assert storage.take_away(root / "decision", b"discard") is False
        assert storage.read(root / "decision") == b"release"
        assert storage.take_away(root / "decision", b"release") is True
        assert storage.take_away(root / "decision", b"release") is False
        assert not storage.exists(root / "decision")
        assert storage.list_names(root) == storage.list_tree(root) == []
        assert storage.put_if_absent(root / "decision", b"again") is True
        assert storage.read(root / "decision") == b"again"

    def test_of_many_who_take_it_away_one_has_it(self, root: Path) -> None:
        for turn in range(3):
            path = root / f"decision{turn}"
            storage.put_if_absent(path, b"x")
            with ThreadPoolExecutor(8) as pool:
                taken = list(pool.map(lambda _, path=path: storage.take_away(path, b"x"), range(8)))
            assert sum(taken) == 1

    def test_notes_of_which_the_newest_counts(self, root: Path) -> None:
        for number in (8, 9, 10, 8):
            storage.write_note(root, number, {"number": number})
        assert storage.read_note(root) == {"number": 10}
        storage.write_note(root, 4, {"number": 4}, only=True)
        assert storage.read_note(root) == {"number": 4}
        assert storage.list_names(root) == ["4.json"]
