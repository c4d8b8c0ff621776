"""Loaded by each Python process of ``make test`` (PYTHONPATH): notes which conditions it raises.

tools/check.py names the file (TIDEGATE_ERRORS_SEEN) and ends with tools/errors_seen.py, which fails for each
condition that is not in it. An error that a test makes does not count, only one that tidegate's own code makes.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_CONDITIONS = re.compile(r"tidegate\.\w+\.errors")


class _Finder:
    """Finds tidegate.core.errors once, and has conditions note their calls."""

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
    package = str(Path(str(errors.__file__)).parents[1])

    def make_and_note(condition: Any, **values: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(package):
            rooms = [module for name, module in sys.modules.items() if _CONDITIONS.fullmatch(name)]
            names = {name for room in rooms for name, value in vars(room).items() if value is condition}
            with open(os.environ["TIDEGATE_ERRORS_SEEN"], "a") as file:
                file.writelines(f"{name}\n" for name in names)
        return make(condition, **values)

    errors.Condition.__call__ = make_and_note


if os.environ.get("TIDEGATE_ERRORS_SEEN"):
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
