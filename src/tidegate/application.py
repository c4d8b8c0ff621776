"""What ``jobs/tidegate_job.py`` runs: the driver that its order file is for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tidegate.process.tree import die_with_parent
from tidegate.session.light_start import start_light


def main(argv: Sequence[str] | None = None) -> int:
    """``tidegate_job.py ORDER_FILE``: drain the sources, or feed sinks. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1:
        print(
            "usage: tidegate_job.py ORDER_FILE (written by `tidegate ingest` and `tidegate deliver`)", file=sys.stderr
        )
        return 64
    order = json.loads(Path(arguments[0]).read_bytes())
    if order.get("kind") == "delivery":
        die_with_parent()
        start_light()
        from tidegate.delivery.job import main as deliver
        from tidegate.driver.order import DeliveryOrder

        return deliver(DeliveryOrder(**order))
    from tidegate.ingest.job import main as ingest

    return ingest(arguments)
