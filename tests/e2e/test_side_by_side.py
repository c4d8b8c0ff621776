"""Three pipelines of one project at the same moment, on one inbox: what one of them meets is nothing to the others."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.project import REPOSITORY
from tests.support.readers import read_agreed

_PLAIN = "transform: transform.py\n"
_PIPELINES = {
    "passing": (_PLAIN, "    return orders.select('id', 'n')\n"),
    "counting": (
        _PLAIN + "output_mode: update\ntable: {keys: [id]}\n",
        "    return orders.groupBy('id').agg(F.sum('n').alias('n'))\n",
    ),
    "failing": (_PLAIN, "    return orders.select('id', F.udf('int')(lambda n: n + 0 // (n - 13))('n').alias('n'))\n"),
}
"""``failing`` divides by nothing when it meets 13, in the second round."""

_ROUNDS = ({"a": 1, "b": 2}, {"a": 13, "c": 3}, {"b": 5})


def _command(root: Path, *words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("tidegate")), "--project", str(root), *words]


def _start(root: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_command(root, "run", name, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _rows(root: Path, name: str) -> Counter[tuple[str, int]]:
    return Counter((row["id"], row["n"]) for row in read_agreed(root / "data/warehouse" / name))


def _make_project(root: Path) -> None:
    (root / "jobs").mkdir(parents=True)
    (root / "tidegate.yaml").write_text('version: 1\nspark: {master: "local[2]"}\n')
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    for name, (more, body) in _PIPELINES.items():
        job = root / "jobs" / name
        job.mkdir()
        source = "{type: files, path: data/inbox, format: json, schema: 'id STRING, n INT'}"
        (job / "pipeline.yaml").write_text(
            f"version: 1\nname: {name}\nschedule: null\nsources:\n  orders: {source}\n{more}"
        )
        head = "from pyspark.sql import functions as F\n\n\ndef transform(orders):\n"
        (job / "transform.py").write_text(head + body)


def test_one_that_fails_and_one_that_is_killed_touch_no_other(tmp_path: Path) -> None:
    root = tmp_path / "project"
    _make_project(root)
    inbox = root / "data/inbox"
    inbox.mkdir(parents=True)
    errors: dict[str, Any] = {}
    for number, records in enumerate(_ROUNDS):
        hidden = inbox / f".{number}"
        hidden.write_text("".join(json.dumps({"id": key, "n": n}) + "\n" for key, n in records.items()))
        hidden.rename(inbox / f"{number}.json")
        running = {name: _start(root, name) for name in _PIPELINES}
        if number == 1:  # "passing" is killed while the others work
            offsets = root / "data/state/passing/checkpoint/offsets/1"
            while running["passing"].poll() is None and not offsets.exists():
                time.sleep(0.005)
            running["passing"].send_signal(signal.SIGKILL)
        ended = {name: (process.communicate(timeout=180), process.returncode) for name, process in running.items()}
        codes = {name: code for name, (_, code) in ended.items()}
        if number == 0:
            assert codes == dict.fromkeys(_PIPELINES, 0), ended
        else:
            killed = -signal.SIGKILL if number == 1 else 0
            assert codes == {"passing": killed, "counting": 0, "failing": 64}, ended
            errors[str(number)] = json.loads(ended["failing"][0][0])["error"]
    assert {error["code"] for error in errors.values()} == {"TRANSFORM_FAILED"}
    assert all("transform.py:5" in error["where"] + error["message"] for error in errors.values()), errors

    everything = Counter((key, n) for records in _ROUNDS for key, n in records.items())
    assert _rows(root, "passing") == everything
    assert _rows(root, "counting") == Counter({("a", 14): 1, ("b", 7): 1, ("c", 3): 1})
    assert _rows(root, "failing") == Counter(_ROUNDS[0].items())

    told = subprocess.run(_command(root, "state", "counting", "--json"), capture_output=True, check=True, text=True)
    (store,) = json.loads(told.stdout)["operators"]
    assert {row["key"]["id"]: row["value"]["sum"] for row in store["rows"]} == {"a": 14, "b": 7, "c": 3}

    # The failing one, corrected: nothing was lost meanwhile.
    path = root / "jobs/failing/transform.py"
    path.write_text(path.read_text().replace("n - 13", "n + 13"))
    assert _start(root, "failing").wait(180) == 0
    assert _rows(root, "failing") == everything
