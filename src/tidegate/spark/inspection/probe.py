"""Run by an executor's Python as ``python -c``, sent as text: prints what it has of the packages that readers need.

Standard library alone, in words that older versions of Python understand: the executor may lack all the rest.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Sequence


def _import_readers(with_kafka: bool) -> None:
    readers = importlib.import_module("tidegate.sources.readers")
    for module in pkgutil.iter_modules(readers.__path__):
        if module.name.startswith("kafka_") and not with_kafka:
            continue
        importlib.import_module("tidegate.sources.readers." + module.name)


def _find_a_zone() -> None:
    importlib.import_module("zoneinfo").ZoneInfo("Europe/Berlin")


def main(names: Sequence[str]) -> None:
    """Print the version of Python and of the modules ``names``, and what keeps the readers from being imported."""
    versions, missing, faults = {}, [], []

    def attempt(act: Callable[[], None]) -> None:
        try:
            act()
        except ModuleNotFoundError as error:
            missing.append(str(error.name))
        except Exception as error:  # noqa: BLE001 - any error of an import is the answer
            faults.append(str(error) or type(error).__name__)

    for name in names:

        def note_version(name: str = name) -> None:
            versions[name] = str(importlib.import_module(name).__version__)

        attempt(note_version)
    if not missing + faults:
        attempt(lambda: _import_readers("confluent_kafka" in names))
        attempt(_find_a_zone)
    if missing:
        faults.insert(0, "No module named " + ", ".join(map(repr, missing)))
    python = ".".join(map(str, sys.version_info[:3]))
    print(json.dumps({"python": python, "path": sys.executable, "versions": versions, "faults": faults}))


if __name__ == "__main__":
    main(sys.argv[1:])
