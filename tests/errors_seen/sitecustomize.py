"""Loaded by each Python process of ``make test`` (PYTHONPATH): notes which entries of the errors' catalogue it raises.

tools/check.py names the file (TIDEGATE_ERRORS_SEEN) and ends with tools/errors_seen.py, which fails for each entry that
is not in it. An error that a test makes does not count, only one that tidegate's own code makes.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _Finder:
    """Finds tidegate.core.errors once, and has its entries note their calls."""

    def find_spec(
        self, name: str, path: list[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "tidegate.core.errors":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _note_calls(module)

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _note_calls(errors: ModuleType) -> None:
    make = errors.Condition.__call__
    package = str(Path(str(errors.__file__)).parents[2])

    def make_and_note(entry: Any, **values: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(package):
            entries = vars(sys.modules["tidegate.core.errors.catalogue"])
            with open(os.environ["TIDEGATE_ERRORS_SEEN"], "a") as file:
                file.writelines(f"{name}\n" for name, value in entries.items() if value is entry)
        return make(entry, **values)

    errors.Condition.__call__ = make_and_note


if os.environ.get("TIDEGATE_ERRORS_SEEN"):
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
