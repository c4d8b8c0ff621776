"""What ``tidegate logs`` shows of a driver's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.show_runs import fold_log, show_logs

_TRACE = "\n".join(
    [
        "26/01/05 10:00:00 ERROR MicroBatchExecution: Query orders terminated with error",
        "org.apache.spark.SparkException: [FAILED] it failed",
        *(f"\tat org.apache.spark.sql.Some.method{n}(Some.scala:{n})" for n in range(40)),
        "Caused by: java.io.IOException: No space left on device",
        *(f"\tat java.base/java.io.Some.write{n}(Some.java:{n})" for n in range(20)),
        "\t... 40 more",
    ]
)
_PLAN = "\n".join(
    [
        "=== Streaming Query ===",
        "Logical Plan:",
        "WriteToMicroBatchDataSourceV1 ForeachBatchSink",
        "+- Project [id#1L, price#2]",
        "   +- Join Inner, (id#1L = id#5L)",
        "      :- Filter (id#1L > 0)",
        "      :  +- StreamingExecutionRelation FileStreamSource[file:/x], [id#1L, price#2]",
        "      +- Relation [id#5L] parquet",
        "the end",
    ]
)


def test_a_stack_trace_keeps_its_messages_and_first_frames() -> None:
    told, is_cut = fold_log(_TRACE)
    assert is_cut
    assert told.split("\n") == [
        "26/01/05 10:00:00 ERROR MicroBatchExecution: Query orders terminated with error",
        "org.apache.spark.SparkException: [FAILED] it failed",
        "\tat org.apache.spark.sql.Some.method0(Some.scala:0)",
        "\tat org.apache.spark.sql.Some.method1(Some.scala:1)",
        "    ... 38 more lines of the stack trace",
        "Caused by: java.io.IOException: No space left on device",
        "\tat java.base/java.io.Some.write0(Some.java:0)",
        "\tat java.base/java.io.Some.write1(Some.java:1)",
        "    ... 19 more lines of the stack trace",
    ]


def test_a_plan_keeps_its_top() -> None:
    told, is_cut = fold_log(_PLAN)
    assert is_cut
    assert told.split("\n")[2:] == [
        "WriteToMicroBatchDataSourceV1 ForeachBatchSink",
        "+- Project [id#1L, price#2]",
        "   +- Join Inner, (id#1L = id#5L)",
        "    ... 3 more lines of the query plan",
        "the end",
    ]


def test_generated_code_and_long_lines() -> None:
    told, is_cut = fold_log("\n".join(f"/* {n:03d} */ int a = {n};" for n in range(1, 500)) + "\n" + "x" * 5000)
    assert is_cut and told.count("\n") == 3
    assert "497 more lines of generated code" in told and told.endswith("x ... 4,400 more characters")


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    1 / 0\nZeroDivisionError: by zero',
        "- one\n- two\n- three\n- four\n+ five",
        "",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert fold_log(text) == (text, False)


def test_the_command_names_the_whole_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log: dict[str, Any] = {"step": "ingest", "path": str(tmp_path / "driver.log"), "text": _TRACE}
    value: dict[str, Any] = {"pipeline": "orders", "run_id": "r1", "outcome": "failed", "report": "r1.json"}
    show_logs({**value, "progress": [], "error": None, "logs": [log]})
    told = capsys.readouterr().out
    assert "No space left on device" in told and "method7" not in told
    assert told.rstrip().endswith(f"parts were omitted; the whole log: {tmp_path / 'driver.log'}")
