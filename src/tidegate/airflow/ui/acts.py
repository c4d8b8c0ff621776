"""What can be done from the pages, in words."""

from __future__ import annotations

OF_TRIGGER = ("run", "backfill", "refresh", "replay")
"""What starts a run of the DAG."""
ACTS = {"run": "Run now", "backfill": "Backfill", "refresh": "Refresh", "replay": "Replay quarantine", "pause": "Pause"}
"""What the button of each says."""
