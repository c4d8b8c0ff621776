"""Many pipelines with a past: one that has run, copied under other names with its table, state, reports and inbox."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from benchmarks.workbench import Workbench

ORIGINAL = "orders"


def copy_pipeline(bench: Workbench, name: str, schedule: str = "null") -> None:
    """The pipeline ``orders`` of ``bench`` once more as ``name``: it owes nothing, and its next run goes on from there.

    What it has read stays in its own inbox under the same names, so that its ledger is as long as the original's.
    """
    project, data = bench.project, bench.project / "data"
    shutil.copytree(project / "jobs" / ORIGINAL, project / "jobs" / name, ignore=shutil.ignore_patterns("__pycache__"))
    spec = project / "jobs" / name / "pipeline.yaml"
    lines = _rename(spec.read_text(), name).splitlines()
    lines = [f"schedule: {schedule}" if line.startswith("schedule:") else line for line in lines]
    spec.write_text("\n".join(lines).replace(f"name: {ORIGINAL}\n", f"name: {name}\n") + "\n")
    suite = (project / "expectations" / f"{ORIGINAL}.yaml").read_text()
    (project / "expectations" / f"{name}.yaml").write_text(suite.replace(f"name: {ORIGINAL}\n", f"name: {name}\n", 1))
    shutil.copytree(data / "inbox" / ORIGINAL, data / "inbox" / name)
    for room in ("warehouse", "state"):
        shutil.copytree(data / room / ORIGINAL, data / room / name)
        _rename_files(data / room / name, name)
    with sqlite3.connect(data / "state" / name / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT id, path FROM files").fetchall()
        ledger.executemany(
            "UPDATE files SET path = ? WHERE id = ?",
            [(path.replace(f"/{ORIGINAL}/".encode(), f"/{name}/".encode()), number) for number, path in rows],
        )
    ledger.close()


def _rename(text: str, name: str) -> str:
    return (
        text.replace(f"data/inbox/{ORIGINAL}", f"data/inbox/{name}")
        .replace(f"state/{ORIGINAL}", f"state/{name}")
        .replace(f'"pipeline": "{ORIGINAL}"', f'"pipeline": "{name}"')
        .replace(f'"tidegate.pipeline":"{ORIGINAL}"', f'"tidegate.pipeline":"{name}"')
        .replace(f"warehouse/{ORIGINAL}", f"warehouse/{name}")
    )


def _rename_files(folder: Path, name: str) -> None:
    for path in folder.rglob("*"):
        if not path.is_file() or path.suffix in (".parquet", ".sqlite"):
            continue
        if path.suffix == ".crc":  # Spark compares it with the file beside it, and does without
            path.unlink()
            continue
        text = path.read_text()
        renamed = _rename(text, name)
        if renamed != text:
            found = path.stat()
            path.write_text(renamed)
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
