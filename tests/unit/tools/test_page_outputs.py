"""Every output that README.md and the how-to pages show is compared with the program, here or where it is printed."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import shlex
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.support.page_outputs import NOT_COMPARED, OUTPUTS, PAGES, REPOSITORY, list_blocks, shown
from tests.support.staged import make_schema
from tidegate.quality.verdict import Quarantined, WholeFiles
from tidegate.sinks.kafka_records import encode_row, make_encoders, to_plain
from tidegate.spec.project import load_project
from tools.docs.errors import list_conditions


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_block_is_an_input_or_is_compared(page: Path) -> None:
    named = [(output.page, output.start) for output in OUTPUTS.values()] + list(NOT_COMPARED)
    unknown = [
        f"{block.page}:{block.line}: {block.text[:60]!r}"
        for block in list_blocks(page)
        if not block.is_input and not any(block.page == name and block.text.startswith(start) for name, start in named)
    ]
    assert unknown == [], "name it in tests/support/page_outputs.py, with the test that compares it"


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_named_is_there_and_a_test_asks_for_it(name: str) -> None:
    assert shown(name)
    calls = [
        call.args[0].value
        for call in ast.walk(ast.parse((REPOSITORY / OUTPUTS[name].test).read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "shown"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    ]
    assert name in calls


def test_an_exception_names_a_block_that_is_there() -> None:
    blocks = [block for page in PAGES for block in list_blocks(page)]
    for page, start in NOT_COMPARED:
        assert [block for block in blocks if block.page == page and block.text.startswith(start)], start


def test_a_block_of_each_kind_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.page_outputs.REPOSITORY", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n    tidegate list\n    make up\n\n    something is printed\n\n```text\nread 5\n```\n\n- a list\n"
        "    that goes on\n\n  ```yaml\n  a: 1\n  ```\n\n```\nbare\n```\n"
    )
    found = [(block.line, block.language, block.text, block.is_input) for block in list_blocks(page)]
    assert found == [
        (3, None, "tidegate list\nmake up\n", True),
        (6, None, "something is printed\n", False),
        (8, "text", "read 5\n", False),
        (15, "yaml", "a: 1\n", True),
        (19, "", "bare\n", False),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_in_pages_compiles_and_imports_what_there_is(page: Path) -> None:
    for block in list_blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text, filename=f"{block.page}:{block.line}")):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("tidegate"):
                continue
            assert node.module and find_spec(node.module), f"{block.page}:{block.line}: no module {node.module}"
            source = Path(str(find_spec(node.module).origin)).read_text()  # type: ignore[union-attr]
            assert [name.name for name in node.names if not re.search(rf"\b{name.name}\b", source)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_make_targets_and_makers_in_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^    make ([a-z-]+)", text, re.MULTILINE))
    assert named <= targets
    for maker, options in re.findall(r"python -m (tidegate\.examples\.\w+) (--[^`\n]*)", text):
        make = getattr(import_module(maker), maker.rpartition(".")[2])
        known = {f"--{name.replace('_', '-')}" for name in inspect.signature(make).parameters} | {"--bootstrap"}
        wrong = [word for word in shlex.split(options) if word.startswith("--") and word not in known]
        assert wrong == []


@functools.cache
def _exit_codes() -> dict[str, set[int]]:
    """{error code: the exit codes of its entries}."""
    known: dict[str, set[int]] = {}
    for entry in list_conditions().values():
        known.setdefault(entry.code, set()).add(entry.kind.exit_code)
    return known


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_exit_codes_beside_error_codes_are_those_of_the_program(page: Path) -> None:
    """```CODE`` (75)``, with ``exit code`` or other words before the number or not."""
    known = _exit_codes()
    text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    found = re.findall(r"`?\b([A-Z]+(?:_[A-Z]+)+)`? \((?:exit(?: code)? )?(\d\d)\)", text)
    found += re.findall(r"\(`([A-Z]+(?:_[A-Z]+)+)`, (?:exit code )?(\d\d)\)", text)
    wrong = [(code, number) for code, number in found if code in known and int(number) not in known[code]]
    assert wrong == []


def test_the_codes_that_a_person_must_decide_on_exit_with_78() -> None:
    page = (REPOSITORY / "docs/how-to/recover.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \|", page.partition("## 78: a person must choose")[2], re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    known = _exit_codes()
    assert len(named) > 20
    assert [code for code in sorted(named) if 78 not in known.get(code, set())] == []


def test_settings_by_variables(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    variables = dict(line.split("=", 1) for line in shlex.split(shown("settings").replace("\n", " ")))
    spec = load_project(tmp_path, variables).spec
    assert (spec.warehouse, spec.spark.master, spec.airflow.slots) == ("/srv/tables", "spark://master:7077", 8)
    assert spec.to_json()["lease"]["expires_after"] == 120
    assert spec.spark.conf == {"spark.executor.memory": "2g"}


def test_files_in_quarantine_whole() -> None:
    whole = WholeFiles.of([{"size": 2400, "rows": 1000}, {"size": 1000, "rows": 200}])
    assert shown("whole files") == whole.describe()


def test_shares() -> None:
    """The table's last column is what the program counts, and so is the formula above it."""
    wanted = {
        "one row per record": Quarantined(1000, malformed=30, transformed=970, rejected=30),
        "3 windows of all records": Quarantined(1000, transformed=3, rejected=3),
        "100 rows per record": Quarantined(10, transformed=1000, rejected=100),
        "a filter that leaves 200 rows": Quarantined(1000, transformed=200, rejected=20),
    }
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown("shares").splitlines()]
    assert [row[0] for row in rows] == list(wanted)
    formula = re.split(r" {2,}", shown("share").replace(" x ", " * "))
    values: dict[str, Any] = {}
    for transform, read, aside, share in rows:
        case = wanted[transform]
        assert read == f"{case.read:,}" and str(case.rejected) in aside
        assert share == f"{float(case.share):.0%}".replace("%", " %")
        values = {key: Fraction(getattr(case, key)) for key in ("read", "malformed", "late", "transformed", "rejected")}
        for line in reversed(formula):
            name, _, expression = line.partition(" = ")
            values[name] = eval(expression, {}, values)
        assert values["share"] == case.share, transform


def test_addresses_of_run_reports() -> None:
    source = (REPOSITORY / "src/tidegate/airflow/ui/app.py").read_text()
    places = (REPOSITORY / "src/tidegate/airflow/ui/places.py").read_text()
    for line in shown("reports").splitlines():
        address = re.split(r" {2,}", line)[0].removeprefix("GET ")
        route = address.removeprefix("/tidegate").replace("<pipeline>", "{dag_id}").replace("<run id>", "{run_id}")
        assert f'@app.get("{route.replace("{run_id}", "{run_id:path}")}"' in source, address
    assert '"/tidegate"' in places
    limit = re.search(r"the newest (\d+) reports", shown("reports"))
    assert limit and re.search(rf"\b{limit[1]}\b", source)


def test_what_airflow_says_of_a_pool_that_is_not_there() -> None:
    airflow = Path(str(find_spec("airflow").origin)).parent  # type: ignore[union-attr]
    assert shown("pool warning") in (airflow / "dag_processing/dagbag.py").read_text()
    assert shown("pool log") in (airflow / "jobs/scheduler_job_runner.py").read_text()


def test_the_value_of_a_kafka_sink() -> None:
    encoders = make_encoders(make_schema(start="timestamp", price="decimal(10,2)", note="string"))
    kinds = {"start": pa.timestamp("us", "UTC"), "price": pa.decimal128(10, 2), "note": pa.string()}
    row = {"start": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.50"), "note": None}
    (plain,) = to_plain(pa.RecordBatch.from_pylist([row], pa.schema(kinds)))
    assert shown("to_json") == encode_row(plain, encoders)


class _Tolerant(yaml.SafeLoader):
    """Knows Compose's own tags."""


_Tolerant.add_multi_constructor("!", lambda loader, _tag, node: (
    loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else None
))  # fmt: skip


def test_what_goes_into_the_override_of_the_compose_file() -> None:
    compose = yaml.load((REPOSITORY / "docker-compose.yaml").read_text(), _Tolerant)
    (volume,) = yaml.safe_load(shown("volume"))["volumes"]
    assert volume in compose["volumes"]
    database = yaml.load(shown("database"), _Tolerant)
    for name, service in database["services"].items():
        assert name in compose["services"], name
        if service is None:
            continue
        assert set(service["environment"]) <= set(compose["services"][name]["environment"])
        others = compose["services"][name]["depends_on"]
        assert (service["depends_on"] or {}) == {other: how for other, how in others.items() if other != "postgres"}
    uses = {name for name, one in compose["services"].items() if "postgres" in (one.get("depends_on") or {})}
    airflow = {
        name
        for name, one in compose["services"].items()
        if "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in json.dumps(one.get("environment") or {})
    }
    assert uses | airflow <= set(database["services"])
