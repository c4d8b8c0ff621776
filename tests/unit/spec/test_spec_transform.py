"""transform.py and transform.sql, looked at without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.spec.faults import SpecError
from tidegate.spec.models import PipelineSpec, ProjectSpec, SparkSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform import describe_lost_backslashes, read_transform
from tidegate.views.validate import validate_project

SPEC = """\
version: 1
name: orders
sources:
  orders: {type: files, path: in, format: text}
"""


def write(tmp_path: Path, file: str | None, text: str = "") -> tuple[Project, PipelineSpec]:
    folder = tmp_path / "jobs/orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(SPEC + (f"transform: {file}\n" if file else ""), encoding="utf-8")
    if file and text:
        (folder / file).write_text(text, encoding="utf-8")
    project = Project(root=tmp_path, spec=ProjectSpec())
    return project, load_pipeline(project, "orders")


def read_faults(tmp_path: Path, file: str, text: str) -> str:
    _, faults = read_transform(*write(tmp_path, file, text))
    assert {fault.code for fault in faults} == {"BAD_TRANSFORM"}
    return str(SpecError(faults, fix=""))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (None, ""),
        (
            "transform.py",
            "import pyspark\nraise SystemExit(3)\ndef transform(context, orders: DataFrame):\n    return orders\n",
        ),
        ("transform.sql", "SELECT * FROM orders"),
        ("transform.sql", "-- all; of it\nselect value /* ; */ from orders;\n-- end\n"),
        ("transform.sql", "WITH x AS (SELECT 1) SELECT ';', \"a;b\", `c;d` FROM x"),
        ("transform.sql", "SELECT r'C:\\', ';' FROM orders"),
        ("transform.sql", "(SELECT 'it''s', 'a\\';' FROM orders) UNION ALL (SELECT 1, 2)"),
    ],
)
def test_good_transforms(tmp_path, file, text):
    assert read_transform(*write(tmp_path, file, text)) == (text, [])


def test_a_return_in_a_nested_function_does_not_count(tmp_path):
    good = "def transform(orders):\n    def f():\n        yield 1\n    if orders:\n        return orders\n"
    assert read_transform(*write(tmp_path, "transform.py", good)) == (good, [])
    bad = "def transform(orders):\n    def f():\n        return 1\n"
    assert "transform.py:1: transform returns nothing" in read_faults(tmp_path, "transform.py", bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    pass\n", "transform.py: the file defines no function named transform"),
        ("def transform(order):\n    return order\n", "'order' names no source of the pipeline\n      fix: name it"),
        ("def transform():\n    return 1\n", "transform.py:1: the source 'orders' is not an argument of transform"),
        ("def transform(orders, *rest):\n    return orders\n", "transform takes any arguments (*rest)"),
        ("def transform(orders, /):\n    return orders\n", "the argument 'orders' is positional only"),
        ("async def transform(orders):\n    return orders\n", "transform is an async function"),
        ("def transform(orders):\n    yield orders\n", "transform is a generator"),
        ("def transform(orders:\n", "transform.py:1: not Python: '(' was never closed"),
        ("\n\nx = = 1\n", "transform.py:3: not Python: invalid syntax"),
    ],
)  # fmt: skip
def test_bad_python(tmp_path, text, expected):
    assert expected in read_faults(tmp_path, "transform.py", text)


def test_a_file_that_is_not_there(tmp_path):
    project, spec = write(tmp_path, "transform.py")
    assert [fault.message for fault in read_transform(project, spec)[1]] == ["the file is not there"]
    (fault,) = validate_project(project)
    assert (fault.code, fault.file) == ("BAD_TRANSFORM", "jobs/orders/transform.py")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-- nothing\n", "transform.sql: the file has no statement"),
        ("SELECT 1;\nSELECT 2", "transform.sql:2: there is more than one statement"),
        ("DROP TABLE orders", "transform.sql:1: the statement begins with 'DROP'"),
        ("INSERT INTO x SELECT 1", "the statement begins with 'INSERT'"),
        ("SELECT 'a\n", "transform.sql:1: a ' is not closed"),
        ("SELECT 1 /* a", "a comment is not closed"),
    ],
)
def test_bad_sql(tmp_path, text, expected):
    assert expected in read_faults(tmp_path, "transform.sql", text)


def test_validate_reports_the_faults_of_each_pipeline(tmp_path):
    project, _ = write(tmp_path, "transform.py")
    (tmp_path / "jobs/Bad").mkdir()
    (tmp_path / "jobs/Bad/pipeline.yaml").write_text("version: 1\n")
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations/orders.yaml").write_text("name: orders\nexpectations: 3\n")
    faults = validate_project(project)
    assert [fault.code for fault in faults] == ["BAD_NAME", "BAD_SUITE", "BAD_TRANSFORM"]
    assert [fault.code for fault in validate_project(project, ["nothing"])] == ["NO_SUCH_PIPELINE"]


LOST = "SELECT\n  regexp_extract(value, '^(\\S+) \\d\\[\\S', 1), \"\\w\"\nFROM orders WHERE value RLIKE '\\bend\\Z'\n"


def test_a_backslash_that_spark_does_not_keep_is_named_with_its_line(tmp_path):
    begins = "jobs/orders/transform.sql:{}: Spark does not keep the backslash of {} in the string {}; "
    begins += "write a raw string, "
    assert describe_lost_backslashes(*write(tmp_path, "transform.sql", LOST)) == [
        begins.format(2, r"\S, \d, \[", r"'^(\S+) \d\[\S'") + r"r'...', or \\S",
        begins.format(2, r"\w", r'"\w"') + r'r"...", or \\w',
        begins.format(3, r"\b, \Z", r"'\bend\Z'") + r"r'...', or \\b",
    ]


@pytest.mark.parametrize(
    "text",
    [
        r"SELECT r'\S', R'\d', r\"\w\", '\\S \\\\d', 'a\n\t\r', 'it\'s', \"a\"\"\\w\" FROM orders",
        r"SELECT '\u0041\U00000041\101', 'a/b\/c', a LIKE '10\%\_' FROM orders",
        "SELECT 1 -- '\\S'\n/* '\\d' */ FROM orders",
        r"SELECT 1 AS `\w` FROM orders",
    ],
)
def test_no_other_string_is_named(tmp_path, text):
    assert describe_lost_backslashes(*write(tmp_path, "transform.sql", text)) == []


def test_settings_of_spark_decide_what_a_string_is(tmp_path):
    project, spec = write(tmp_path, "transform.sql", LOST)

    def lost(**conf: str | bool) -> int:
        spark = {f"spark.sql.{key.replace('__', '.')}": value for key, value in conf.items()}
        return len(describe_lost_backslashes(project, spec.replace(spark=SparkSpec(conf=spark))))

    assert lost(parser__escapedStringLiterals=True) == lost(parser__escapedStringLiterals="true") == 0
    assert (lost(parser__escapedStringLiterals=False), lost(ansi__doubleQuotedIdentifiers=True)) == (3, 2)


def test_a_python_transform_has_no_such_strings(tmp_path):
    good = "def transform(orders):\n    return orders.selectExpr('\\S')\n"
    assert describe_lost_backslashes(*write(tmp_path, "transform.py", good)) == []
