"""What was made for the examples' pipelines in the stack, and whether every record of it is where it must be, once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.compose.stack import Stack
from tests.support.readers import read_agreed
from tools.deliveries import COLUMNS, STATEFUL, list_outcomes, list_rows
from tools.demo import FAULTS, ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"orders": "order_id", "clicks": "click_id"}
PIPELINES = (*KEYS, *STATEFUL)
_INBOX = {"orders": "orders", "bitcoin_prices": "trades", "students": "students", "device_sessions": "events"}


@dataclass
class Records:
    """The makers run in a container, as the how-to has it; ``made`` is what they say they made."""

    stack: Stack
    made: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in KEYS})
    deliveries: Counter[str] = field(default_factory=Counter)

    def make(self, name: str, rows: int | None = None) -> None:
        """New records for a pipeline."""
        command = ["python", "-m", f"tidegate.examples.make_{name}", "--rows", str(rows or ROWS[name])]
        if name in _INBOX:
            command += ["--out", f"data/inbox/{_INBOX[name]}"]
        if name == "students":
            command += ["--static", "data/static/classes"]
        if name in STATEFUL:
            self.deliveries[name] += 1
            command += ["--delivery", str(self.deliveries[name]), "--faults", str(FAULTS[name])]
            self.stack.run(*command)
        else:
            start = sum(truth["offered"] for truth in self.made[name]) + 1
            self.made[name].append(json.loads(self.stack.run(*command, "--start-id", str(start), "--faults", "0.02")))

    def check(self, folder: Path, spark: SparkSession, *names: str) -> None:
        """Every record that was ever made for ``names`` is in table or quarantine, once, for three readers."""
        data = self.stack.fetch_data(folder)
        for name in names:
            rows = read_agreed(data / "warehouse" / name, spark)
            if name in STATEFUL:
                outcomes = list_outcomes(name, self.deliveries[name], ROWS[name], FAULTS[name])
                found = Counter(tuple(row[column] for column in COLUMNS[name]) for row in rows)
                assert found == Counter(list_rows(name, outcomes)), name
                continue
            quarantined = read_agreed(data / "quarantine" / name, spark)
            assert len({row[KEYS[name]] for row in rows}) == len(rows) == self._sum(name, "published"), name
            assert len(quarantined) == self._sum(name, "quarantined"), name

    def _sum(self, name: str, count: str) -> int:
        return sum(int(truth[count]) for truth in self.made[name])
