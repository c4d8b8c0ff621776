"""Which calls in the rooms of the state go past the storage port, :mod:`tidegate.core.storage`.

A syntax tree has no types, so a method counts by its name: ``.exists()`` is taken for that of a path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "core/paths.py",
    "quality",
    "rework",
    "runs",
    "sinks",
    "sources/files/pinned.py",
    "spark/delivery",
    "spark/ingest",
    "spark/session",
    "state",
    "table",
    "views",
)
"""Where state, staging, tables and quarantine are read or written."""

EXCEPTIONS = {
    "quality/data_docs.py": "a folder that a person names",
    "quality/suite.py:upgrade_file": "a suite is a file of the user's project",
    "quality/suite.py:load_suite": "a suite is a file of the user's project",
    "spark/delivery/job.py:ForeachBatchFeeder.__call__": "links by which Spark sees hidden files",
    "spark/delivery/job.py:_bring": "as above, or copies of objects",
    "spark/ingest/apply.py:apply_transform": "a transform is a file of the user's project",
    "spark/ingest/apply.py:_apply_sql": "as above",
    "spark/ingest/upload.py:RowUploader._write": "the temporary folder of an executor",
    "spark/ingest/infer.py:_copied": "local copies of inputs, for Spark's inference",
    "spark/ingest/progress_log.py:ProgressLog._append": "lines appended for a person to watch, never relied on",
    "spark/ingest/apply.py": "modules of the user's project, packed into Spark's own folder of temporary files",
    "rework/backfill/side_job.py:clear_attempts": "asks what is a folder",
    "rework/backfill/read_again.py:_link_files": "links of a job's intake, which are on a local disk",
    "rework/maintain/rewrite.py:_read": "is given bytes, or an address of the port",
    "views/acknowledge.py": "inputs of the user",
    "views/logs.py": "a folder that a person names",
    "views/doctor.py": "asks about the machine (Java, rights, devices, room), and a job by temporary files",
    "views/validate.py:_find_tables": "files of the user's project",
    "views/validate.py:find_in_buckets": "files of the user's project",
    "views/trial.py": "a project of its own in a folder of temporary files, made from the user's",
    "table/quarantine/read.py:export_quarantine": "a file that a person names",
    "rework/replay/command.py:read_edits": "a file that a person names",
    "sources/files/pinned.py:StaticFiles._take": "copies an input of the user",
    "spark/session/executors.py": "asks whether the executors have the folders that this machine has",
    "spark/session/warmup_job.py": "the job that fills the archive of Java classes, in a folder of temporary files",
    "sinks/foreach.py:ForeachFeeder._feed_partition": "open() of the user's writer, not of a file",
    "sinks/user_code.py": "a function of the user's project",
    "state/birth.py:digest_transform": "a transform is a file of the user's project",
    "state/durable.py": "what Spark wrote to a local checkpoint and did not sync; elsewhere there is nothing to do",
}
"""``file``, or ``file:function``, and why it may."""

_PURE_OS = {
    "environ",
    "fsdecode",
    "fsencode",
    "fspath",
    "getcwd",
    "geteuid",
    "getpid",
    "getppid",
    "kill",
    "sched_getaffinity",
}
_PURE_OS_PATH = {"abspath", "basename", "commonpath", "dirname", "isabs", "join", "normpath", "relpath", "splitext"}
_MODULES = {"io", "os", "shutil", "tempfile"}
_METHODS = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "open"),
    *("read_bytes", "read_text", "readlink", "rename", "resolve", "rglob", "rmdir", "samefile", "stat", "symlink_to"),
    *("touch", "unlink", "write_bytes", "write_text"),
}
_OPENERS = {"DeltaTable", "ParquetFile", "ParquetWriter", "make_fragment", "read_metadata", "read_schema", "read_table"}


def list_calls(source: Path) -> list[tuple[str, str, int]]:
    """(place, call, line) of each call below ``source`` (the folder of the package) that goes past the port; a place is
    named as in :data:`EXCEPTIONS`."""
    found = []
    for room in ROOMS:
        path = source / room
        assert path.exists(), f"there is no room {room} any more"
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            name = file.relative_to(source).as_posix()
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found += [(f"{name}:{place}" if place else name, call, line) for place, call, line in find_calls(tree)]
    return found


def find_calls(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, str, int]]:
    """(function, call, line) of each call in a syntax tree that goes past the port."""
    for node in ast.iter_child_nodes(tree):
        here = inside
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            here = f"{inside}.{node.name}" if inside else node.name
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            yield here, f"from {node.module} import", node.lineno
        if isinstance(node, ast.Call) and _goes_past(node):
            yield here, ast.unparse(node.func), node.lineno
        yield from find_calls(node, here)


def _goes_past(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    if name in _OPENERS and (isinstance(function, ast.Attribute) or name == "DeltaTable"):  # of pyarrow and deltalake
        return bool(call.args) and not ast.unparse(call.args[0]).startswith(("storage.address(", "storage.open_input("))
    if not isinstance(function, ast.Attribute):
        return name == "open"
    owner = ast.unparse(function.value)
    if owner == "os":
        return name not in _PURE_OS
    if owner == "os.path":
        return name not in _PURE_OS_PATH
    if owner in _MODULES:
        return True
    is_path_replace = name == "replace" and len(call.args) == 1 and not call.keywords
    return owner != "storage" and (name in _METHODS or is_path_replace)
