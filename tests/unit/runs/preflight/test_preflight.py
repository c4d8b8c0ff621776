"""Checkpoint, manifests, table and spec compared: one test for each disagreement, and for what is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.manifests import OTHER, QUERY, manifest
from tidegate.core.errors import DisagreementError
from tidegate.runs.preflight.agreement import _check_spec, check_agreement
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.table_log import Later
from tidegate.state.birth import Birth
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.manifest import BatchManifest
from tidegate.state.published import Published
from tidegate.table.log.state import TableState

FINGERPRINT: dict[str, Any] = {
    "sources": {"orders": {"type": "files", "path": "data/inbox", "format": "csv"}},
    "partition_by": ["day"],
    "output_mode": "append",
}
BIRTH = Birth(QUERY, "2026-01-01T00:00:00+00:00", {}, {"orders": {}}, FINGERPRINT, "/project/data/state/orders")
TABLE = TableState(4, "table-1", {QUERY: 3}, "{}", ["day"], {}, None)
PUBLISHED = Published("table-1", 4, QUERY, 3)
FIRST_RUN = Facts(
    CheckpointState(exists=False), None, {}, None, None, FINGERPRINT, state_folder="/project/data/state/orders"
)
SETTLED = Facts(
    CheckpointState(True, QUERY, last_offset=3, last_commit=3),
    BIRTH,
    {},
    TABLE,
    PUBLISHED,
    FINGERPRINT,
    state_folder="/project/data/state/orders",
)


def staged(*batches: int) -> dict[str, list[BatchManifest]]:
    """Manifests of the living query."""
    return {QUERY: [manifest(batch) for batch in batches]}


AGREEING = {
    "the first run": FIRST_RUN,
    "settled": SETTLED,
    "born, and killed before Spark made a checkpoint": replace(FIRST_RUN, birth=replace(BIRTH, query_id=None)),
    "a checkpoint whose query was not written down": replace(
        FIRST_RUN, birth=replace(BIRTH, query_id=None), checkpoint=CheckpointState(True, QUERY)
    ),
    "planned and not staged": replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 4, 3)),
    "staged and not committed": replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 4, 3), manifests=staged(4)),
    "staged and owed": replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 5, 5), manifests=staged(4, 5)),
    "published and not noted": replace(
        SETTLED,
        checkpoint=CheckpointState(True, QUERY, 5, 5),
        manifests=staged(4, 5),
        table=replace(TABLE, version=5, txns={QUERY: 5}),
    ),
    "published, the commit of Spark missing": replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 3, 2)),
    "repaired": replace(
        SETTLED,
        checkpoint=CheckpointState(exists=False),
        birth=replace(BIRTH, query_id=None),
        published=Published("table-1", 4, None, -1),
    ),
}


@pytest.mark.parametrize("facts", AGREEING.values(), ids=AGREEING)
def test_fits(facts: Facts) -> None:
    check_agreement(facts, "orders")


DISAGREEING = {
    "TABLE_GONE": (replace(SETTLED, table=None), "version 4"),
    "STATE_BEHIND: state gone": (replace(FIRST_RUN, table=TABLE), "version 4"),
    "TABLE_REPLACED": (replace(SETTLED, table=replace(TABLE, table_id="table-2")), "table-2"),
    "TABLE_BEHIND": (replace(SETTLED, table=replace(TABLE, version=2, txns={QUERY: 1})), "version 2"),
    "STATE_BEHIND": (
        replace(
            SETTLED,
            checkpoint=CheckpointState(True, QUERY, 1, 1),
            published=replace(PUBLISHED, version=2, batch_id=1),
            later=Later(read=f"batch 3 of query {QUERY}"),
        ),
        "batch 3 of query",
    ),
    "CHECKPOINT_TORN": (
        replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 3, 3, ["offsets lack batch 2"])),
        "offsets lack batch 2",
    ),
    "CHECKPOINT_TORN: all of it": (replace(SETTLED, checkpoint=CheckpointState(exists=False)), QUERY),
    "CHECKPOINT_DIVERGED: birth gone": (replace(SETTLED, birth=None), "birth"),
    "CHECKPOINT_DIVERGED: replaced": (replace(SETTLED, checkpoint=CheckpointState(True, OTHER, 3, 3)), OTHER),
    "CHECKPOINT_DIVERGED: behind": (replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 1, 1)), "batch 3"),
    "CHECKPOINT_DIVERGED: query retired": (replace(SETTLED, retired={QUERY: 3}), QUERY),
    "STAGING_GONE": (
        replace(SETTLED, checkpoint=CheckpointState(True, QUERY, 6, 6), manifests=staged(5)),
        "batches 4, 6",
    ),
    "STAGING_GONE: staged files gone": (
        replace(
            SETTLED,
            checkpoint=CheckpointState(True, QUERY, 4, 4),
            manifests=staged(4),
            missing_staged_files=("staging/q/4/a/rows/part-0.parquet",),
        ),
        "part-0.parquet",
    ),
    "PROJECT_MOVED": (replace(SETTLED, state_folder="/elsewhere/data/state/orders"), "/elsewhere"),
    "PARTITION_BY_CHANGED": (
        replace(SETTLED, fingerprint={**FINGERPRINT, "partition_by": []}),
        "partitioned by ['day'], the spec says []",
    ),
    "SPEC_CHANGED": (
        replace(SETTLED, fingerprint={**FINGERPRINT, "output_mode": "update"}),
        'output_mode: "append" -> "update"',
    ),
}


EXCLUDED = replace(SETTLED, birth=replace(BIRTH, sources={"orders": {}, "topics": {"offsets": {}}, "inbox": {}}))


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize(("name", "kind"), [("topics", "files"), ("inbox", "kafka")])
def test_a_source_that_was_left_out_comes_back_as_another_kind(name: str, kind: str, has_checkpoint: bool) -> None:
    """Where the old one stood would be lost, or be taken for the place of the new one."""
    facts = EXCLUDED if has_checkpoint else replace(EXCLUDED, checkpoint=CheckpointState(exists=False), published=None)
    sources = {**FINGERPRINT["sources"], name: {"type": kind}}
    with pytest.raises(DisagreementError) as caught:
        _check_spec(replace(facts, fingerprint={**FINGERPRINT, "sources": sources}), "orders")
    assert caught.value.code == "SPEC_CHANGED"
    said = "was kafka, is files" if kind == "files" else "was not kafka, is kafka"
    assert f"sources.{name}.type: {said} (give it another name)" in caught.value.message
    same = {**FINGERPRINT["sources"], "topics": {"type": "kafka"}, "inbox": {"type": "files"}}
    _check_spec(replace(facts, fingerprint={**FINGERPRINT, "sources": same}), "orders")


@pytest.mark.parametrize("case", DISAGREEING)
def test_disagrees(case: str) -> None:
    facts, said = DISAGREEING[case]
    code = case.partition(":")[0]
    with pytest.raises(DisagreementError) as caught:
        check_agreement(facts, "orders")
    error = caught.value
    assert (error.code, error.exit_code, error.retry) == (code, 78, False)
    assert said in error.message
    assert error.fix is not None and "tidegate repair orders" in error.fix and "{name}" not in error.fix


def test_checkpoint_and_birth_record_are_gone() -> None:
    """Nothing says any more whether the query keeps state, or where topics begin."""
    gone = replace(SETTLED, checkpoint=CheckpointState(exists=False), birth=None)
    for one in (replace(gone, manifests={}), replace(gone, manifests=staged(0), published=None, table=None)):
        with pytest.raises(DisagreementError, match="the checkpoint and its birth record are gone"):
            check_agreement(one, "orders")


def test_a_table_behind_by_its_batch_alone() -> None:
    """Another program may have added versions to the older copy."""
    with pytest.raises(DisagreementError, match="older copy"):
        check_agreement(replace(SETTLED, table=replace(TABLE, version=9, txns={QUERY: 2})), "orders")


def test_a_staged_batch_the_checkpoint_does_not_know() -> None:
    facts = replace(SETTLED, manifests=staged(4))
    with pytest.raises(DisagreementError) as caught:
        check_agreement(facts, "orders")
    assert caught.value.code == "CHECKPOINT_DIVERGED"
    assert caught.value.message.endswith(": it ends at batch 3, and batch 4 was staged or published")


def test_a_moved_kafka_pipeline_goes_on() -> None:
    """Its checkpoint holds offsets, no paths."""
    birth = replace(BIRTH, sources={"clicks": {"offsets": {"t": {"0": 0}}}})
    check_agreement(replace(SETTLED, birth=birth, state_folder="/elsewhere"), "orders")


def test_what_is_owed() -> None:
    facts = replace(SETTLED, manifests={OTHER: [manifest(0, OTHER)], **staged(3, 4, 5)})
    assert [(m.query_id, m.batch_id) for m in facts.unpublished] == [(OTHER, 0), (QUERY, 4), (QUERY, 5)]
    assert replace(facts, table=None).unpublished[-3:] == facts.manifests[QUERY]


@pytest.mark.parametrize(
    ("last_offset", "last_commit", "batches", "expected"),
    [(3, 3, (), None), (4, 3, (), 4), (4, 3, (4,), None), (3, 2, (), None)],
    ids=["nothing", "only Spark can finish it", "staged", "published"],
)
def test_in_flight(last_offset: int, last_commit: int, batches: tuple[int, ...], expected: int | None) -> None:
    checkpoint = CheckpointState(True, QUERY, last_offset, last_commit)
    assert replace(SETTLED, checkpoint=checkpoint, manifests=staged(*batches)).in_flight == expected


@pytest.mark.parametrize(
    ("last_offset", "last_commit", "batches", "expected"),
    [(3, 3, (), None), (4, 3, (), 4), (4, 3, (4,), 4), (3, 2, (), 3)],
    ids=["nothing", "only Spark can finish it", "staged", "published"],
)
def test_in_flight_with_state(
    last_offset: int, last_commit: int, batches: tuple[int, ...], expected: int | None
) -> None:
    """Rows are not all that a batch leaves: until Spark has committed it, its state is still needed."""
    checkpoint = CheckpointState(True, QUERY, last_offset, last_commit)
    facts = replace(SETTLED, checkpoint=checkpoint, manifests=staged(*batches), keeps_state=True)
    assert facts.in_flight == expected
