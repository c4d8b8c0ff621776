"""The Python files next to a transform: a function that runs on rows may import them, on any machine.

Spark's Python workers are separate processes, on a cluster on other machines: what the driver finds on its path
they do not.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.spark import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_TIME = (1980, 1, 1, 0, 0, 0)


def send_modules(spark: SparkSession, transform: Path) -> None:
    """Have Spark put the modules and packages next to the transform onto the path of its workers."""
    packed = pack_modules(transform)
    if packed is None:
        return
    # Named by content: Spark refuses a second file of one name that differs.
    name = f"{transform.parent.name}-{hashlib.sha256(packed).hexdigest()[:12]}.zip"
    if name in (spark.sparkContext._python_includes or ()):
        return
    # The driver serves the file from where it lies, so it stays until Spark's own folder goes.
    folder = Path(tempfile.mkdtemp(prefix="tidegate-modules-", dir=spark.sparkContext._temp_dir))
    (folder / name).write_bytes(packed)
    spark.sparkContext.addPyFile(str(folder / name))


def pack_modules(transform: Path) -> bytes | None:
    """A zip of them, the same for the same content; None when there are none. Raises UsageError TRANSFORM_FAILED."""
    root = transform.parent
    files = [file for file in _list_modules(root) if file != transform]
    if not files:
        return None
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w") as archive:
            # A package without __init__.py is found in a zip by the entry of its folder alone.
            for folder in sorted({folder for file in files for folder in file.relative_to(root).parents} - {Path()}):
                archive.writestr(zipfile.ZipInfo(f"{folder.as_posix()}/", _NO_TIME), b"")
            for file in files:
                archive.writestr(zipfile.ZipInfo(file.relative_to(root).as_posix(), _NO_TIME), file.read_bytes())
    except OSError as error:
        raise errors.TRANSFORM_MODULE_UNREADABLE(where=str(error.filename), strerror=error.strerror) from error
    return packed.getvalue()


def _list_modules(folder: Path) -> list[Path]:
    """The Python files in and below the folder; virtual environments are not looked into."""
    found = []
    for place, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders[:] = []
            continue
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__", "site-packages")))
        found += [path for name in sorted(names) if name.endswith(".py") and (path := Path(place, name)).is_file()]
    return found
