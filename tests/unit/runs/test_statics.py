"""Static sources: one version of their files per run, copied once, kept for a batch that has to be run again."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.keyed import FakeLease
from tests.support.synced import Synced
from tidegate.core import storage
from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.order import pin_statics
from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.files import pinned
from tidegate.spec.models import PipelineSpec, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.checkpoint import CheckpointState
from tidegate.table.log.commit import Commit, commit_files
from tidegate.table.log.state import DataFile

NAME = "students"
HELD: Any = FakeLease()
SETTLED = CheckpointState(True, "q", last_offset=3, last_commit=3)
IN_FLIGHT = CheckpointState(True, "q", last_offset=4, last_commit=3)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "classes").mkdir()
    return Project(tmp_path, ProjectSpec())


@pytest.fixture
def paths(project: Project) -> PipelinePaths:
    return project.paths(NAME)


def make_spec(**keys: Any) -> PipelineSpec:
    """A stream and the static source ``classes``."""
    classes = {"type": "files", "path": "classes", "format": "csv", "schema": "name STRING", "static": True, **keys}
    streaming = {"type": "files", "path": "inbox", "format": "text"}
    return PipelineSpec.read({"version": 1, "name": NAME, "sources": {"students": streaming, "classes": classes}})


SPEC = make_spec()


def write(project: Project, name: str, text: str) -> Path:
    path = project.root / "classes" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pin(
    project: Project,
    paths: PipelinePaths,
    checkpoint: CheckpointState = SETTLED,
    spec: PipelineSpec = SPEC,
    lease: Any = HELD,
) -> dict[str, Any]:
    pinned: Any = pin_statics(project, paths, spec, checkpoint, lease)
    assert list(pinned) == ["classes"], "what streams is not pinned"
    assert storage.read_json(paths.static_version("classes")) == pinned["classes"]
    return pinned["classes"]


def texts(version: dict[str, Any]) -> dict[str, str]:
    return {link: (Path(version["folder"]) / link).read_text() for link in version["links"]}


def folders(paths: PipelinePaths) -> list[str]:
    return sorted(entry.name for entry in paths.static("classes").iterdir() if entry.is_dir())


def test_the_files_of_the_moment_are_copied(project: Project, paths: PipelinePaths) -> None:
    one, two = write(project, "a.csv", "one"), write(project, "b.csv", "two")
    write(project, "empty.csv", "")
    version = pin(project, paths)
    assert texts(version) == {"000000.csv": "one", "000001.csv": "two"}
    assert version["files"] == ["classes/a.csv", "classes/b.csv"], "as the user knows them"
    assert version["partition_columns"] == []
    one.unlink()
    two.write_text("overwritten in place")
    assert texts(version) == {"000000.csv": "one", "000001.csv": "two"}


def test_unchanged_files_are_not_copied_again(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "a.csv", "one")
    first = pin(project, paths)

    def copy(*arguments: Any) -> None:
        raise AssertionError("copied again")

    monkeypatch.setattr(shutil, "copyfile", copy)
    assert pin(project, paths) == first
    shutil.rmtree(first["folder"])
    with pytest.raises(AssertionError, match="copied again"):
        pin(project, paths)


def change_content(project: Project) -> None:
    write(project, "a.csv", "one, and more")


def change_time(project: Project) -> None:
    os.utime(project.root / "classes/a.csv", ns=(1, 1))


def add_one(project: Project) -> None:
    write(project, "c.csv", "three")


def take_one_away(project: Project) -> None:
    (project.root / "classes/b.csv").unlink()


def rename_one(project: Project) -> None:
    (project.root / "classes/a.csv").rename(project.root / "classes/z.csv")


@pytest.mark.parametrize("change", [change_content, change_time, add_one, take_one_away, rename_one])
def test_a_change_makes_a_new_version_and_removes_the_old_one(
    project: Project, paths: PipelinePaths, change: Any
) -> None:
    write(project, "a.csv", "one")
    write(project, "b.csv", "two")
    before = pin(project, paths)
    change(project)
    after = pin(project, paths)
    assert after["version"] != before["version"]
    assert folders(paths) == [Path(after["folder"]).name]
    originals = sorted(path.read_text() for path in (project.root / "classes").iterdir())
    assert sorted(texts(after).values()) == originals


def test_a_batch_in_flight_keeps_its_version(project: Project, paths: PipelinePaths) -> None:
    """What it joined with when it was begun is what it joins with again, whatever became of the files."""
    file = write(project, "a.csv", "one")
    before = pin(project, paths)
    file.write_text("another")
    assert pin(project, paths, IN_FLIGHT) == before
    assert texts(before) == {"000000.csv": "one"}
    shutil.rmtree(project.root / "classes")
    assert pin(project, paths, IN_FLIGHT) == before
    assert texts(before) == {"000000.csv": "one"}
    write(project, "a.csv", "another")
    assert texts(pin(project, paths)) == {"000000.csv": "another"}


def test_a_batch_in_flight_without_a_version_gets_one(project: Project, paths: PipelinePaths) -> None:
    """The source was made static, or its version was given up, after the batch was planned."""
    write(project, "a.csv", "one")
    assert texts(pin(project, paths, IN_FLIGHT)) == {"000000.csv": "one"}


def test_a_copy_that_was_killed_half_way_is_made_anew(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "a.csv", "one")
    write(project, "b.csv", "two")
    copied, real = [], shutil.copyfile

    def copy(source: str, target: Path) -> None:
        copied.append(source)
        if len(copied) == 2:
            target.write_text("tw")
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", copy)
        with pytest.raises(KeyboardInterrupt):
            pin(project, paths)
    assert storage.read_json(paths.static_version("classes")) is None
    assert texts(pin(project, paths)) == {"000000.csv": "one", "000001.csv": "two"}


def truncate(copy: Path) -> None:
    copy.write_text(copy.read_text()[:4])


def edit(copy: Path) -> None:
    copy.write_text(copy.read_text().upper())


def remove(copy: Path) -> None:
    copy.unlink()


@pytest.mark.parametrize("checkpoint", [SETTLED, IN_FLIGHT], ids=["settled", "in flight"])
@pytest.mark.parametrize("damage", [truncate, edit, remove])
def test_a_copy_that_is_not_what_was_made_is_made_again(
    project: Project, paths: PipelinePaths, damage: Any, checkpoint: CheckpointState
) -> None:
    """A join with a torn table blanks rows in silence."""
    write(project, "a.csv", "one\ntwo\n")
    write(project, "b.csv", "three\n")
    before = pin(project, paths)
    damage(Path(before["folder"]) / "000000.csv")
    after = pin(project, paths, checkpoint)
    assert texts(after) == {"000000.csv": "one\ntwo\n", "000001.csv": "three\n"}
    assert after["version"] == before["version"] and folders(paths) == [Path(after["folder"]).name]


def test_copies_are_on_disk_before_they_are_noted(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "year=2025/a.csv", "one")
    synced, real = Synced(monkeypatch), storage.replace
    noted = []

    def replace(path: Path, data: bytes) -> None:
        if path.is_relative_to(paths.state):  # the heartbeat of a test that is over may still be at work
            noted.append(synced.missing(paths.static("classes")))
        real(path, data)

    monkeypatch.setattr(storage, "replace", replace)
    pin(project, paths, spec=make_spec(schema="name STRING, year INT"))
    assert noted == [[]]


def test_a_project_that_was_moved_copies_again(project: Project, paths: PipelinePaths) -> None:
    write(project, "a.csv", "one")
    version = pin(project, paths)
    moved = {**version, "folder": str(project.root / "elsewhere")}
    Path(version["folder"]).rename(moved["folder"])
    storage.replace(paths.static_version("classes"), storage.dump_json(moved))
    again = pin(project, paths)
    assert Path(again["folder"]).parent == paths.static("classes") and texts(again) == {"000000.csv": "one"}


def test_a_process_that_lost_its_lease_while_it_copied_touches_nothing_of_the_next(
    project: Project, paths: PipelinePaths
) -> None:
    """Its successor has noted a newer version meanwhile, and its driver reads the copies."""
    write(project, "a.csv", "one")
    newer: dict[str, Any] = {}

    def is_held() -> bool:
        """Frozen here, after the copies were made."""
        write(project, "a.csv", "one, and more")
        newer.update(pin(project, paths))
        return False

    with pytest.raises(TryAgainError, match="lost"):
        pin_statics(project, paths, SPEC, SETTLED, cast(Any, FakeLease(is_held)))
    assert texts(newer) == {"000000.csv": "one, and more"}
    assert storage.read_json(paths.static_version("classes")) == newer
    assert pin(project, paths) == newer and folders(paths) == [Path(newer["folder"]).name]


def test_a_process_that_lost_its_lease_leaves_the_same_version_of_the_next_alone(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both copy the same files: a folder that the second one's driver reads is neither removed nor exchanged."""
    write(project, "a.csv", "one")
    real, theirs = shutil.copyfile, []

    def copy(source: str, target: Path) -> None:
        if not theirs:
            theirs.append({})
            theirs[0] = pin(project, paths)
            theirs.append(os.stat(Path(theirs[0]["folder"]) / "000000.csv").st_ino)
        real(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(TryAgainError, match="lost"):
        pin_statics(project, paths, SPEC, SETTLED, cast(Any, FakeLease(lambda: False)))
    assert os.stat(Path(theirs[0]["folder"]) / "000000.csv").st_ino == theirs[1]


def test_files_where_topics_were_pinned(project: Project, paths: PipelinePaths) -> None:
    """The static source of this name read topics before: what is noted of them has no folder."""
    storage.replace(paths.static_version("classes"), storage.dump_json({"version": "0", "offsets": {}}))
    write(project, "a.csv", "one")
    assert texts(pin(project, paths)) == {"000000.csv": "one"}


def test_killed_before_the_old_version_is_removed(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "a.csv", "one")
    pin(project, paths)
    change_content(project)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove_tree", lambda path: None)
        version = pin(project, paths)
    assert len(folders(paths)) == 2
    assert pin(project, paths) == version
    assert folders(paths) == [Path(version["folder"]).name]


def test_a_missing_source(project: Project, paths: PipelinePaths) -> None:
    (project.root / "classes").rmdir()
    with pytest.raises(SourceLostError) as caught:
        pin(project, paths)
    assert caught.value.code == "SOURCE_MISSING"
    assert not paths.static("classes").exists()


@pytest.mark.parametrize("names", [[], ["empty.csv"], ["_hidden.csv", ".hidden.csv"]])
def test_an_empty_source(project: Project, paths: PipelinePaths, names: list[str]) -> None:
    """A join with nothing would drop or blank every row in silence."""
    for name in names:
        write(project, name, "" if name == "empty.csv" else "x")
    with pytest.raises(SourceLostError, match="the static source classes of pipeline students has no file") as caught:
        pin(project, paths)
    assert caught.value.code == "STATIC_MISSING"
    assert not paths.static("classes").exists()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv.gz", gzip.compress(b"one\n" * 500)[:-9], "gzip data"),
        (
            "a.csv",
            b"one\n" + b"x" * (LONGEST_RECORD_BYTES + 1) + b"\ntwo\n",
            "record 2: a line of 8,388,609 bytes; the limit",
        ),
    ],
)
def test_a_file_that_cannot_be_read(
    project: Project, paths: PipelinePaths, name: str, content: bytes, why: str
) -> None:
    """No version is noted, so the next run takes the corrected file."""
    file = write(project, name, "")
    file.write_bytes(content)
    with pytest.raises(UsageError, match=f"classes/{name} of the static source classes .*: {why}") as caught:
        pin(project, paths)
    assert caught.value.code == "STATIC_UNREADABLE"
    assert not paths.static_version("classes").exists() and not folders(paths)
    file.unlink()
    write(project, "a.csv", "one")
    assert texts(pin(project, paths)) == {"000000.csv": "one"}


def test_a_file_that_is_taken_away_while_it_is_copied(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = write(project, "a.csv", "one"), pinned.list_static

    def list_first(*arguments: Any) -> Any:
        found = real(*arguments)
        file.unlink()
        return found

    monkeypatch.setattr(pinned, "list_static", list_first)
    with pytest.raises(TryAgainError) as caught:
        pin(project, paths)
    assert caught.value.code == "FILE_CHANGING"
    assert folders(paths) == [], "what was copied until then is not left behind"


def test_a_file_that_changes_while_it_is_copied(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = write(project, "a.csv", "one"), shutil.copyfile

    def copy(source: str, target: Path) -> None:
        real(source, target)
        file.write_text("one, and more")

    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(TryAgainError) as caught:
        pin(project, paths)
    assert caught.value.code == "FILE_CHANGING"
    assert storage.read_json(paths.static_version("classes")) is None, "a mixture is never read"


def test_a_file_exchanged_for_a_link_while_it_is_pinned(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, listed = write(project, "a.csv", "one"), pinned.list_static
    (project.root / "secret").write_text("secret")

    def list_then_exchange(*arguments: Any) -> Any:
        found = listed(*arguments)
        file.unlink()
        file.symlink_to(project.root / "secret")
        return found

    monkeypatch.setattr(pinned, "list_static", list_then_exchange)
    with pytest.raises(TryAgainError) as caught:
        pin(project, paths)
    assert caught.value.code == "FILE_CHANGING"
    assert not any("secret" in path.read_text() for path in paths.state.rglob("*.csv"))


def test_names_that_spark_would_take_for_patterns_stay_outside(project: Project, paths: PipelinePaths) -> None:
    names = {
        "000000.csv": "a.v[1].csv",
        "000001.csv": "b.{x,y}.CSV",
        "000002": "c.*",
        "000003.gz": "d.csv.GZ",
        "000004": "e",
    }
    for name in names.values():
        packed = gzip.compress(name.encode()) if name.endswith(".GZ") else name.encode()
        (project.root / "classes" / name).write_bytes(packed)
    version = pin(project, paths)
    for link, name in names.items():
        found = (Path(version["folder"]) / link).read_bytes()
        assert (gzip.decompress(found) if link.endswith(".gz") else found).decode() == name
    assert version["links"] == list(names)


def test_partition_folders_are_kept(project: Project, paths: PipelinePaths) -> None:
    write(project, "year=2025/city=São Paulo/a.csv", "one")
    write(project, "year=2026/city=__HIVE_DEFAULT_PARTITION__/a.csv", "two")
    version = pin(project, paths, spec=make_spec(schema="name STRING, year INT, city STRING"))
    assert texts(version) == {
        "year=2025/city=São Paulo/000000.csv": "one",
        "year=2026/city=__HIVE_DEFAULT_PARTITION__/000001.csv": "two",
    }
    assert version["partition_columns"] == ["year", "city"]


TABLE = make_spec(format="parquet")
SCHEMA_JSON = (
    '{"type": "struct", "fields": [{"name": "name", "type": "string", "nullable": true, "metadata": {}}, '
    '{"name": "day", "type": "string", "nullable": true, "metadata": {}}]}'
)


def commit(project: Project, version: int, add: dict[str, str | None], remove: tuple[str, ...] = ()) -> None:
    """The next version of the table `classes`: files by name with the value of their partition."""
    table = project.root / "classes"
    for name in add:
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_text(name)
    commit_files(
        table,
        Commit(
            schema_json=SCHEMA_JSON,
            partition_by=["day"],
            add=[DataFile(name, 1, len(name), {"day": day}) for name, day in add.items()],
            remove=[DataFile(name, 1, len(name), {"day": day_of(name)}) for name in remove],
            app_id="q",
            app_version=version,
            app_version_before=version - 1,
        ),
    )


def day_of(name: str) -> str | None:
    return name.partition("day=")[2].partition("/")[0] or None


def test_of_a_table_only_the_files_that_its_log_names_are_read(project: Project, paths: PipelinePaths) -> None:
    commit(project, 0, {"day=1/a.parquet": "1", "day=2/b.parquet": "2"})
    write(project, "day=1/not-committed.parquet", "x")
    version = pin(project, paths, spec=TABLE)
    assert texts(version) == {"day=1/000000.parquet": "day=1/a.parquet", "day=2/000001.parquet": "day=2/b.parquet"}
    assert version["partition_columns"] == ["day"]
    source, link = project.root / "classes/day=1/a.parquet", Path(version["folder"]) / "day=1/000000.parquet"
    assert os.path.samefile(source, link), "its files never change, so they are linked"

    write(project, "day=2/also-not-committed.parquet", "x")
    assert pin(project, paths, spec=TABLE) == version

    commit(project, 1, {"day=1/c.parquet": "1"}, remove=("day=1/a.parquet",))
    newer = pin(project, paths, spec=TABLE)
    assert sorted(texts(newer).values()) == ["day=1/c.parquet", "day=2/b.parquet"]
    assert folders(paths) == [Path(newer["folder"]).name]
    assert source.exists(), "the other pipeline's files are not ours to remove"


def test_a_table_on_another_device_is_copied(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(project, 0, {"day=1/a.parquet": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        version = pin(project, paths, spec=TABLE)
    assert texts(version) == {"day=1/000000.parquet": "day=1/a.parquet"}


def refuse(source: object, target: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_a_table_without_a_row(project: Project, paths: PipelinePaths) -> None:
    commit(project, 0, {"day=1/a.parquet": "1"})
    commit(project, 1, {}, remove=("day=1/a.parquet",))
    with pytest.raises(SourceLostError) as caught:
        pin(project, paths, spec=TABLE)
    assert caught.value.code == "STATIC_MISSING"


def test_a_publish_between_listing_and_linking(
    project: Project, paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pipeline has replaced the file since: nothing is missing, so it is worth another try."""
    commit(project, 0, {"day=1/a.parquet": "1"})
    real = pinned.list_data_files

    def list_first(folder: Path) -> Any:
        found = real(folder)
        monkeypatch.setattr(pinned, "list_data_files", real)
        commit(project, 1, {"day=1/b.parquet": "1"}, remove=("day=1/a.parquet",))
        (project.root / "classes/day=1/a.parquet").unlink()
        return found

    monkeypatch.setattr(pinned, "list_data_files", list_first)
    with pytest.raises(TryAgainError) as caught:
        pin(project, paths, spec=TABLE)
    assert caught.value.code == "FILE_CHANGING"
    assert list(texts(pin(project, paths, spec=TABLE)).values()) == ["day=1/b.parquet"]


def test_a_file_of_a_table_that_is_gone(project: Project, paths: PipelinePaths) -> None:
    commit(project, 0, {"day=1/a.parquet": "1"})
    (project.root / "classes/day=1/a.parquet").unlink()
    with pytest.raises(SourceLostError) as caught:
        pin(project, paths, spec=TABLE)
    assert caught.value.code == "STATIC_MISSING"


def test_files_in_partitions_and_beside_them(project: Project, paths: PipelinePaths) -> None:
    spec = make_spec(schema="name STRING, year INT")
    write(project, "year=2026/a.csv", "Ada\n")
    write(project, "b.csv", "Bob\n")
    with pytest.raises(SourceLostError, match=r"STATIC_MIXED: static source classes: .*csv: "):
        pin_statics(project, paths, spec, SETTLED, HELD)
