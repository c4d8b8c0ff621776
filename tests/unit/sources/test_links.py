"""Symbolic links and special files in an inbox: whoever may drop files there reads no others by it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.sources.files.ledger import NewFile
from tidegate.sources.files.pinned import list_static


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    root = tmp_path / "project"
    root.mkdir()
    (root / ".env").write_text("KAFKA_PASSWORD=secret\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.json").write_text('{"outside": 1}\n')
    with make_inbox(root, settle="0 seconds", schema="id STRING") as made:
        yield made


def test_a_link_to_the_projects_env_reaches_neither_intake_nor_quarantine(inbox: Inbox) -> None:
    (inbox.root / "inbox/x.json").symlink_to("../.env")
    (inbox.root / "inbox/y.json").symlink_to("/etc/passwd")
    inbox.write("good.json", "{}\n")
    scan, texts = inbox.run(0)
    assert texts == [b"{}\n"]
    why = {one["path"]: one["why"] for one in scan.skipped}
    assert set(why) == {"inbox/x.json", "inbox/y.json"}
    assert "outside the source's folder" in why["inbox/x.json"] and "follow_links" in why["inbox/x.json"]


def test_links_that_stay_inside_are_followed_and_no_file_is_read_twice(inbox: Inbox) -> None:
    """A link to a file that is read by its own name, as log rotation makes them, would count its records twice."""
    inbox.write("day=1/a.json", "a\n")
    inbox.write(".data/b.json", "b\n")
    (inbox.root / "inbox/relative.json").symlink_to("day=1/a.json")
    (inbox.root / "inbox/chain.json").symlink_to("relative.json")
    (inbox.root / "inbox/absolute.json").symlink_to(inbox.root / "inbox/day=1/a.json")
    (inbox.root / "inbox/day=2").symlink_to("day=1")
    (inbox.root / "inbox/y.json").symlink_to(".data/b.json")
    (inbox.root / "inbox/x.json").symlink_to(".data/b.json")
    inbox.keys["options"] = {"recursiveFileLookup": True}
    scan = inbox.scan()
    assert [entry.path.removeprefix("inbox/") for entry in scan.new] == ["day=1/a.json", "x.json"]
    why = {one["path"].removeprefix("inbox/"): one["why"] for one in scan.skipped}
    for name in ("relative.json", "chain.json", "absolute.json"):
        assert why[name] == f"leads to {inbox.root}/inbox/day=1/a.json, which is read"
    assert why["y.json"] == f"leads to {inbox.root}/inbox/x.json, which is read"


def test_a_pattern_reads_files_behind_a_linked_folder_once(inbox: Inbox) -> None:
    inbox.write("day=1/a.json", "a\n")
    (inbox.root / "inbox/day=0").symlink_to("day=1")
    inbox.keys["path"] = "inbox/*/*.json"
    scan = inbox.scan()
    assert [entry.path for entry in scan.new] == ["inbox/day=1/a.json"]
    assert {one["path"]: one["why"] for one in scan.skipped} == {
        "inbox/day=0/a.json": f"leads to {inbox.root}/inbox/day=1/a.json, which is read"
    }


def test_chains_and_folders_that_lead_outside_are_not(inbox: Inbox, tmp_path: Path) -> None:
    (inbox.root / "inbox/chain.json").symlink_to("middle.json")
    (inbox.root / "inbox/middle.json").symlink_to(tmp_path / "outside/a.json")
    (inbox.root / "inbox/day=1").symlink_to(tmp_path / "outside")
    (inbox.root / "inbox/sub").symlink_to(tmp_path / "outside")
    assert inbox.scan().new == ()
    assert len(inbox.scan().skipped) == 4
    for pattern in ("inbox/*/*.json", "inbox/**/*.json", "inbox/s[u]b", "inbox/sub*/*.json"):
        inbox.keys["path"] = pattern
        assert inbox.scan().new == (), pattern


def test_named_folders_may_be_led_to(inbox: Inbox, tmp_path: Path) -> None:
    (inbox.root / "inbox/a.json").symlink_to(tmp_path / "outside/a.json")
    (tmp_path / "outside/more").mkdir()
    (tmp_path / "outside/more/b.json").write_text('{"outside": 1}\n')
    (inbox.root / "inbox/day=1").symlink_to(tmp_path / "outside/more")
    (inbox.root / "inbox/env.json").symlink_to("../.env")
    inbox.keys["follow_links"] = ["../outside"]
    scan, texts = inbox.run(0)
    assert texts == [b'{"outside": 1}\n'] * 2
    assert [one["path"] for one in scan.skipped] == ["inbox/env.json"]


@pytest.mark.parametrize("path", ["alias", "alias/*.json", "alias/a.json"])
def test_a_source_that_is_itself_a_link(inbox: Inbox, tmp_path: Path, path: str) -> None:
    (inbox.root / "alias").symlink_to(tmp_path / "outside")
    inbox.keys["path"] = path
    _, texts = inbox.run(0)
    assert texts == [b'{"outside": 1}\n']


def test_what_is_no_file_is_named_and_never_opened(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = inbox.root / "inbox"
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "zero.json").symlink_to("/dev/zero")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.json")
        scan = inbox.scan()
    assert scan.new == ()
    assert {one["path"] for one in scan.skipped} == {
        f"inbox/{name}.json" for name in ("pipe", "folder", "zero", "socket")
    }


def _replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("../.env")


def _replace_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("day=9"))
    path.parent.symlink_to(path.parent.parent.parent / "elsewhere")


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_its_like(path: Path) -> None:
    before, beside = path.stat(), path.with_name(".beside")
    beside.write_text("[]\n")
    os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
    beside.rename(path)


def _replace_by_link_to_its_like(path: Path) -> None:
    before, other = path.stat(), path.parent.parent.parent / "like.json"
    other.write_text("[]\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    path.unlink()
    path.symlink_to(other)


def _append(path: Path) -> None:
    with path.open("a") as handle:
        handle.write("half of a li")


@pytest.mark.parametrize(
    "exchange",
    [
        _replace_by_link,
        _replace_its_folder,
        _replace_by_pipe,
        _replace_by_its_like,
        _replace_by_link_to_its_like,
        _append,
    ],
)
def test_a_file_exchanged_after_it_was_listed_is_left_to_the_next_run(
    inbox: Inbox, exchange: Callable[[Path], None]
) -> None:
    (inbox.root / "elsewhere").mkdir()
    (inbox.root / "elsewhere/a.json").write_text("secret\n")
    path = inbox.write("day=1/a.json", "{}\n")
    scan = inbox.scan()
    exchange(path)
    admitted = inbox.admit(scan)
    assert admitted.links == ()
    assert [one["path"] for one in admitted.gone] == ["inbox/day=1/a.json"]
    assert not any(one.is_file() for one in inbox.intake.rglob("*"))
    assert inbox.ledger.rows() == []


def test_a_link_that_is_made_good_after_a_crash_leads_nowhere_else(inbox: Inbox) -> None:
    path = inbox.write("day=1/a.json", "{}\n")
    (entry,) = inbox.scan().new
    inbox.ledger.add_links(SOURCE, [NewFile(entry.path, entry.size, entry.mtime_ns, "")])
    _replace_by_link_to_its_like(path)  # killed before the link was made
    assert inbox.restore().lost == ("inbox/day=1/a.json",)


def test_a_symbolic_link_in_the_intake_is_replaced(inbox: Inbox) -> None:
    inbox.write("a.json", "{}\n")
    (link,) = inbox.admit().links
    (inbox.intake / link).unlink()
    (inbox.intake / link).symlink_to(inbox.root / ".env")
    assert inbox.restore().links == (link,)
    assert (inbox.intake / link).read_text() == "{}\n"


def test_static_sources_follow_the_same_rule(inbox: Inbox) -> None:
    inbox.write("a.json", "{}\n")
    (inbox.root / "inbox/x.json").symlink_to("../.env")
    entries, _ = list_static(inbox.project, inbox.paths, SOURCE, inbox.spec)
    assert [entry.path for entry in entries] == ["inbox/a.json"]
