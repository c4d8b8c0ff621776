"""Verification of fetched jars; nothing here goes to the network."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark
import pytest

from tools import jars
from tools.console import ToolError
from tools.jars import GROUPS, Group, ensure_jars


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group of two jars that are in place, in a folder and with a lock of its own."""
    folder = tmp_path / "jars"
    folder.mkdir()
    lines = ["[pair]  # a comment"]
    for name in ("one", "two"):
        content = name.encode() * 1000
        (folder / f"{name}-1.0.jar").write_bytes(content)
        lines.append(f"org.example:{name}:1.0 sha256:{hashlib.sha256(content).hexdigest()} {len(content)}")
    lock = tmp_path / "jars.lock"
    lock.write_text("\n".join(lines) + "\n")
    read = jars.read_lock
    monkeypatch.setattr(jars, "GROUPS", {"pair": Group(folder, (), transitive=False)})
    monkeypatch.setattr(jars, "TOOLS_FOLDER", tmp_path)
    monkeypatch.setattr(jars, "read_lock", lambda: read(lock))
    return folder


def test_what_is_there_and_right_needs_no_network_and_no_second_reading(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_jars(["pair"], fetch=False)
    monkeypatch.setattr(jars, "_sum_file", lambda path: pytest.fail(f"{path} was read again"))
    ensure_jars(["pair"], fetch=False)


def test_a_changed_jar_is_refused_by_name_also_after_it_was_verified(group: Path) -> None:
    ensure_jars(["pair"], fetch=False)
    path = group / "two-1.0.jar"
    times = path.stat()
    path.write_bytes(b"two" * 999 + b"twO")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    with pytest.raises(ToolError, match=r"two-1\.0\.jar is not the locked file: sha256 [0-9a-f]{64} \(3000 bytes\)"):
        ensure_jars(["pair"], fetch=False)


def test_a_changed_jar_is_not_replaced_in_silence_when_fetching_is_allowed(group: Path) -> None:
    (group / "one-1.0.jar").write_bytes(b"something else")
    with pytest.raises(ToolError, match="is not the locked file"):
        ensure_jars(["pair"])


def test_a_jar_that_is_not_locked_leaves_the_class_path(group: Path) -> None:
    ensure_jars(["pair"], fetch=False)
    (group / "one-0.9.jar").write_bytes(b"old")
    ensure_jars(["pair"], fetch=False)
    assert sorted(path.name for path in group.glob("*.jar")) == ["one-1.0.jar", "two-1.0.jar"]


def test_missing_jars_are_counted(group: Path) -> None:
    (group / "one-1.0.jar").unlink()
    with pytest.raises(ToolError, match=r"1 of 2 jars of pair are missing, the first: one-1\.0\.jar"):
        ensure_jars(["pair"], fetch=False)


def test_a_registry_that_is_away_is_said_and_what_is_there_stays(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (group / "one-1.0.jar").unlink()
    monkeypatch.setenv("MAVEN_ROOT", "http://127.0.0.1:9/")  # the discard port: nobody answers
    with pytest.raises(ToolError, match=r"(?s)1 of 1 jars of pair could not be fetched.*org\.example:one.*MAVEN_ROOT"):
        ensure_jars(["pair"])
    assert (group / "two-1.0.jar").exists()
    assert not list(group.parent.glob("fetch-*"))


def test_an_unknown_group_is_named(group: Path) -> None:
    with pytest.raises(ToolError, match="no group 'nothing'"):
        ensure_jars(["nothing"])


def test_hadoop_aws_is_of_the_hadoop_that_comes_with_spark() -> None:
    [hadoop] = (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-api-*.jar")
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    assert f"org.apache.hadoop:hadoop-aws:{version}" in GROUPS["s3a"].roots
