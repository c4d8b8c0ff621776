"""The bundle of the pages in Airflow, built from ``ui/`` with node into ``src/tidegate/airflow/ui/static``.

    python -m tools.ui build|check

``check`` builds it again beside and compares the bytes, where node and the packages of ``ui/package-lock.json`` are
installed; everywhere it compares the digest of the sources with the one that the bundle was built from.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.console import REPO_ROOT, ToolError, run_main, say

SOURCES = REPO_ROOT / "ui"
BUNDLE = REPO_ROOT / "src" / "tidegate" / "airflow" / "ui" / "static"
_FIX = "make ui, and commit what it writes"


def digest_sources(folder: Path = SOURCES) -> str:
    """What the bundle is made of, as ``ui/build.mjs`` computes it: name and bytes of each file, by name."""
    found = [path for path in (folder / "src").rglob("*") if path.is_file()]
    found += [folder / name for name in ("build.mjs", "package.json", "package-lock.json")]
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in found):
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def build_bundle(out: Path = BUNDLE) -> None:
    """Types checked, then built. Raises ToolError without node."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise ToolError(
            "node and npm are needed to build the pages' script", "apt install nodejs npm (node 18 or newer)"
        )
    if not is_installed():
        say("ui: installing the packages of ui/package-lock.json")
        _call([npm, "ci", "--no-audit", "--no-fund"])
    _call([node, "node_modules/typescript/bin/tsc", "--noEmit"])
    _call([node, "build.mjs", "--out", str(out)])


def is_installed() -> bool:
    """Whether the packages are those of the lock file."""
    kept = SOURCES / "node_modules" / ".package-lock.json"
    if not kept.is_file():
        return False
    wanted = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    there = json.loads(kept.read_text())["packages"]
    return all(wanted.get(name, {}).get("version") == one.get("version") for name, one in there.items())


def check_bundle() -> None:
    """Raises ToolError when the bundle is not what the sources give."""
    manifest = json.loads((BUNDLE / "manifest.json").read_text())
    if manifest["sources"] != digest_sources():
        raise ToolError("the sources of ui/ were changed, and the bundle was not built from them", _FIX)
    if shutil.which("node") is None or not is_installed():
        say("ui: the sources are those that the bundle was built from (no node here to build it again)")
        return
    with TemporaryDirectory() as folder:
        build_bundle(Path(folder) / "static")
        again = _read_all(Path(folder) / "static")
    if again != _read_all(BUNDLE):
        raise ToolError("the bundle is not what its sources give", _FIX)
    say("ui: built again, byte for byte the same")


def _read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _call(command: list[str]) -> None:
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True)
    if done.returncode:
        raise ToolError(f"{' '.join(command[-3:])} failed:\n{done.stdout}{done.stderr}".rstrip())


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    if arguments == ["build"]:
        build_bundle()
    elif arguments == ["check"]:
        check_bundle()
    else:
        raise ToolError(f"unknown: {' '.join(arguments)!r}", "python -m tools.ui build|check")
    return 0


if __name__ == "__main__":
    run_main(main)
