"""Manifests of a pipeline's batches, made by hand."""

from __future__ import annotations

from tidegate.state.manifest import BatchManifest

QUERY = "aaaaaaaa-0000-0000-0000-000000000001"


OTHER = "bbbbbbbb-0000-0000-0000-000000000002"


def manifest(batch_id: int, query_id: str = QUERY) -> BatchManifest:
    """A staged batch without rows."""
    return BatchManifest("orders", "r", query_id, batch_id, "a", {}, 0, 0, 0, [], [], 0, "{}")
