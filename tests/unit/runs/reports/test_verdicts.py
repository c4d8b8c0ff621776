"""Verdicts and decisions on disk: what is held, for whom it stands, and what the error tells the person to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.staged import make_paths
from tests.unit.manifests import OTHER, QUERY, manifest
from tests.unit.verdicts import make_decision, make_verdict
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.verdicts import (
    find_hold,
    forget_settled,
    held_error,
    list_decided,
    list_verdicts,
    load_decision,
    load_verdict,
    save_decision,
    save_verdict,
)

OWED = [manifest(4), manifest(5)]


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    """Paths of a pipeline without state."""
    return make_paths(tmp_path)


def test_stored_and_read_back(paths: PipelinePaths) -> None:
    assert list_verdicts(paths) == [] and load_verdict(paths, "r1") is None
    verdict = make_verdict("r/1", 4, 5, failed=True)
    save_verdict(paths, verdict)
    assert load_verdict(paths, "r/1") == verdict
    decision = make_decision(verdict)
    save_decision(paths, decision)
    assert list_verdicts(paths) == [verdict], "a decision is no verdict"
    assert load_decision(paths, verdict) == decision and list_decided(paths) == [(verdict, decision)]


@pytest.mark.parametrize(
    ("batches", "covered"), [((4, 5), True), ((5, 4), True), ((4,), False), ((4, 5, 6), False), ((), False)]
)
def test_a_verdict_covers_exactly_its_batches(batches: tuple[int, ...], covered: bool) -> None:
    assert make_verdict("r1", *batches, failed=False).covers(OWED) is covered
    assert not make_verdict("r1", 4, 5, failed=False, query=OTHER).covers(OWED)


def test_a_failed_verdict_on_an_owed_batch_holds_until_it_is_decided(paths: PipelinePaths) -> None:
    assert find_hold(paths, OWED) is None
    save_verdict(paths, make_verdict("passed", 4, 5, failed=False))
    assert find_hold(paths, OWED) is None
    held = make_verdict("held", 4, failed=True)
    save_verdict(paths, held)
    assert find_hold(paths, OWED) == held, "also when more was staged since"
    assert find_hold(paths, [manifest(5)]) is None
    assert find_hold(paths, [manifest(4, OTHER)]) is None
    save_decision(paths, make_decision(held))
    assert find_hold(paths, OWED) is None
    save_verdict(paths, make_verdict("held", 4, 5, failed=True))
    assert find_hold(paths, OWED) == make_verdict("held", 4, 5, failed=True), "the decision was on another verdict"


@pytest.mark.parametrize(
    ("owed", "batches", "next_"),
    [
        ((4, 5), (4, 5), True), ((4, 5), (4,), True), ((5,), (4, 5), True), ((4, 5), (5,), False), ((4,), (5,), False),
        ((), (4,), False),
    ],
)  # fmt: skip
def test_batches_are_published_in_their_order(owed: tuple[int, ...], batches: tuple[int, ...], next_: bool) -> None:
    """A verdict on the first of the unpublished batches can be carried out alone, one on later batches cannot."""
    assert make_verdict("r1", *batches, failed=True).comes_next([manifest(batch) for batch in owed]) is next_


def test_what_is_settled_is_forgotten(paths: PipelinePaths) -> None:
    for run_id, batch in (("old", 4), ("open", 5)):
        verdict = make_verdict(run_id, batch, failed=True)
        save_verdict(paths, verdict)
        save_decision(paths, make_decision(verdict))
    save_decision(paths, make_decision(make_verdict("left behind", 3, failed=True)))
    forget_settled(paths, lambda query_id: 4 if query_id == QUERY else -1)
    assert [verdict.run_id for verdict in list_verdicts(paths)] == ["open"]
    assert [path.name for path in paths.decisions.iterdir()] == ["open.json"]


@pytest.mark.parametrize("run_id", ["scheduled__2026-01-01T00:00:00+00:00", "it's; rm -rf ~ $(id)", "a b", "-x"])
@pytest.mark.parametrize("earlier", [False, True])
def test_the_commands_of_a_held_increment_can_be_pasted(run_id: str, earlier: bool) -> None:
    error = held_error("orders", make_verdict(run_id, 4, failed=True), earlier=earlier)
    assert (error.code, error.exit_code) == ("EARLIER_INCREMENT_HELD" if earlier else "INCREMENT_HELD", 65)
    assert "id_present: 3 rows break it" in error.message and not error.retry
    assert error.fix is not None
    for command, decision in zip(error.fix.split("   or   "), ("release", "discard"), strict=True):
        words = shlex.split(command)
        assert words[:3] == ["tidegate", decision, "orders"] and run_id in words and words[-2:] == ["--reason", "..."]
