"""What lies beside a transform, as it travels to Spark's Python workers."""

from __future__ import annotations

import importlib
import io
import sys
import zipfile
from pathlib import Path

import pytest

from tidegate.core.errors import UsageError
from tidegate.spark.ingest.apply import pack_modules


def make(folder: Path, *names: str) -> Path:
    """A transform with files beside it."""
    for name in ("transform.py", *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("value = 7\n")
    return folder / "transform.py"


def names_in(packed: bytes | None) -> list[str]:
    """The entries of a zip."""
    assert packed is not None
    return zipfile.ZipFile(io.BytesIO(packed)).namelist()


def test_a_transform_alone_sends_nothing(tmp_path: Path) -> None:
    transform = make(tmp_path)
    (tmp_path / "pipeline.yaml").touch()
    assert pack_modules(transform) is None


def test_modules_and_packages_can_be_imported_from_the_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_modules(make(tmp_path / "job", "beside_a.py", "bare_b/inner/deep.py", "whole_c/__init__.py"))
    assert packed is not None
    (tmp_path / "sent.zip").write_bytes(packed)
    monkeypatch.syspath_prepend(str(tmp_path / "sent.zip"))
    names = ["beside_a", "whole_c", "bare_b.inner.deep"]
    try:
        assert [importlib.import_module(name).value for name in names] == [7, 7, 7]
    finally:
        for name in (*names, "bare_b", "bare_b.inner"):
            sys.modules.pop(name, None)


def test_environments_caches_and_hidden_folders_stay(tmp_path: Path) -> None:
    transform = make(
        tmp_path, "a.py", "env/pyvenv.cfg", "env/lib/b.py", "__pycache__/c.py", ".hidden/d.py", "x/site-packages/e.py"
    )
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.py").mkdir()
    assert names_in(pack_modules(transform)) == ["a.py"]


def test_the_same_content_is_the_same_zip(tmp_path: Path) -> None:
    assert pack_modules(make(tmp_path / "one", "a.py")) == pack_modules(make(tmp_path / "two", "a.py"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = make(tmp_path, "a.py")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match="Permission denied") as caught:
        pack_modules(transform)
    assert caught.value.code == "TRANSFORM_FAILED" and str(caught.value.where).endswith("a.py")
