"""The versions of the static sources that a run reads."""

from __future__ import annotations

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.port import Pinned
from tidegate.sources.registry import open_statics
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.lease import Lease


def pin_statics(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, checkpoint: CheckpointState, lease: Lease
) -> dict[str, Pinned]:
    """{static source: its version} (:meth:`tidegate.sources.port.StaticSource.pin`): the version of a batch that Spark
    has planned and not committed, else that of now.

    Copying takes time, in which another process may take over: a version is noted, and others are removed, only while
    the lease is held. Raises what ``pin`` does, and TryAgainError LEASE_LOST.
    """
    pinned = {}
    for name, source in open_statics(project, paths, spec).items():
        known: Pinned | None = storage.read_json(paths.static_version(name))
        if known is not None and not source.is_whole(known):
            known = None
        if known is not None and checkpoint.in_flight is not None:
            pinned[name] = known
            continue
        try:
            version = pinned[name] = source.pin(known)
        finally:
            lease.check()  # also behind an error: a successor clears away what is half copied
        if version != known:
            storage.replace(paths.static_version(name), storage.dump_json(version))
        source.forget_others(version)
    return pinned
