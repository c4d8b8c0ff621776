"""The birth record of a checkpoint, written before its first batch, so that nothing has to be guessed later.

Spark pins some settings permanently with the first batch and reads others (starting offsets) only once; a run that
starts no JVM must know them too. ``query_id`` is filled in when Spark has made the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.spec.as_read import read_spec
from tidegate.spec.models import PipelineSpec
from tidegate.state import errors
from tidegate.state.manifest import BatchKey, keys_from_json
from tidegate.state.topics import OffsetsJson

_PARTS: tuple[Literal["keys"], Literal["values"]] = ("keys", "values")


class Start(TypedDict, total=False):
    """The start of a source in a birth record; {} for a source without one. See
    :class:`tidegate.sources.kafka.offsets.KafkaBirth`."""

    offsets: OffsetsJson
    topic_ids: dict[str, str | None]
    gone: list[str]
    cluster_id: str | None


class KeptState(TypedDict):
    """An operator that keeps state, with its keys and values as texts over the sources' columns."""

    operator: str
    keys: list[str]
    values: list[str]


class Fingerprint(TypedDict, total=False):
    """The parts of a spec that may not change for an existing checkpoint; earlier versions of tidegate wrote less."""

    sources: dict[str, dict[str, object]]
    partition_by: list[str]
    output_mode: str
    watermark_policy: str


@dataclass(frozen=True)
class Birth:
    """The birth record of a checkpoint."""

    query_id: str | None
    born_at: str
    settings: dict[str, str]
    sources: dict[str, Start]
    fingerprint: Fingerprint = field(default_factory=lambda: Fingerprint())
    state_folder: str = ""
    """The place where the checkpoint was made: it holds absolute paths of the intake, so it cannot move."""
    schemas: dict[str, str] = field(default_factory=dict)
    """The columns of sources with ``schema: infer``, as DDL: found by the first run, and kept for all others."""
    state: list[KeptState] | None = None
    """The operators that keep state, with their keys and values, from the result down; [] for none, None before the
    first driver has looked."""

    transform: str = ""
    """Digest of the transform that last ran with this state."""
    state_spark: str = ""
    """The version of Spark whose words ``state`` is in; "" for one that wrote longer texts in part."""
    replaces: BatchKey | None = None
    """The last batch that counts of the query that this one takes the place of, which is then retired."""
    rebuilt_up_to: int | None = None
    """Of a query that a refresh has begun: its last batch of that. Up to there it has read again what earlier queries
    had read."""

    @property
    def reads_files(self) -> bool:
        """Whether a source of files is among its sources: these need no note of where they start."""
        return any(start == {} for start in self.sources.values())

    @property
    def keeps_state(self) -> bool:
        """Whether what was read is, in part, in the checkpoint's state and nowhere else."""
        return bool(self.state)


def read_birth(paths: PipelinePaths) -> Birth | None:
    """The birth record, or None when no checkpoint was ever born (or the record was taken away)."""
    value = storage.read_json(paths.birth)
    with storage.unreadable_is_named(paths.birth):
        return birth_from_json(value) if value is not None else None


def read_births(paths: PipelinePaths) -> list[Birth]:
    """The birth records of all queries that the pipeline ever had, the oldest first."""
    numbers = range(paths.newest_generation() + 1)
    found = [read_birth(replace(paths, generation=number)) for number in numbers]
    return [birth for birth in found if birth is not None]


def birth_from_json(value: Mapping[str, Any]) -> Birth:
    """A stored birth record. Raises TypeError, ValueError for one of another version."""
    replaces = value.get("replaces")
    return Birth(**{**value, "replaces": None if replaces is None else keys_from_json([replaces])[0]})


def write_birth(paths: PipelinePaths, birth: Birth) -> None:
    """Record a birth. The first one wins: two runs that both found none agree on the one written first."""
    storage.put_if_absent(paths.birth, storage.dump_json(asdict(birth)))


def replace_birth(paths: PipelinePaths, birth: Birth) -> None:
    """Replace the birth record (when topics or partitions appeared)."""
    storage.replace(paths.birth, storage.dump_json(asdict(birth)))


def name_query(paths: PipelinePaths, query_id: str) -> None:
    """Fill in the id that Spark gave to the query."""
    birth = read_birth(paths)
    if birth is not None and birth.query_id != query_id:
        storage.replace(paths.birth, storage.dump_json(asdict(replace(birth, query_id=query_id))))


def new_birth(paths: PipelinePaths, spec: PipelineSpec, sources: dict[str, Start], settings: dict[str, str]) -> Birth:
    """Make a birth record with the current time."""
    born_at = datetime.now(UTC).isoformat()
    kept = {name: source.schema or "" for name, source in spec.file_sources.items() if source.is_kept}
    return Birth(None, born_at, settings, sources, fingerprint(spec), paths.state_name, kept)


def keep_schemas(paths: PipelinePaths, spec: PipelineSpec, schemas: dict[str, str]) -> None:
    """Keep inferred columns, {source: DDL}. From now on other columns are a change of the spec."""
    birth = read_birth(paths)
    assert birth is not None, "the ingest step writes the birth before it starts Spark"
    kept = {**birth.schemas, **schemas}
    replace_birth(paths, replace(birth, schemas=kept, fingerprint=fingerprint(read_spec(spec, paths.spool, kept))))


def keep_state(paths: PipelinePaths, spec: PipelineSpec, state: list[KeptState], spark: str) -> None:
    """Keep what the state is made for, and by which transform, or compare with what was kept. ``spark`` is the version
    of Spark that described ``state``.

    Raises DisagreementError STATE_CHANGED when old state would give wrong numbers.
    """
    birth = read_birth(paths)
    assert birth is not None, "the ingest step writes the birth before it starts Spark"
    transform = digest_transform(paths, spec)
    check_state(birth, spec.name, state, spark=spark, transform=transform)
    now = replace(birth, state=state, transform=transform, state_spark=spark)
    if now != birth:
        replace_birth(paths, now)


def digest_transform(paths: PipelinePaths, spec: PipelineSpec) -> str:
    """The digest of a pipeline's transform and of the modules next to it; "" without a transform, or unreadable."""
    if spec.transform is None:
        return ""
    own = paths.job / spec.transform
    try:
        digest = hashlib.sha256(own.read_bytes())
        for path in sorted(paths.job.rglob("*.py")):
            if path != own:
                digest.update(f"\0{path.relative_to(paths.job)}\0".encode() + path.read_bytes())
    except OSError:
        return ""
    return digest.hexdigest()


def check_state(birth: Birth, name: str, state: list[KeptState], *, spark: str, transform: str) -> None:
    """Raise DisagreementError STATE_CHANGED when the operators that keep state are others than those of the birth.

    Two versions of Spark may call one expression differently. So after a change of Spark the same operators made by the
    same text, of which ``transform`` is the digest, are the same.
    """
    if birth.state is None or birth.state == state:
        return
    is_respelled = birth.state_spark != spark and [one["operator"] for one in birth.state] == [
        one["operator"] for one in state
    ]
    if is_respelled and transform and transform == birth.transform:
        return
    both = f"; Spark was changed as well ({birth.state_spark or 'unknown'} -> {spark}): take the transform's change "
    both += "back, run once, and make it again"
    raise errors.STATE_CHANGED(
        where=f"pipeline {name}",
        change=_first_difference(birth.state, state),
        spelling_hint=both if is_respelled else "",
        name=name,
    )


def _first_difference(then: list[KeptState], now: list[KeptState]) -> str:
    kinds = [[one["operator"] for one in state] for state in (then, now)]
    if kinds[0] != kinds[1]:
        made_for, is_now = (", ".join(one) or "a query without state" for one in kinds)
        return f"it was made for {made_for}, and this is now {is_now}"
    for before, after in zip(then, now, strict=True):
        for part in _PARTS:
            if before[part] != after[part]:
                pairs = zip([*before[part], "nothing"], [*after[part], "nothing"], strict=False)
                was, now_is = next(pair for pair in pairs if pair[0] != pair[1])
                start = next((n for n, (a, b) in enumerate(zip(was, now_is, strict=False)) if a != b), 0)
                start = max(0, start - 60)
                return (
                    f"the {part} of its {before['operator']} were ...{was[start : start + 160]}..., and are "
                    f"...{now_is[start : start + 160]}..."
                )
    return "its operators differ"


def as_read(spec: PipelineSpec, paths: PipelinePaths) -> PipelineSpec:
    """``spec`` as runs of the pipeline read it."""
    birth = read_birth(paths)
    return read_spec(spec, paths.spool, birth.schemas if birth is not None else {})


def fingerprint(spec: PipelineSpec) -> Fingerprint:
    """The origin of records, and the layout of the table."""
    return {
        "sources": {name: source.identity() for name, source in spec.streams.items()},
        "partition_by": list(spec.table.partition_by),
        "output_mode": spec.output_mode,
        "watermark_policy": spec.watermark_policy,
    }


def changed_keys(then: Mapping[str, object], now: Mapping[str, object], path: str = "") -> list[str]:
    """``key: was -> is`` for every leaf in which two fingerprints differ."""
    found: list[str] = []
    for key in sorted({*then, *now}):
        here = f"{path}.{key}" if path else key
        before, after = then.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += changed_keys(before, after, here)
        elif before != after:
            found.append(f"{here}: {json.dumps(before)} -> {json.dumps(after)}")
    return found
