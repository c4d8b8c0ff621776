"""``tidegate verify``: read every file in the logs of table and quarantine. Changes nothing, starts no JVM."""

from __future__ import annotations

from pathlib import Path

from tidegate.core.outputs import Verification, VerifiedTable
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.agreement import check_table
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.tables import check_quarantine
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.table.damage import examine_table
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import has_log
from tidegate.table.publish.intent import list_moving


def verify_pipeline(project: Project, name: str) -> Verification:
    """Check names, sizes, digests, footers and row counts of all files in the logs; say what to do where one is wrong.

    A run may publish meanwhile. Raises UsageError for a bad spec, and DisagreementError, as the next run would, where
    table or quarantine is gone.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    if not has_log(paths.quarantine):
        check_quarantine(paths)
    if not has_log(paths.table):
        facts = gather_facts(paths, spec)
        if not has_log(paths.table):  # a first publish may have ended while its files were looked at
            check_table(facts, name)
    tables = [_verify(paths, path) for path in (paths.table, paths.quarantine) if has_log(path)]
    kinds: set[str] = {one["kind"] for table in tables for one in table["damaged"]}
    return {"pipeline": name, "ok": not kinds, "tables": tables, "fix": _name_fixes(name, kinds)}


def _verify(paths: PipelinePaths, path: Path) -> VerifiedTable:
    moving = list_moving(paths, path)
    found, files = examine_table(path)
    moving |= list_moving(paths, path)
    found = [one for one in found if one.kind != "not_in_log" or one.path not in moving]
    return {
        "table": "table" if path == paths.table else "quarantine",
        "path": str(path),
        "version": max(list_versions(path), default=None),
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "digests": sum(1 for file in files if file.sha256),
        "damaged": [
            {"path": one.path, "kind": one.kind, "found": one.found, "rows": 0 if one.file is None else one.file.rows}
            for one in found
        ],
    }


def _name_fixes(name: str, kinds: set[str]) -> list[str]:
    fixes = []
    if kinds - {"not_in_log"}:
        fixes.append("restore what is damaged or gone from a backup, then run again")
    if any(kind.startswith("commit") for kind in kinds):
        fixes.append(
            f"`tidegate repair {name} --rebuild`: a new table from all records still in the sources (`--dry-run` shows "
            "what that reads); the old one is kept as a backup"
        )
    elif kinds - {"not_in_log"}:
        deep = " --verify" if kinds - {"gone", "size", "not_in_log"} else ""
        fixes.append(
            f"`tidegate repair {name}{deep}`: continues without these files, records that, and names the command that "
            "builds their rows again (`--dry-run` shows it)"
        )
    if "not_in_log" in kinds:
        fixes.append("move files that are not in the log out of the folder: no run of this pipeline has published them")
    return fixes
