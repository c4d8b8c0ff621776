"""The command line as users and programs meet it: what it prints, what it leaves, and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.conftest import RANGE_RULE, MakePipeline
from tests.support.outputs import check_output
from tests.support.scene import NAME

SOURCE = "path: data/inbox\nformat: json\nschema: id STRING, amount INT"

REPORT_KEYS = {
    "pipeline", "run_id", "mode", "outcome", "started_at", "ended_at", "duration_seconds", "sources", "batches",
    "watermark", "rows", "quality", "table", "error",
}  # fmt: skip
ROW_KEYS = [
    "read", "malformed", "entered", "late", "transformed", "rejected", "staged", "published", "superseded", "duplicates"
]  # fmt: skip
RESULT_KEYS = {"rule", "type", "severity", "success", "unexpected_count", "observed_value"}


def _tidegate(folder: Path, *command: str, expect: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *command],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == expect, f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_project_from_nothing(tmp_path: Path) -> None:
    """What ``init`` and ``new`` write is sound, from inside the project, away from the repository. That it runs, too,
    is seen where the tutorial is followed (test_pages.py)."""
    _tidegate(tmp_path, "init", "demo")
    demo = tmp_path / "demo"
    (name,) = [folder.name for folder in (demo / "jobs").iterdir() if folder.is_dir()]
    assert _tidegate(demo, "validate").strip() == (
        "specs and suites are valid; columns and code were not checked: `tidegate validate --spark`"
    )
    assert "there is something to do" in _tidegate(demo / "jobs", "plan", name)
    _tidegate(demo, "new", "second")
    assert "second" in _tidegate(demo, "status")
    _tidegate(tmp_path, "init", "demo", expect=64)


def test_a_run_seen_through_every_command(make_pipeline: MakePipeline) -> None:
    """plan, run, run again, status and quarantine tell one story; the report has the contract's keys."""
    pipeline = make_pipeline(SOURCE, rules=RANGE_RULE)
    pipeline.put("a.json", '{"id": "a", "amount": 1}\n{"id": "b", "amount": -1}\ntorn\n')
    pipeline.expect_rows([{"id": "a", "amount": 1}])
    pipeline.expect_aside("data/inbox/a.json", 2, '{"id": "b", "amount": -1}', "amount_in_range")
    pipeline.expect_aside("data/inbox/a.json", 3, "torn")
    plan = json.loads(pipeline.call("plan", NAME, "--json"))
    assert (plan["has_new"], plan["held"], plan["sources"]["orders"]["files"]) == (True, None, 1)
    assert not pipeline.state.exists(), "plan wrote something"

    report = pipeline.report("run", NAME, "--run-id", "the run/with: odd 'name'")
    pipeline.check()
    assert set(report) >= REPORT_KEYS
    assert (report["outcome"], report["mode"], report["error"]) == ("published", "incremental", None)
    assert list(report["rows"]) == ROW_KEYS
    assert list(report["rows"].values()) == [3, 1, 2, 0, 2, 1, 1, 1, 0, 0]
    assert set(report["duration_seconds"]) == {"ingest", "audit", "publish"}
    size = (pipeline.inbox / "a.json").stat().st_size
    assert {key: report["sources"]["orders"][key] for key in ("rows", "files", "bytes", "backlog")} == {
        "rows": 3,
        "files": 1,
        "bytes": size,
        "backlog": 0,
    }
    assert set(report["quality"]) >= {"suite", "verdict", "results"}
    assert report["quality"]["verdict"] in ("passed", "warned")
    assert all(set(result) >= RESULT_KEYS for result in report["quality"]["results"])
    # The row that broke it was not there to be judged any more.
    [rule] = [result for result in report["quality"]["results"] if result["rule"] == "amount_in_range"]
    assert (rule["success"], rule["unexpected_count"], rule["quarantined"]) == (True, 0, 1)
    assert report["table"] == {
        "path": str(pipeline.table),
        "version": 0,
        "files_added": 1,
        "files_removed": 0,
        "rows_added": 1,
        "rows_removed": 0,
    }
    stored = [json.loads(path.read_text()) for path in (pipeline.state / "runs").glob("*.json")]
    assert stored == [report]
    check_output("report", json.dumps(report))

    # Repeated, it is free: no Java is needed, and the figures are those of the first time.
    no_java = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    root = ("--project", str(pipeline.root))
    again = json.loads(
        _tidegate(pipeline.root, *root, "run", NAME, "--run-id", "the run/with: odd 'name'", "--json", **no_java)
    )
    assert again == report
    idle = json.loads(_tidegate(pipeline.root, *root, "run", NAME, "--json", **no_java))
    assert (idle["outcome"], idle["rows"]["read"]) == ("nothing_new", 0)
    assert set(idle) >= REPORT_KEYS

    (status,) = check_output("status", _tidegate(pipeline.root, *root, "status", NAME, "--json", **no_java))
    assert (status["table"]["version"], status["held"], len(status["runs"])) == (0, None, 2)
    listed = check_output(
        "quarantine-list", _tidegate(pipeline.root, *root, "quarantine", "list", NAME, "--json", **no_java)
    )
    assert {(row["reason"], row["records"]) for row in listed} == {("amount_in_range", 1), ("malformed", 1)}
    shown = check_output(
        "quarantine-show", pipeline.call("quarantine", "show", NAME, "--reason", "malformed", "--json")
    )
    assert [(row["raw"], row["position"]) for row in shown] == [("torn", {"file": "data/inbox/a.json", "line": 3})]
    for command in (("status",), ("plan", NAME), ("quarantine", "list", NAME), ("quarantine", "show", NAME)):
        assert pipeline.call(*command).strip(), f"{command} says nothing to people"


def test_a_wrong_schema_on_the_first_day(make_pipeline: MakePipeline) -> None:
    """All is malformed and held; a try on the same records says that the corrected schema fits; they are read again."""
    limit = "quality: {max_quarantine_share: 0.1}\n"
    pipeline = make_pipeline("path: data/inbox\nformat: json\nschema: id STRING, at TIMESTAMP", more=limit)
    pipeline.put("a.json", "".join(f'{{"id": "k{n}", "at": "2{n}/03/2026"}}\n' for n in range(5)) + "torn\n")
    held = pipeline.report("run", NAME, "--run-id", "first", expect=65)
    assert held["rows"]["malformed"] == 6 and f"tidegate reread {NAME} first" in held["error"]["fix"]
    causes = check_output("quarantine-list", pipeline.tidegate("quarantine", "list", NAME, "--json"))
    assert sorted(row["records"] for row in causes) == [1, 5]
    pipeline.write_spec(
        "path: data/inbox\nformat: json\nschema: id STRING, at STRING", more=limit.replace("0.1", "0.2")
    )
    changes = check_output("plan", pipeline.tidegate("plan", NAME, "--json", expect=65))["changes"]
    assert [(one["kind"], one["name"]) for one in changes] == [
        ("column", "orders.at"),
        ("setting", "quality.max_quarantine_share"),
    ]

    before = sorted(path for path in pipeline.root.rglob("*") if "lease" not in path.parts)
    tried = check_output("try", pipeline.tidegate("try", NAME, "--rows", "3", "--json"))
    assert (tried["counts"]["read"], tried["held"]) == (3, None)
    assert tried["rows"][0] == {"id": "k0", "at": "20/03/2026"}
    assert sorted(path for path in pipeline.root.rglob("*") if "lease" not in path.parts) == before

    done = check_output("report", pipeline.tidegate("reread", NAME, "first", "--reason", "at is text", "--json"))
    assert (done["run_id"], done["outcome"], done["mode"], done["rows"]["published"]) == (
        "first",
        "published",
        "reread",
        5,
    )
    pipeline.expect_rows({"id": f"k{n}", "at": f"2{n}/03/2026"} for n in range(5))
    pipeline.expect_aside("data/inbox/a.json", 6, "torn")
    pipeline.check()
    assert pipeline.report("run", NAME)["outcome"] == "nothing_new"
    pipeline.check()


def test_wrong_use_and_bad_files(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    """Exit code 64, and every fault of a file at once, with its line."""
    pipeline = make_pipeline(SOURCE)
    pipeline.tidegate("run", expect=64)
    pipeline.call("run", "nosuch", expect=64)
    pipeline.call("nosuch", expect=64)
    pipeline.call("run", NAME, "--run-id", "", expect=64)
    pipeline.call("run", NAME, "--no-such-option", expect=64)
    pipeline.call("release", NAME, "nothing held", "--reason", "because", expect=64)
    empty = tmp_path / "empty"
    empty.mkdir()
    _tidegate(empty, "--project", str(empty), "status", expect=64)
    assert json.loads(pipeline.call("validate", "--json")) == []

    spec = pipeline.root / "jobs" / NAME / "pipeline.yaml"
    spec.write_text(spec.read_text().replace("format: json", "formt: jsn") + "triger: once\n")
    faults = json.loads(pipeline.call("validate", "--json", expect=64))
    lines = {fault["line"] for fault in faults}
    texts = spec.read_text().splitlines()
    for key in ("formt", "triger"):
        assert next(number for number, text in enumerate(texts, 1) if key in text) in lines, (key, faults)
    assert any("format" in fault["fix"] for fault in faults)
    pipeline.call("run", NAME, expect=64)
    assert not any((pipeline.state / name).exists() for name in ("checkpoint", "ledger.sqlite", "intake"))

    pipeline.write_spec(SOURCE)
    shutil.rmtree(pipeline.inbox)
    error = pipeline.report("run", NAME, expect=66)["error"]
    assert error["code"] == "SOURCE_MISSING" and error["fix"]


def test_sigterm_ends_everything(make_pipeline: MakePipeline) -> None:
    """Within 4 seconds no process is left, the exit code is 75, and the next run is complete."""
    pipeline = make_pipeline(
        SOURCE,
        transform="import time\nfrom pyspark.sql import functions as F\n\n\n@F.udf('int')\ndef slow(amount):\n"
        "    time.sleep(0.2)\n    return amount\n\n\n"
        "def transform(orders):\n    return orders.select('id', slow('amount').alias('amount'))\n",
    )
    pipeline.put("a.json", "".join(json.dumps({"id": f"k{n}", "amount": n}) + "\n" for n in range(1000)))
    process = pipeline.start("run", NAME, "--run-id", "stopped")
    offsets = pipeline.state / "checkpoint/offsets/0"
    until = time.monotonic() + 90
    while not offsets.exists():
        assert time.monotonic() < until and process.poll() is None, "the batch did not begin"
        time.sleep(0.05)
    while not any(b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pipeline.processes()):
        assert time.monotonic() < until, "no Python worker"
        time.sleep(0.05)
    time.sleep(1)
    assert len(pipeline.processes()) >= 3
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    pipeline.wait_until_gone(4)
    assert time.monotonic() - began < 4
    assert process.returncode == 75
    report = json.loads((pipeline.state / "runs/stopped.json").read_text())
    assert (report["outcome"], report["error"]["code"]) == ("failed", "STOPPED")
    pipeline.write_transform("def transform(orders):\n    return orders\n")
    pipeline.expect_rows({"id": f"k{n}", "amount": n} for n in range(1000))
    assert pipeline.report("run", NAME, "--run-id", "stopped")["outcome"] == "published"
    pipeline.check()
