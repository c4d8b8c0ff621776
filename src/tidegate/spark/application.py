"""The entry point of ``jobs/tidegate_job.py``: it runs the driver that the order file is for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tidegate.core.process.tree import die_with_parent
from tidegate.spark.driver.order import DeliveryOrder, ExecutorsOrder
from tidegate.spark.session.light_start import start_light


def main(argv: Sequence[str] | None = None) -> int:
    """``tidegate_job.py ORDER_FILE``: drain the sources, feed sinks, or ask executors. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1:
        print(
            "usage: tidegate_job.py ORDER_FILE (written by `tidegate ingest` and `tidegate deliver`)", file=sys.stderr
        )
        return 64
    order_path = Path(arguments[0])
    order = json.loads(order_path.read_bytes())
    die_with_parent()
    start_light()  # before the first import of pyspark
    if order.get("kind") == "delivery":
        from tidegate.spark.delivery.job import main as deliver

        return deliver(DeliveryOrder(**order))
    if order.get("kind") == "executors":
        from tidegate.spark.inspection.executors import main as ask_executors

        return ask_executors(ExecutorsOrder(**order))
    from tidegate.spark.ingest.job import drain_order

    return drain_order(order_path)
