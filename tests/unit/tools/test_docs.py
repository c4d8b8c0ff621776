"""The reference is what the code says, and every page's links lead somewhere."""

from __future__ import annotations

import functools
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml

from tests.support.pages import read_steps
from tidegate.cli.commands import app
from tidegate.spec import errors as spec_errors
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec, ProjectSpec
from tidegate.spec.pipeline import list_pipelines
from tools.compose_env import SETTINGS
from tools.console import REPO_ROOT
from tools.docs import __main__ as pages
from tools.docs.__main__ import FOLDER, list_stale
from tools.docs.errors import list_conditions

PAGES = sorted([*REPO_ROOT.glob("*.md"), *(REPO_ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def read_page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def known_codes() -> frozenset[str]:
    """The code of every condition."""
    return frozenset(entry.code for entry in list_conditions().values())


def test_reference_is_current():
    assert list_stale() == [], "python -m tools.docs writes the pages again"


def test_a_page_that_nothing_makes_is_told_from_one_that_is_made_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    pages.write_pages()
    elsewhere = ["streaming.md", "values.md"]
    assert list_stale() == elsewhere  # not there: they are made by hand, and must not be forgotten
    for name in elsewhere:
        (tmp_path / name).write_text("as Spark found it")
    assert list_stale() == []
    (tmp_path / "left_over.md").write_text("")
    (tmp_path / "spec.md").write_text("old")
    assert list_stale() == ["spec.md", "left_over.md"]


def test_the_pages_that_are_made_elsewhere_are_where_their_makers_write_them():
    from tools import streaming_table, values_table

    assert {FOLDER / name for name in pages.MADE_ELSEWHERE} == {streaming_table.PAGE, values_table.PAGE}
    for named in pages.MADE_ELSEWHERE:
        assert named in read_page(FOLDER / "spec.md") and f"reference/{named}" in read_page(REPO_ROOT / "README.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO_ROOT)))
def test_links_lead_somewhere(path):
    for target in _LINK.findall(_CODE_BLOCK.sub("", read_page(path))):
        parts = urlsplit(target)
        if parts.scheme or not parts.path:
            continue
        assert (path.parent / parts.path).exists(), f"{path.name} links to {target}, which is not there"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO_ROOT)))
def test_pages_hold_no_path_of_a_machine(path):
    assert re.findall(r"/(?:work|tmp|root|home)/\S*", read_page(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO_ROOT)))
def test_error_codes_named_in_pages_exist(path):
    """A page that names CHECKPOINT_TORN must change when the code is renamed."""
    known = known_codes() | {"SPEC_ERROR"}
    prefixes = {code.split("_")[0] for code in known if "_" in code}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`(?! in `)", read_page(path)))  # not a constant of a module
    wrong = {code for code in named if code.split("_")[0] in prefixes and code not in known}
    settings = {"SPARK_HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "KAFKA_PORT", *(setting.name for setting in SETTINGS)}
    assert wrong - set(spec_errors.FILE_FAULTS) - settings == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO_ROOT)))
def test_yaml_in_pages_is_what_a_spec_may_hold(path):
    """A pipeline or a part of one, tidegate.yaml, the keys of a source, or a suite."""
    files = {"type": "files", "path": "in", "format": "json", "schema": "a INT"}
    kafka = {"type": "kafka", "topics": ["t"], "format": "text"}
    pipeline = {"version": 1, "name": "one", "schedule": None, "sources": {"one": files}}
    for block in re.findall(r"^```yaml\n(.*?)^```", read_page(path), re.MULTILINE | re.DOTALL):
        value = yaml.safe_load(block)
        if isinstance(value, list) or "expectations" in value:  # of a suite
            continue
        faults = []
        for model, rest in (
            (PipelineSpec, pipeline),
            (ProjectSpec, {"version": 1}),
            (FilesSource, files),
            (KafkaSource, kafka),
        ):
            try:
                model.read({**rest, **value})
                break
            except ValueError as error:
                faults.append(str(error))
        else:
            raise AssertionError("\n".join([block, *faults]))


def test_the_readme_names_every_example():
    from tidegate.spec.project import load_project

    text = read_page(REPO_ROOT / "README.md")
    assert [name for name in list_pipelines(load_project(REPO_ROOT)) if f"`{name}`" not in text] == []


_COMMAND = re.compile(r"(?<![\w.-])tidegate ([a-z][^`\n#|]*)")


def commands_of(page: str) -> list[list[str]]:
    """The words behind ``tidegate`` of every command that a page writes as code: inline, or on a line of its own."""
    inline = re.findall(r"`(tidegate [^`]+)`", page.replace("\n", " ") if "```" not in page else page)
    lines = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    found = [match[1] for text in (*inline, *lines) for match in _COMMAND.finditer(text)]
    return [shlex.split(text.partition("&&")[0].replace("...", "some")) for text in found if text.count('"') % 2 == 0]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO_ROOT)))
def test_commands_in_pages_exist_with_their_options(path):
    if path.name == "CHANGELOG.md":
        pytest.skip("a record of what was")
    faults = []
    for words in commands_of(read_page(path)):
        command = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            if words[0] not in command.commands:
                faults.append(f"no command {words[0]}")
                break
            command, words = command.commands[words[0]], words[1:]
        else:
            known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
            options = {word.strip("[],;").partition("=")[0] for word in words if word.strip("[").startswith("-")}
            faults += [f"tidegate {command.name} has no {option}" for option in sorted(options - known)]
    assert faults == []


def test_no_step_of_the_tutorial_is_taken_for_an_example():
    """A sentence that is written otherwise could make a file to write into an example that nobody writes."""
    kinds = Counter(step.kind for step in read_steps(read_page(REPO_ROOT / "docs" / "tutorial.md")))
    assert (kinds["write"], kinds["append"], kinds["edit"]) == (4, 1, 3) and kinds["command"] > 15


@pytest.mark.parametrize("page", ["promises.md", "rules.md"])
def test_the_tests_that_a_page_names_exist(page):
    """A promise or a rule whose test was renamed or removed would be proved by nothing."""
    named = re.findall(r"`(tests/[\w/]+(?:\.py|/))(?:::(\w+))?`", read_page(REPO_ROOT / "docs" / page))
    assert len(named) > 20
    gone = [path for path, _ in named if not (REPO_ROOT / path).exists()]
    assert gone == []
    assert [
        f"{path}::{name}" for path, name in named if name and f"def {name}(" not in read_page(REPO_ROOT / path)
    ] == []


def list_named_places(page: Path) -> Iterator[tuple[str, str | None]]:
    """(file or folder, symbol in it or None) of each place that a table of a page names in backticks."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield from ((place, symbol) for symbol, place in re.findall(r"`(\w+)` in `([\w./-]+\.\w+)`", line))
            yield from ((place, None) for place in re.findall(r"`([\w./-]+(?:\.(?:py|yaml|html|ts|css|md)|/))`", line))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/contributing.md"])
def test_places_that_the_tables_of_changes_name_exist(page):
    """Below the root, the package or a project; or in the folder of one that was named before."""
    folders = [REPO_ROOT / name for name in ("", "src/tidegate", "src/tidegate/airflow/ui", "ui/src", "jobs/orders")]
    missing = []
    for name, symbol in list_named_places(REPO_ROOT / page):
        found = [folder / name for folder in folders if (folder / name).exists()]
        folders += [path if path.is_dir() else path.parent for path in found]
        texts = [path.read_text(encoding="utf-8") for path in found if path.is_file()]
        if not found or (symbol and not any(re.search(rf"\b{symbol}\b", text) for text in texts)):
            missing.append((name, symbol))
    assert missing == []
