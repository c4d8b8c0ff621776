"""Was every condition raised by a test? The last step of ``make test``.

    python -m tools.errors_seen

tests/errors_seen/sitecustomize.py has each process of the tests write the names of the conditions that it raised to the
file in TIDEGATE_ERRORS_SEEN.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main
from tools.docs.errors import list_conditions


def record_to(file: Path) -> dict[str, str]:
    """The environment in which a test's processes write down what they raise."""
    path = [str(REPO_ROOT / "tests" / "errors_seen"), os.environ.get("PYTHONPATH")]
    return {"TIDEGATE_ERRORS_SEEN": str(file), "PYTHONPATH": os.pathsep.join(filter(None, path))}


def find_unseen(file: Path) -> list[str]:
    """The names of the conditions that are not in the file."""
    seen = set(file.read_text().split()) if file.exists() else set()
    return [name for name in list_conditions() if name not in seen]


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    unseen = find_unseen(Path(os.environ["TIDEGATE_ERRORS_SEEN"]))
    if unseen:
        raise ToolError(
            f"no test raised these conditions: {', '.join(unseen)}",
            "write a test that raises each of them by a real cause; remove the conditions that nothing can raise",
        )
    return 0


if __name__ == "__main__":
    run_main(main)
