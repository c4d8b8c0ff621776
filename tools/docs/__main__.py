"""Write ``docs/reference/*`` from the code.

python -m tools.docs            write the pages
python -m tools.docs --check    say which pages are not current (exit code 1 if any)
"""

from __future__ import annotations

from collections.abc import Callable

from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.docs.commands import render_commands
from tools.docs.dashboard import render_dashboard
from tools.docs.errors import render_errors
from tools.docs.metrics import render_metrics
from tools.docs.report import render_report
from tools.docs.spec import render_spec

FOLDER = REPO_ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": render_commands,
    "errors.md": render_errors,
    "grafana-dashboard.json": render_dashboard,
    "metrics.md": render_metrics,
    "report.md": render_report,
    "spec.md": render_spec,
}
MADE_ELSEWHERE: dict[str, str] = {
    # It takes Spark and minutes, so it is not part of the comparison in every check.
    "streaming.md": "python -m tools.streaming_table",
    "values.md": "python -m tools.values_table",
}
"""Pages that belong here and that another command makes."""


def list_stale() -> list[str]:
    """The names of the pages that are not what the code says, with pages that nothing makes any more.

    Of a page that is made elsewhere, only its existence is checked.
    """
    stale = [name for name in MADE_ELSEWHERE if not (FOLDER / name).is_file()]
    for name, render in PAGES.items():
        path = FOLDER / name
        if not path.is_file() or path.read_text(encoding="utf-8") != render():
            stale.append(name)
    return stale + sorted(path.name for path in FOLDER.glob("*.md") if path.name not in {*PAGES, *MADE_ELSEWHERE})


def write_pages() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    if arguments == ["--check"]:
        stale = list_stale()
        for name in stale:
            say(f"docs/reference/{name} is not current: {MADE_ELSEWHERE.get(name, 'python -m tools.docs')}")
        if stale:
            raise ToolError(f"{len(stale)} pages are not current", "python -m tools.docs")
        return 0
    if arguments:
        raise ToolError(f"unknown arguments: {' '.join(arguments)}", "python -m tools.docs [--check]")
    write_pages()
    return 0


if __name__ == "__main__":
    run_main(main)
