"""`make test` runs everything, and one fault is enough to fail it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.left_to_sweep import LEFT_TO_SWEEP
from tools import check, source_rule, storage_rule

ROOT = Path(__file__).resolve().parents[3]


def test_every_test_file_is_run() -> None:
    folders = [ROOT / folder for folders in check.list_test_folders().values() for folder in folders]
    assert re.search("^compose-test:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    folders += [ROOT / "tests" / name for name in check.NOT_IN_MAKE_TEST]
    files = set((ROOT / "tests").rglob("test_*.py"))
    assert files
    assert {file for file in files if not any(folder in [file, *file.parents] for folder in folders)} == set()


def test_all_is_lint_and_tests() -> None:
    assert [[name for name, _ in group] for group in check.list_steps("all")] == [
        ["ruff check"],
        ["ruff format"],
        ["mypy"],
        ["import rules"],
        ["schemas"],
        ["output schemas"],
        ["reference docs"],
        ["bundle of the pages"],
        ["compose file"],
        ["object servers", "streams", "failures", "protocol", "services", "units", "commands"],
        ["errors seen"],
    ]


def test_the_unit_tests_are_all_in_one_half_or_the_other() -> None:
    [[(_, first), (_, second)]] = check.list_steps("unit")
    folders = [part for part in first if part.startswith("tests/unit/")]
    assert all((ROOT / folder).is_dir() for folder in folders)
    assert [part for part in second if part.startswith("tests/")] == ["tests/unit", *folders]


def test_ci_runs_all() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "tools.check all" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("codes", "expected"), [((0, 0), 0), ((1, 0), 1), ((0, 5), 1)])
def test_one_failed_step_fails_all_and_the_later_ones_still_run(
    codes: tuple[int, ...],
    expected: int,
    beside: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = [(f"step {code}", [sys.executable, "-c", f"print('said'); raise SystemExit({code})"]) for code in codes]
    groups = [steps] if beside else [[step] for step in steps]
    monkeypatch.setattr(check, "list_steps", lambda what: groups)
    assert check.main(["all"]) == expected
    said, summary = capfd.readouterr().out.split("== summary")
    assert said.count("step 0: said" if beside else "said") >= 1
    assert summary.count("step") >= 2
    assert ("FAILED" in summary) == bool(expected)


def test_what_is_left_to_the_sweep_exists() -> None:
    """A name that fits no test any more would be a test that runs twice, or nowhere: the list is kept by its names."""
    for name in LEFT_TO_SWEEP:
        file, _, test = name.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {test.partition('[')[0]}" in text, name


def test_every_promise_keeps_a_test_in_the_gate() -> None:
    """What only `make sweep` runs may prove a promise as well, but not alone."""
    left = tuple(f"tests/{name}" for name in LEFT_TO_SWEEP)
    rows = re.findall(r"^\| \d+ \|.*$", (ROOT / "docs/promises.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [re.findall(r"`(tests/[\w/]+(?:\.py|/)(?:::\w+)?)`", row) for row in rows]
    assert len(rows) > 10
    assert [row for row, tests in zip(rows, named, strict=True) if all(test.startswith(left) for test in tests)] == []


def test_private_spark_api_stays_in_its_room() -> None:
    """``_jdf``, ``_jvm`` and their like may change with any version; tests/spark/test_private_api.py tries them."""
    private = re.compile(r"\._(jdf|jvm|jsc|jsq|jreader|jsparkSession|gateway)\b")
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if path.parent.name != "catalyst" and private.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_test_modules_do_not_import_each_other() -> None:
    """What two of them need stands in a module of its own, so that one can be changed or removed without the other."""
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in (ROOT / "tests").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(from|import) tests(\.\w+)*\.test_", line) and f".{path.stem} " not in line
    ]
    assert found == []


def test_state_is_touched_through_the_storage_port_alone() -> None:
    """The list of exceptions says why each of them may go past it; one that is not needed any more is removed."""
    calls = storage_rule.list_calls(ROOT / "src" / "tidegate")
    excepted = storage_rule.EXCEPTIONS
    assert [call for call in calls if not {call[0], call[0].partition(":")[0]} & excepted.keys()] == []
    used = {name for place, _, _ in calls for name in (place, place.partition(":")[0])}
    assert excepted.keys() - used == set()


@pytest.mark.parametrize(
    ("text", "is_past"),
    [
        ("open(path)", True),
        ("path.read_bytes()", True),
        ("(folder / name).exists()", True),
        ("beside.replace(path)", True),
        ("os.rename(a, b)", True),
        ("os.path.getsize(a)", True),
        ("shutil.rmtree(folder)", True),
        ("from os import rename", True),
        ("pq.ParquetFile(path)", True),
        ("pq.ParquetFile(storage.address(path))", False),
        ("DeltaTable(str(path))", True),
        ("storage.exists(path)", False),
        ("os.path.join(a, b)", False),
        ("os.getpid()", False),
        ("text.replace('a', 'b')", False),
        ("replace(manifest, files=[])", False),
    ],
)
def test_what_goes_past_the_storage_port_is_found(text: str, is_past: bool) -> None:
    assert bool(list(storage_rule.find_calls(ast.parse(f"def f():\n    {text}\n")))) == is_past


def test_a_source_is_asked_for_its_kind_by_the_port_alone() -> None:
    assert source_rule.list_questions(ROOT / "src" / "tidegate") == []


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("isinstance(source, FilesSource)", True),
        ("isinstance(source, FilesSource | models.KafkaSource)", True),
        ("isinstance(arrival, KafkaArrival)", True),
        ("type(source) is SpooledSource", True),
        ("source.type == 'kafka'", True),
        ("isinstance(sink, KafkaSink)", False),
        ("source.takes_files", False),
        ("FilesSource(path='x')", False),
    ],
)
def test_a_question_for_a_kind_is_seen(text: str, asks: bool) -> None:
    assert bool(list(source_rule.find_questions(ast.parse(text)))) == asks


def test_a_match_on_a_kind_is_seen() -> None:
    assert list(source_rule.find_questions(ast.parse("match one:\n    case FilesSource():\n        pass\n")))
