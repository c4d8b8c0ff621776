"""The Python files that lie beside a transform: a function that runs on rows may import them, wherever it runs.

Spark's Python workers are processes of their own, on a cluster on other machines: what the driver finds on its path
they do not.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_TIME = (1980, 1, 1, 0, 0, 0)


def send_modules(spark: SparkSession, transform: Path) -> None:
    """Have Spark put the modules and packages beside the transform onto the path of its workers."""
    packed = pack_modules(transform)
    if packed is None:
        return
    # Named by content: Spark refuses a second file of one name that differs.
    name = f"{transform.parent.name}-{hashlib.sha256(packed).hexdigest()[:12]}.zip"
    if name in spark.sparkContext._python_includes:
        return
    # The driver serves the file from where it lies, so it stays until Spark's own folder goes.
    folder = Path(tempfile.mkdtemp(prefix="tidegate-modules-", dir=spark.sparkContext._temp_dir))
    (folder / name).write_bytes(packed)
    spark.sparkContext.addPyFile(str(folder / name))


def pack_modules(transform: Path) -> bytes | None:
    """A zip of them, the same for the same content; None when there are none."""
    files = sorted(
        file
        for file in transform.parent.rglob("*.py")
        if file != transform and not any(part.startswith((".", "__pycache__")) for part in _inside(file, transform))
    )
    if not files:
        return None
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo("/".join(_inside(file, transform)), _NO_TIME), file.read_bytes())
    return packed.getvalue()


def _inside(file: Path, transform: Path) -> tuple[str, ...]:
    return file.relative_to(transform.parent).parts
