"""What a scan says is new, settling, skipped, changed and vanished."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.no_rights import not_writable
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tests.unit.taken_files import take_stats, taken_files
from tidegate.core.errors import SourceLostError
from tidegate.sources.files import intake
from tidegate.sources.files.findings import note_scan
from tidegate.sources.files.scan import FilesScan, scan_files
from tidegate.spec.models import FilesSource

ODD_NAMES = ["a b.json", "100%25.json", "k=v.json", "x[y].json", "x{y}.json", "日本 ü.json", "new\nline.json",
             os.fsdecode(b"bytes-\xff.json")]  # fmt: skip


class Folder(Inbox):
    """A project whose source may be somewhere else in each scan."""

    def write(self, name: str, text: str = "{}\n") -> Path:
        """Write a file of the project."""
        return super().write(f"../{name}", text)

    def scan(self, path: str = "inbox", now: float | None = None, **more: Any) -> FilesScan:
        """Find what is new in ``path``."""
        spec = FilesSource(**{**self.keys, "path": path, **more})
        return scan_files(self.project, self.paths, SOURCE, spec, self.ledger, now)

    def take(self, scan: FilesScan | None = None, *, is_published: bool = True) -> list[str]:
        """Take what is new, as batch 0. Returns the paths."""
        files = taken_files(self.ledger, take_stats(self.intake, self.admit(scan).links))
        self.ledger.mark_staged(SOURCE, "q", 0, files)
        if is_published:
            self.ledger.mark_published("q", 0)
            intake.remove_links(self.paths, self.ledger.removable_links(), self.ledger)
        return [file["path"] for file in files]


@contextlib.contextmanager
def make_folder(root: Path) -> Iterator[Folder]:
    with make_inbox(root, settle="0 seconds") as inbox:
        yield Folder(root, inbox.ledger, settle="0 seconds")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with make_folder(tmp_path) as made:
        yield made


@contextlib.contextmanager
def as_nobody(root: Path) -> Iterator[None]:
    """Root may read everything: the block runs as a user who owns ``root`` and is nobody elsewhere."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    for path in (root, *root.rglob("*")):
        os.chown(path, nobody, nobody)
    os.setresuid(nobody, nobody, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def new_paths(scan: FilesScan) -> list[str]:
    return [entry.path for entry in scan.new]


def skipped(scan: FilesScan) -> dict[str, str]:
    return {one["path"]: one["why"] for one in scan.skipped}


def test_an_empty_folder_is_well_and_a_missing_one_is_an_error(folder: Folder) -> None:
    scan = folder.scan()
    assert (scan.new, scan.skipped, scan.vanished) == ((), (), ())
    for path in ("nowhere", "nowhere/*.json", "nowhere/deeper/**/*.json"):
        with pytest.raises(SourceLostError) as refused:
            folder.scan(path)
        assert refused.value.code == "SOURCE_MISSING"
        assert "nowhere" in refused.value.message
        assert refused.value.fix


def test_odd_names_are_new_once(folder: Folder) -> None:
    for name in ODD_NAMES:
        folder.write(f"inbox/{name}")
    scan = folder.scan()
    assert new_paths(scan) == sorted(f"inbox/{name}" for name in ODD_NAMES)
    assert {entry.size for entry in scan.new} == {3}
    assert sorted(folder.take(scan)) == new_paths(scan)
    after = folder.scan()
    assert (after.new, after.changed, after.vanished) == ((), (), ())


def test_time_stamps_do_not_matter(folder: Folder) -> None:
    for name, stamp in (("old", 0.0), ("before 1970", -1e9), ("future", 4e9), ("now", time.time())):
        os.utime(folder.write(f"inbox/{name}.json"), (stamp, stamp))
    assert len(folder.scan().new) == 4
    folder.take()
    late = folder.write("inbox/late.json")
    os.utime(late, (1.0, 1.0))
    assert new_paths(folder.scan()) == ["inbox/late.json"]


def test_what_is_not_taken_is_named_with_the_reason(folder: Folder) -> None:
    for name in ("_SUCCESS", ".hidden.json", "a.json.tmp", "b.part", "c.PARTIAL", "d.inprogress", "e.crdownload",
                 "f.json._COPYING_", "sub/a.json", ".git/a.json", "_tmp/a.json"):  # fmt: skip
        folder.write(f"inbox/{name}")
    folder.write("inbox/empty.json", "")
    os.mkfifo(folder.root / "inbox/pipe.json")
    (folder.root / "inbox/dangling.json").symlink_to("nothing")
    here = os.getcwd()
    os.chdir(folder.root / "inbox")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.json")
        os.chdir(here)
        folder.write("inbox/good.json")
        scan = folder.scan()
    assert new_paths(scan) == ["inbox/good.json"]
    expected = {
        "_SUCCESS": "hidden", ".hidden.json": "hidden", "a.json.tmp": "still being written", "b.part": "still being",
        "c.PARTIAL": "still being", "d.inprogress": "still being", "e.crdownload": "still being",
        "f.json._COPYING_": "still being", "sub": "only k=v folders", ".git": "hidden folder", "_tmp": "hidden folder",
        "empty.json": "empty", "pipe.json": "not a regular", "socket.json": "not a regular",
        "dangling.json": "to nothing",
    }  # fmt: skip
    why = skipped(scan)
    assert set(why) == {f"inbox/{name}" for name in expected}
    for name, reason in expected.items():
        assert reason in why[f"inbox/{name}"], name


def test_a_file_written_under_another_name_is_taken_when_it_is_renamed(folder: Folder) -> None:
    path = folder.write("inbox/a.json.tmp")
    assert folder.scan().new == ()
    path.rename(folder.root / "inbox/a.json")
    folder.write("inbox/empty.json", "").write_text("{}")
    assert new_paths(folder.scan()) == ["inbox/a.json", "inbox/empty.json"]


def test_settling_goes_by_ctime_which_cannot_be_set(folder: Folder) -> None:
    path = folder.write("inbox/a.json")
    os.utime(path, (1.0, 1.0))
    changed_at = path.stat().st_ctime
    scan = folder.scan(now=changed_at + 29.0, settle="30 seconds")
    assert scan.new == ()
    (settling,) = scan.settling
    assert (settling["path"], settling["age_seconds"]) == ("inbox/a.json", pytest.approx(29.0))
    assert "unchanged for 30 seconds" in settling["why"]
    assert new_paths(folder.scan(now=changed_at + 30.5, settle="30 seconds")) == ["inbox/a.json"]
    os.utime(path, (changed_at + 1e6, changed_at + 1e6))
    assert new_paths(folder.scan(now=path.stat().st_ctime + 31, settle="30 seconds")) == ["inbox/a.json"]
    with path.open("a") as handle:
        handle.write("{}")
    assert folder.scan(now=path.stat().st_ctime + 1, settle="30 seconds").new == ()
    assert new_paths(folder.scan(now=changed_at - 1e6)) == ["inbox/a.json"]


@pytest.mark.parametrize("text", ["{}\n{}\n", "{", "[]\n"], ids=["appended", "shrunk", "rewritten"])
def test_a_change_after_it_was_read_is_reported_once_and_again_when_it_goes_on(folder: Folder, text: str) -> None:
    path = folder.write("inbox/a.json")
    os.utime(path, (1.0, 1.0))
    folder.take(is_published=False)
    path.write_text(text)
    scan = folder.scan()
    assert scan.new == ()
    (change,) = scan.changed
    assert (change["path"], change["was"]["size"], change["now"]["size"]) == ("inbox/a.json", 3, len(text))
    assert change["policy"] == "not read again"
    assert folder.scan().changed == scan.changed
    note_scan(folder.ledger, SOURCE, scan)
    assert folder.scan().changed == ()
    path.write_text(text + "more")
    assert len(folder.scan().changed) == 1


def test_a_change_before_it_is_read_is_simply_read(folder: Folder) -> None:
    path = folder.write("inbox/a.json")
    admitted = folder.admit()
    path.write_text("{}\n{}\n")
    assert folder.scan().changed == ()
    stats = take_stats(folder.intake, admitted.links)
    folder.ledger.mark_staged(SOURCE, "q", 0, taken_files(folder.ledger, stats))
    assert folder.scan().changed == ()


@pytest.mark.parametrize("is_published", [True, False])
def test_what_vanished_is_reported_once(folder: Folder, is_published: bool) -> None:
    for name in ODD_NAMES:
        folder.write(f"inbox/{name}")
    folder.take(is_published=is_published)
    for name in ODD_NAMES[:3]:
        (folder.root / "inbox" / name).unlink()
    scan = folder.scan()
    assert scan.vanished == tuple(sorted(f"inbox/{name}" for name in ODD_NAMES[:3]))
    assert folder.scan().vanished == scan.vanished
    note_scan(folder.ledger, SOURCE, scan)
    assert folder.scan().vanished == ()
    folder.write(f"inbox/{ODD_NAMES[0]}", "another text")
    back = folder.scan()
    assert (back.new, back.vanished) == ((), ())
    assert [one["path"] for one in back.changed] == [f"inbox/{ODD_NAMES[0]}"]


def test_what_may_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as root, make_folder(Path(root)) as folder:
        folder.write("inbox/day=1/a.json")
        folder.take()
        folder.write("inbox/b.json").chmod(0)
        (folder.root / "inbox/day=1").chmod(0)
        with as_nobody(folder.root):
            scan = folder.scan()
        (folder.root / "inbox/day=1").chmod(0o700)
    assert set(skipped(scan)) == {"inbox/b.json", "inbox/day=1"}
    assert scan.vanished == ()


def test_a_folder_that_cannot_be_listed_has_not_vanished(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("inbox/day=1/a.json")
    folder.write("inbox/day=2/a.json")
    folder.take()
    listed = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("day=1"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr("tidegate.sources.files.listing.os.scandir", refuse)
    scan = folder.scan()
    assert scan.vanished == ()
    assert skipped(scan) == {"inbox/day=1": "cannot be listed: Permission denied; the next run tries again"}


def test_partition_folders_give_the_columns_of_the_schema(folder: Folder) -> None:
    folder.write("inbox/Day=2026-01-01/shard=3/city=a%2Fb/a.json")
    folder.write("inbox/Day=2026-01-02/shard=4/city=__HIVE_DEFAULT_PARTITION__/a.json")
    scan = folder.scan(schema="id INT, day DATE, city STRING")
    assert [entry.partition for entry in scan.new] == [
        {"day": "2026-01-01", "city": "a/b"}, {"day": "2026-01-02", "city": None}
    ]  # fmt: skip
    assert scan.partition_columns == ("day", "city")
    folder.take(scan, is_published=False)
    folder.write("inbox/city=c/Day=2026-01-03/b.json")
    folder.write("inbox/stray.json")
    after = folder.scan(schema="id INT, day DATE, city STRING")
    assert [entry.partition for entry in after.new] == [{"day": "2026-01-03", "city": "c"}]
    assert list(after.new[0].partition) == ["day", "city"]
    assert "its folders give the columns ()" in skipped(after)["inbox/stray.json"]


@pytest.mark.parametrize("first", ["inbox/stray.json", "inbox/day=1/a.json"])
def test_files_in_and_out_of_folders_do_not_mix_in_one_intake(folder: Folder, first: str) -> None:
    folder.write(first)
    folder.take(is_published=False)
    second = ({"inbox/stray.json", "inbox/day=1/a.json"} - {first}).pop()
    folder.write(second)
    assert set(skipped(folder.scan())) == {second}


def test_globs(folder: Folder) -> None:
    for name in ("a/x.json", "a/y.csv", "b/x.json", "b/deep/er/x.json", "a/_no.json", ".c/x.json", "day=1/x.json"):
        folder.write(f"inbox/{name}")
    cases = {
        "inbox/[ab]/*.json": ["inbox/a/x.json", "inbox/b/x.json"],
        "inbox/?/x.json": ["inbox/a/x.json", "inbox/b/x.json"],
        "inbox/b/**/x.json": ["inbox/b/deep/er/x.json", "inbox/b/x.json"],
        "inbox/[b]": ["inbox/b/x.json"],
        "inbox/a/x.json": ["inbox/a/x.json"],
        "inbox/zzz*": [],
    }
    (folder.root / "inbox/a/loop").symlink_to(folder.root / "inbox")
    for pattern, expected in cases.items():
        assert new_paths(folder.scan(pattern)) == expected, pattern
    (by_day,) = folder.scan("inbox/day=*/*.json").new
    assert (by_day.path, by_day.partition) == ("inbox/day=1/x.json", {"day": "1"})
    (folder.root / "inbox/day=1/x.json").unlink()
    deep = folder.scan("inbox/**/*.json")
    assert new_paths(deep) == ["inbox/a/x.json", "inbox/b/deep/er/x.json", "inbox/b/x.json"]
    assert {"inbox/.c", "inbox/a/loop", "inbox/a/_no.json"} <= set(skipped(deep))
    assert new_paths(folder.scan("inbox/*/x.json")) == ["inbox/a/x.json", "inbox/b/x.json"]
    assert new_paths(folder.scan("inbox/*")) == ["inbox/a/x.json", "inbox/a/y.csv", "inbox/b/x.json"]
    assert skipped(folder.scan("inbox/a/*.json")) == {
        "inbox/a/_no.json": "hidden: its name starts with _ or .; renamed, it is read"
    }


def test_a_folder_named_like_a_glob_is_a_folder(folder: Folder) -> None:
    folder.write("in[box]/a.json")
    folder.write("inb/b.json")
    assert new_paths(folder.scan("in[box]")) == ["in[box]/a.json"]


def test_sparks_own_options_on_names_and_depth(folder: Folder) -> None:
    for name in ("a.json", "b.csv", "c.txt", "sub/d.json"):
        folder.write(f"inbox/{name}")
    scan = folder.scan(options={"pathGlobFilter": "*.{json,cs?}"})
    assert new_paths(scan) == ["inbox/a.json", "inbox/b.csv"]
    assert skipped(scan)["inbox/c.txt"] == "does not match pathGlobFilter"
    assert "inbox/sub/d.json" in new_paths(folder.scan(options={"recursiveFileLookup": True}))


def test_links_to_folders_are_followed_and_circles_end(folder: Folder, tmp_path: Path) -> None:
    folder.write("elsewhere/day=1/a.json")
    (folder.root / "alias").symlink_to(folder.root / "elsewhere")
    (folder.root / "elsewhere/day=2").symlink_to(folder.root / "elsewhere")
    scan = folder.scan("alias")
    assert new_paths(scan) == ["alias/day=1/a.json"]
    assert "leads back" in skipped(scan)["alias/day=2"]
    assert new_paths(folder.scan(str(tmp_path / "alias"))) == ["alias/day=1/a.json"]


def test_a_folder_outside_the_project_has_absolute_paths(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.json").write_text("{}")
    scan = folder.scan(str(outside))
    assert new_paths(scan) == [str(outside / "a.json")]
    assert folder.take(scan) == [str(outside / "a.json")]
    assert folder.scan(str(outside)).new == ()


def test_ten_thousand_known_files_cost_little(folder: Folder) -> None:
    for number in range(10_000):
        folder.write(f"inbox/orders_{number:06d}.json")
    folder.take()
    times, plain = [], []
    for _ in range(3):
        started = time.process_time()
        scan = folder.scan()
        times.append(time.process_time() - started)
        assert (scan.new, scan.changed, scan.vanished) == ((), (), ())
        started = time.process_time()
        assert sum(one.stat().st_size > 0 for one in os.scandir(folder.root / "inbox")) == 10_000
        plain.append(time.process_time() - started)
    assert min(times) < 8 * min(plain)  # 2.8 measured


def test_a_folder_that_may_not_be_listed(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "inbox").chmod(0o000)
    with not_writable(tmp_path), pytest.raises(SourceLostError, match=r"SOURCE_UNREADABLE: .* no permission to list"):
        folder.scan()
    (tmp_path / "inbox").chmod(0o755)
