"""Records that held increments would add to quarantine; the quarantine table has them only after a decision."""

from __future__ import annotations

from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.verdicts import list_verdicts
from tidegate.runs.reports.waiting import list_waiting
from tidegate.state.manifest import BatchManifest, read_all_manifests


def find_held_records(paths: PipelinePaths) -> list[Path]:
    """List staged files with quarantined records of held and deferred increments, oldest first."""
    held: list[BatchManifest] = [manifest for one in list_waiting(paths) for manifest in one.manifests]
    failed = [verdict for verdict in list_verdicts(paths) if not verdict.passed]
    if failed:
        staged = [manifest for found in read_all_manifests(paths.manifests).values() for manifest in found]
        held += [manifest for manifest in staged if any(manifest.key in one.batches for one in failed)]
    files = dict.fromkeys(paths.state / file.path for manifest in held for file in manifest.quarantine_files)
    return [path for path in files if storage.exists(path)]  # a decision may have published them meanwhile
