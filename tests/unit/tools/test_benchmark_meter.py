"""The meter of the benchmarks sees all that a command costs, also what outlives its parent."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.figures import Results, Row, compare_costs, read_results, show_results, write_results
from benchmarks.meter import Cost, measure

BURN = "import time; end = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"


def test_a_child_that_outlives_its_parent_is_waited_for_and_counted(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(BURN.format(0.5) + "open('done', 'w').write('x')")
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\nsubprocess.Popen([sys.executable, 'child.py'], start_new_session=True)\nsys.exit(3)"
    )
    cost = measure([sys.executable, "parent.py"], cwd=tmp_path)
    assert cost.exit_code == 3
    assert (tmp_path / "done").exists()
    assert 0.5 <= cost.cpu_seconds < 1.5
    assert cost.java_processes == 0


def test_peak_memory_is_that_of_the_tree(tmp_path: Path) -> None:
    program = "import subprocess, sys, time\np = None\nif len(sys.argv) < 3: p = subprocess.Popen([sys.executable, *sys.argv[:1], 'x', 'y'])\nblock = b'x' * 60_000_000\ntime.sleep(0.5)\nif p: p.wait()"  # noqa: E501
    (tmp_path / "eat.py").write_text(program)
    cost = measure([sys.executable, "eat.py"], cwd=tmp_path)
    assert 120_000_000 < cost.peak_rss_bytes < 300_000_000
    assert cost.processes == 2


def test_a_stopped_command_is_killed_with_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'], start_new_session=True)\n"
        "open('ready', 'w').close()\ntime.sleep(30)"
    )
    started = time.monotonic()
    cost = measure([sys.executable, "parent.py"], cwd=tmp_path, stop_when=(tmp_path / "ready").exists)
    assert cost.exit_code == -9
    assert time.monotonic() - started < 10


def test_the_table_says_what_is_met_and_keeps_what_was_measured_before(tmp_path: Path) -> None:
    ours, other = Cost(0, 5.0, 4.0, 2**20, 3, 2), Cost(0, 10.0, 5.0, 2**20, 3, 2)
    rows = compare_costs("work", ours, other, "plain job", 0.6, 0.7, note="a note")
    assert [row.is_met for row in rows] == [True, False]
    assert [row.value for row in rows] == [0.5, 0.8]
    page, path = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("# Title\n\nText above stays.\n")
    write_results(Results(2, {"small": rows, "idle": [Row("idle", "CPU seconds", 0.2, None)]}), path, page)
    again = read_results(path)
    assert again.cases["small"] == rows
    write_results(again, path, page)
    text = page.read_text()
    assert text.startswith("# Title\n\nText above stays.\n") and text.count("| small |") == 2
    assert "**no**" in show_results(again) and "- small: a note" in text


@pytest.mark.parametrize("name", ["plain_files_job.py", "plain_gx_job.py"])
def test_the_plain_jobs_read_the_orders_of_the_example(name: str) -> None:
    root = Path(__file__).resolve().parents[3]
    spec = (root / "jobs" / "orders" / "pipeline.yaml").read_text()
    job = (root / "benchmarks" / name).read_text()
    for column in (
        "order_id STRING",
        "promised_at TIMESTAMP",
        "amount DECIMAL(12,2)",
        "shipping STRUCT<country: STRING",
    ):
        assert column in spec and column in job
