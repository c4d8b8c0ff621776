"""The intake: safe links to whatever the user's files are called, and what is found again after a crash."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.unit.taken_files import take_stats, taken_files
from tidegate.core.hive_names import unescape_name
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files import intake
from tidegate.sources.files.ledger import Ledger, NewFile, open_ledger
from tidegate.sources.files.partition_values import partition_folder
from tidegate.sources.files.scan import FileEntry, scan_files
from tidegate.spec.models import FilesSource, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.batch_files import links_between

ODD_NAMES = ["a b.json", "100%25.json", "k=v.json", "x[y].json", "x{y}.json", "日本 ü.json", "new\nline.json",
             os.fsdecode(b"bytes-\xff.json")]  # fmt: skip
SPEC = FilesSource.read({"type": "files", "path": "inbox", "format": "json", "settle": "0 seconds"})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "inbox").mkdir()
    return Project(tmp_path, ProjectSpec())


@pytest.fixture
def paths(project: Project) -> PipelinePaths:
    return project.paths("orders")


@pytest.fixture
def ledger(paths: PipelinePaths) -> Iterator[Ledger]:
    with open_ledger(paths) as opened:
        yield opened


def write(project: Project, name: str, text: str = "{}\n") -> Path:
    path = project.root / "inbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def admit_all(
    project: Project, paths: PipelinePaths, ledger: Ledger, spec: FilesSource = SPEC
) -> tuple[intake.Admitted, tuple[FileEntry, ...]]:
    scan = scan_files(project, paths, "trades", spec, ledger)
    return intake.admit(paths, "trades", spec, scan.new, ledger), scan.new


def test_odd_names_are_admitted_under_plain_ones(project: Project, paths: PipelinePaths, ledger: Ledger) -> None:
    for name in ODD_NAMES:
        write(project, name, name.encode("utf-8", "surrogateescape").hex())
    admitted, _ = admit_all(project, paths, ledger)
    assert len(admitted.links) == len(ODD_NAMES)
    assert admitted.gone == ()
    originals = {row.link: row.path for row in ledger.rows("trades", links=admitted.links)}
    for link in admitted.links:
        assert quote(link) == link
        name = originals[link].removeprefix("inbox/")
        assert (paths.intake("trades") / link).read_text() == name.encode("utf-8", "surrogateescape").hex()


def test_partition_folders_are_kept_and_come_back_from_sparks_uri(
    project: Project, paths: PipelinePaths, ledger: Ledger
) -> None:
    write(project, "day=2026-01-01/city=São Paulo%2FX/a.json.gz")
    write(project, "day=2026-01-02/city=__HIVE_DEFAULT_PARTITION__/a.json.gz")
    admitted, entries = admit_all(project, paths, ledger)
    assert [entry.partition for entry in entries] == [
        {"day": "2026-01-01", "city": "São Paulo/X"}, {"day": "2026-01-02", "city": None}
    ]  # fmt: skip
    folders = [os.path.dirname(link) for link in admitted.links]
    assert folders == ["day=2026-01-01/city=São Paulo%2FX", "day=2026-01-02/city=__HIVE_DEFAULT_PARTITION__"]
    log = paths.checkpoint / "sources" / "trades" / "0"
    log.parent.mkdir(parents=True)
    uris = [(paths.intake("trades") / link).as_uri() for link in admitted.links]
    log.write_text("\n".join(["v1", *(json.dumps({"path": uri, "timestamp": 1, "batchId": 0}) for uri in uris)]))
    assert tuple(links_between(paths.checkpoint, "trades", -1, 0)) == admitted.links
    ledger.mark_staged("trades", "q", 0, taken_files(ledger, take_stats(paths.intake("trades"), admitted.links)))
    ledger.mark_published("q", 0)
    assert intake.remove_links(paths, ledger.removable_links(), ledger) == 2
    assert list(paths.intake("trades").iterdir()) == []
    assert ledger.removable_links() == []
    assert intake.remove_links(paths, ledger.removable_links(), ledger) == 0
    assert (project.root / "inbox/day=2026-01-01/city=São Paulo%2FX/a.json.gz").exists()


@pytest.mark.parametrize("text", ["a/b", "50%", "x=y", "q?*[]{}", "tab\there", "é日", "__x", "a:b", "'\"\\", " "])
def test_hive_escapes_are_read_back(text: str) -> None:
    escaped = partition_folder({"k": text}).removeprefix("k=")
    assert not set(escaped) & set("/=?*[]{}:'\"\\\t")
    assert unescape_name(escaped) == text


def test_a_deleted_or_replaced_file_keeps_its_content_until_it_is_read(
    project: Project, paths: PipelinePaths, ledger: Ledger
) -> None:
    write(project, "deleted.json", "one")
    write(project, "replaced.json", "two")
    admitted, _ = admit_all(project, paths, ledger)
    (project.root / "inbox/deleted.json").unlink()
    write(project, "fresh.tmp", "three").rename(project.root / "inbox/replaced.json")
    assert [(paths.intake("trades") / link).read_text() for link in admitted.links] == ["one", "two"]
    restored = intake.restore_links(project, paths, "trades", SPEC, ledger)
    assert restored == intake.Restored((), (), ())


def test_a_crash_between_ledger_and_links_is_made_good(project: Project, paths: PipelinePaths, ledger: Ledger) -> None:
    for name in ("a.json", "b.json", "c.json"):
        write(project, name, name)
    entries = scan_files(project, paths, "trades", SPEC, ledger).new
    rows = ledger.add_links("trades", [NewFile(e.path, e.size, e.mtime_ns, "") for e in entries])
    # killed here: no link was made
    (project.root / "inbox/b.json").unlink()
    write(project, "c.json", "longer than it was")
    restored = intake.restore_links(project, paths, "trades", SPEC, ledger)
    assert restored.links == (rows[0].link, rows[2].link)
    assert restored.lost == ("inbox/b.json",)
    assert restored.changed == ("inbox/c.json",)
    assert intake.restore_links(project, paths, "trades", SPEC, ledger).lost == ("inbox/b.json",)
    ledger.drop_linked("trades", restored.lost)
    assert intake.restore_links(project, paths, "trades", SPEC, ledger).lost == ()
    write(project, "b.json", "back")
    (again,) = scan_files(project, paths, "trades", SPEC, ledger).new
    assert again.path == "inbox/b.json"


def test_a_file_gone_between_listing_and_admitting_is_told_and_may_come_back(
    project: Project, paths: PipelinePaths, ledger: Ledger
) -> None:
    write(project, "a.json")
    write(project, "b.json")
    entries = scan_files(project, paths, "trades", SPEC, ledger).new
    (project.root / "inbox/a.json").unlink()
    admitted = intake.admit(paths, "trades", SPEC, entries, ledger)
    assert [one["path"] for one in admitted.gone] == ["inbox/a.json"]
    assert len(admitted.links) == 1
    write(project, "a.json")
    assert [entry.path for entry in scan_files(project, paths, "trades", SPEC, ledger).new] == ["inbox/a.json"]


def test_admitting_twice_changes_nothing(project: Project, paths: PipelinePaths, ledger: Ledger) -> None:
    write(project, "a.json")
    first, entries = admit_all(project, paths, ledger)
    assert intake.admit(paths, "trades", SPEC, entries, ledger) == first
    assert len(list(paths.intake("trades").iterdir())) == 1


def test_another_device_gets_copies_which_keep_what_was_taken(
    project: Project, paths: PipelinePaths, ledger: Ledger, other_device: Path
) -> None:
    for name in ("a [1].json", "b.json"):
        (other_device / name).write_text(name)
        os.utime(other_device / name, ns=(1, 1_234_567_891))
    (project.root / "linked").symlink_to(other_device)
    spec = SPEC.replace(path="linked")
    admitted, entries = admit_all(project, paths, ledger, spec)
    assert [entry.path for entry in entries] == ["linked/a [1].json", "linked/b.json"]
    links = [paths.intake("trades") / link for link in admitted.links]
    assert not any(link.is_symlink() for link in links)
    (other_device / "b.json").unlink()
    assert [link.read_text() for link in links] == ["a [1].json", "b.json"]
    assert {link.stat().st_mtime_ns for link in links} == {1_234_567_891}
    assert intake.restore_links(project, paths, "trades", spec, ledger) == intake.Restored((), (), ())


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.EXDEV])
def test_where_no_hard_link_can_be_had_the_file_is_copied(
    project: Project, paths: PipelinePaths, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: str, target: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    write(project, "a.json", "text")
    monkeypatch.setattr("tidegate.sources.files.intake.os.link", refuse)
    admitted, _ = admit_all(project, paths, ledger)
    link = paths.intake("trades") / admitted.links[0]
    assert not link.is_symlink()
    assert link.read_text() == "text"
    write(project, "a.json", "tuxt")
    assert link.read_text() == "text"


def test_a_new_checkpoint_finds_only_what_is_owed_to_it(project: Project, paths: PipelinePaths, ledger: Ledger) -> None:
    for name in ("a.json", "b.json", "c.json", "day=1/d.json"):
        write(project, name)
    entries = scan_files(project, paths, "trades", SPEC, ledger).new
    rows = ledger.add_links(
        "trades", [NewFile(name, 3, 1, "") for name in ("inbox/a.json", "inbox/b.json", "inbox/c.json")]
    )
    assert entries
    intake.restore_links(project, paths, "trades", SPEC, ledger)
    stray = paths.intake("trades") / "day=1"
    stray.mkdir()
    (stray / "0000000099-ffffffff.json").write_text("unknown")
    for number, row in enumerate(rows[:2]):
        one = {"path": row.path, "size": 3, "mtime_ns": 1, "link": row.link}
        ledger.mark_staged("trades", "q", number, [one])
    ledger.mark_published("q", 0)
    swept = intake.sweep_intake(paths, "trades", ledger)
    assert sorted(swept) == sorted([rows[0].link, "day=1/0000000099-ffffffff.json"])
    assert not stray.exists()
    assert intake.sweep_intake(paths, "trades", ledger, keep_staged=False) == [rows[1].link]
    assert [path.name for path in paths.intake("trades").iterdir()] == [rows[2].link]
    ledger.return_to_linked({"q": -1})
    restored = intake.restore_links(project, paths, "trades", SPEC, ledger)
    assert sorted(restored.links) == sorted(row.link for row in rows[:2])
