"""The intake: safe links to whatever the user's files are called, and what is found again after a crash."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tests.unit.taken_files import take_stats, taken_files
from tidegate.core.hive_names import unescape_name
from tidegate.sources.files import intake
from tidegate.sources.files.ledger import NewFile
from tidegate.sources.files.partition_values import partition_folder
from tidegate.state.batch_files import links_between

ODD_NAMES = ["a b.json", "100%25.json", "k=v.json", "x[y].json", "x{y}.json", "日本 ü.json", "new\nline.json",
             os.fsdecode(b"bytes-\xff.json")]  # fmt: skip


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with make_inbox(tmp_path, settle="0 seconds") as made:
        yield made


def test_odd_names_are_admitted_under_plain_ones(inbox: Inbox) -> None:
    for name in ODD_NAMES:
        inbox.write(name, name.encode("utf-8", "surrogateescape").hex())
    admitted = inbox.admit()
    assert len(admitted.links) == len(ODD_NAMES)
    assert admitted.gone == ()
    originals = {row.link: row.path for row in inbox.ledger.rows(SOURCE, links=admitted.links)}
    for link in admitted.links:
        assert quote(link) == link
        name = originals[link].removeprefix("inbox/")
        assert (inbox.intake / link).read_text() == name.encode("utf-8", "surrogateescape").hex()


def test_partition_folders_are_kept_and_come_back_from_sparks_uri(inbox: Inbox) -> None:
    inbox.write("day=2026-01-01/city=São Paulo%2FX/a.json.gz")
    inbox.write("day=2026-01-02/city=__HIVE_DEFAULT_PARTITION__/a.json.gz")
    scan = inbox.scan()
    admitted = inbox.admit(scan)
    assert [entry.partition for entry in scan.new] == [
        {"day": "2026-01-01", "city": "São Paulo/X"}, {"day": "2026-01-02", "city": None}
    ]  # fmt: skip
    folders = [os.path.dirname(link) for link in admitted.links]
    assert folders == ["day=2026-01-01/city=São Paulo%2FX", "day=2026-01-02/city=__HIVE_DEFAULT_PARTITION__"]
    log = inbox.paths.checkpoint / "sources" / SOURCE / "0"
    log.parent.mkdir(parents=True)
    uris = [(inbox.intake / link).as_uri() for link in admitted.links]
    log.write_text("\n".join(["v1", *(json.dumps({"path": uri, "timestamp": 1, "batchId": 0}) for uri in uris)]))
    assert tuple(links_between(inbox.paths.checkpoint, SOURCE, -1, 0)) == admitted.links
    inbox.ledger.mark_staged(SOURCE, "q", 0, taken_files(inbox.ledger, take_stats(inbox.intake, admitted.links)))
    inbox.ledger.mark_published("q", 0)
    assert intake.remove_links(inbox.paths, inbox.ledger.removable_links(), inbox.ledger) == 2
    assert list(inbox.intake.iterdir()) == []
    assert inbox.ledger.removable_links() == []
    assert intake.remove_links(inbox.paths, inbox.ledger.removable_links(), inbox.ledger) == 0
    assert (inbox.root / "inbox/day=2026-01-01/city=São Paulo%2FX/a.json.gz").exists()


@pytest.mark.parametrize("text", ["a/b", "50%", "x=y", "q?*[]{}", "tab\there", "é日", "__x", "a:b", "'\"\\", " "])
def test_hive_escapes_are_read_back(text: str) -> None:
    escaped = partition_folder({"k": text}).removeprefix("k=")
    assert not set(escaped) & set("/=?*[]{}:'\"\\\t")
    assert unescape_name(escaped) == text


def test_a_deleted_or_replaced_file_keeps_its_content_until_it_is_read(inbox: Inbox) -> None:
    inbox.write("deleted.json", "one")
    inbox.write("replaced.json", "two")
    admitted = inbox.admit()
    (inbox.root / "inbox/deleted.json").unlink()
    inbox.write("fresh.tmp", "three").rename(inbox.root / "inbox/replaced.json")
    assert [(inbox.intake / link).read_text() for link in admitted.links] == ["one", "two"]
    restored = inbox.restore()
    assert restored == intake.Restored((), (), ())


def test_a_crash_between_ledger_and_links_is_made_good(inbox: Inbox) -> None:
    for name in ("a.json", "b.json", "c.json"):
        inbox.write(name, name)
    entries = inbox.scan().new
    rows = inbox.ledger.add_links(SOURCE, [NewFile(e.path, e.size, e.mtime_ns, "") for e in entries])
    # killed here: no link was made
    (inbox.root / "inbox/b.json").unlink()
    inbox.write("c.json", "longer than it was")
    restored = inbox.restore()
    assert restored.links == (rows[0].link, rows[2].link)
    assert restored.lost == ("inbox/b.json",)
    assert restored.changed == ("inbox/c.json",)
    assert inbox.restore().lost == ("inbox/b.json",)
    inbox.ledger.drop_linked(SOURCE, restored.lost)
    assert inbox.restore().lost == ()
    inbox.write("b.json", "back")
    (again,) = inbox.scan().new
    assert again.path == "inbox/b.json"


def test_a_file_gone_between_listing_and_admitting_is_told_and_may_come_back(inbox: Inbox) -> None:
    inbox.write("a.json")
    inbox.write("b.json")
    scan = inbox.scan()
    (inbox.root / "inbox/a.json").unlink()
    admitted = inbox.admit(scan)
    assert [one["path"] for one in admitted.gone] == ["inbox/a.json"]
    assert len(admitted.links) == 1
    inbox.write("a.json")
    assert [entry.path for entry in inbox.scan().new] == ["inbox/a.json"]


def test_admitting_twice_changes_nothing(inbox: Inbox) -> None:
    inbox.write("a.json")
    scan = inbox.scan()
    assert inbox.admit(scan) == inbox.admit(scan)
    assert len(list(inbox.intake.iterdir())) == 1


def test_another_device_gets_copies_which_keep_what_was_taken(inbox: Inbox, other_device: Path) -> None:
    for name in ("a [1].json", "b.json"):
        (other_device / name).write_text(name)
        os.utime(other_device / name, ns=(1, 1_234_567_891))
    (inbox.root / "linked").symlink_to(other_device)
    inbox.keys["path"] = "linked"
    scan = inbox.scan()
    admitted = inbox.admit(scan)
    assert [entry.path for entry in scan.new] == ["linked/a [1].json", "linked/b.json"]
    links = [inbox.intake / link for link in admitted.links]
    assert not any(link.is_symlink() for link in links)
    (other_device / "b.json").unlink()
    assert [link.read_text() for link in links] == ["a [1].json", "b.json"]
    assert {link.stat().st_mtime_ns for link in links} == {1_234_567_891}
    assert inbox.restore() == intake.Restored((), (), ())


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.EXDEV])
def test_where_no_hard_link_can_be_had_the_file_is_copied(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: str, target: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    inbox.write("a.json", "text")
    monkeypatch.setattr("tidegate.sources.files.intake.os.link", refuse)
    admitted = inbox.admit()
    link = inbox.intake / admitted.links[0]
    assert not link.is_symlink()
    assert link.read_text() == "text"
    inbox.write("a.json", "tuxt")
    assert link.read_text() == "text"


def test_a_new_checkpoint_finds_only_what_is_owed_to_it(inbox: Inbox) -> None:
    for name in ("a.json", "b.json", "c.json", "day=1/d.json"):
        inbox.write(name)
    rows = inbox.ledger.add_links(
        SOURCE, [NewFile(name, 3, 1, "") for name in ("inbox/a.json", "inbox/b.json", "inbox/c.json")]
    )
    inbox.restore()
    stray = inbox.intake / "day=1"
    stray.mkdir()
    (stray / "0000000099-ffffffff.json").write_text("unknown")
    for number, row in enumerate(rows[:2]):
        one = {"path": row.path, "size": 3, "mtime_ns": 1, "link": row.link}
        inbox.ledger.mark_staged(SOURCE, "q", number, [one])
    inbox.ledger.mark_published("q", 0)
    swept = intake.sweep_intake(inbox.paths, SOURCE, inbox.ledger)
    assert sorted(swept) == sorted([rows[0].link, "day=1/0000000099-ffffffff.json"])
    assert not stray.exists()
    assert intake.sweep_intake(inbox.paths, SOURCE, inbox.ledger, keep_staged=False) == [rows[1].link]
    assert [path.name for path in inbox.intake.iterdir()] == [rows[2].link]
    inbox.ledger.return_to_linked({"q": -1})
    restored = inbox.restore()
    assert sorted(restored.links) == sorted(row.link for row in rows[:2])
