"""Update and complete mode, stopped at every storage call: killed and run again, or frozen while others go on.

Plain readers never see an old and a new row of a key together, Delta readers see the table before or after, and the
next run ends as if nothing had happened, with the same figures.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.keyed import FakeLease, Keyed
from tests.support.merge_scenes import AFTER, BATCHES, BEFORE, Scenes, count_calls, figures_of, row
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere, Sleeper, StorageCalls, kill, split_devices, watch
from tests.support.sweep import sweep
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.runs.gate.increment import audit_increment, load_judged, plan_merge
from tidegate.runs.opening import recover_run
from tidegate.state.manifest import write_manifest
from tidegate.table.publish.intent import PublishIntent, write_intent
from tidegate.table.publish.replace import bring_back, list_set_aside, set_aside


def check_readers(keyed: Keyed, mode: str, where: str) -> None:
    plain = Counter(seen["id"] for seen in read_with_duckdb(keyed.paths.table))
    assert max(plain.values(), default=1) == 1, f"{where}: plain readers see a key twice: {plain}"
    delta = canonical(read_with_deltalake(keyed.paths.table))
    assert delta in (canonical(BEFORE), canonical(AFTER[mode])), f"{where}: Delta readers see {delta}"


@pytest.mark.parametrize(
    ("mode", "devices", "after"),
    [
        *(("update", 1, False), ("update", 1, True), ("update", 2, False), ("complete", 1, False)),
        *(("update", 0, False), ("update", 0, True), ("complete", 0, False)),
    ],
    ids=["before", "after", "copied", "complete", "stored", "stored, after", "stored, complete"],
)
def test_killed_at_every_call_and_run_again(
    tmp_path: Path, mode: str, devices: int, after: bool, lake: Path | None
) -> None:
    scenes = Scenes(tmp_path, mode, lake)
    names, expected = count_calls(scenes, devices, kill)
    assert {"os.link", "os.unlink"} <= set(names)
    assert ({"os.rename", "os.mkdir"} if devices else {"store.put", "store.copy", "store.delete"}) <= set(names)
    for at in sweep(len(names), 14):
        keyed = scenes.make(str(at))
        with pytest.MonkeyPatch.context() as patch:
            if devices == 2:
                split_devices(patch, keyed.paths.state)
            calls = StorageCalls(patch, at, kill, after=after)
            with pytest.raises(KilledHere):
                keyed.run("second")
        where = f"killed at {at} ({calls.names[-1]})"
        check_readers(keyed, mode, where)
        keyed.run("second")
        assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER[mode]), where
        assert figures_of(keyed, "second") == expected, where
        assert keyed.leftovers() == [], where


@pytest.mark.parametrize(
    ("fenced", "devices"), [(True, 1), (False, 1), (True, 0)], ids=["fenced", "unfenced", "stored"]
)
def test_frozen_at_every_call_while_others_go_on(tmp_path: Path, fenced: bool, lake: Path | None) -> None:
    """The sleeper wakes after its increment was published by another run, and a later one too, with a late change."""
    scenes = Scenes(tmp_path, "update", lake)
    for at in sweep(len(count_calls(scenes)[0]), 10):
        keyed = scenes.make(str(at))

        def run(sleeper: Sleeper, keyed: Keyed = keyed) -> None:
            keyed.run("second", holds=lambda: not (fenced and sleeper.is_overtaken))

        sleeper = Sleeper(at, run, (TidegateError, FileNotFoundError))
        assert not sleeper.has_ended, f"call {at} was not reached"
        sleeper.is_overtaken = True
        keyed.run("third")
        keyed.stage([row(1, 9, "Rome"), row(2, 9, "Oslo"), row(6, 1, "Rome")])
        keyed.run("fourth")
        now = [row(1, 9, "Rome"), row(2, 9, "Oslo"), *AFTER["update"][2:]]
        before = visible_files(keyed)
        assert canonical(read_agreed(keyed.paths.table)) == canonical(now), f"frozen at {at}"
        sleeper.wake()
        assert canonical(read_agreed(keyed.paths.table)) == canonical(now), f"frozen at {at}"
        assert visible_files(keyed) == before, f"frozen at {at}"
        keyed.stage([row(7, 9, "Rome")])
        keyed.run("fifth")
        assert canonical(read_agreed(keyed.paths.table)) == canonical([*now, row(7, 9, "Rome")]), f"frozen at {at}"
        assert keyed.leftovers() == [], f"frozen at {at}"


def test_random_changes_with_a_kill_in_each_run(tmp_path: Path) -> None:
    """Changes out of order, over many increments: each run is killed somewhere, and the next one completes it."""
    dice = random.Random(7)
    keyed = Keyed(tmp_path, order_by="n")
    expected: dict[int, dict[str, Any]] = {}
    killed = 0
    for turn in range(12):
        before = canonical(list(expected.values()))
        batches = [
            [row(dice.randrange(25), 10 * turn + dice.randrange(30), "Oslo") for _ in range(dice.randrange(15))]
            for _ in range(dice.randint(1, 3))
        ]
        changed = set()
        for change in (change for batch in batches for change in batch):
            known = expected.get(change["id"])
            if known is None or change["n"] >= known["n"]:
                expected[change["id"]] = change
                changed.add(change["id"])
        keyed.stage(*batches)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KilledHere):
            StorageCalls(patch, dice.randint(1, 30), kill)
            keyed.run(f"run {turn}")
            killed -= 1
        killed += 1
        seen = read_with_duckdb(keyed.paths.table)
        assert len({one["id"] for one in seen}) == len(seen), f"turn {turn}: plain readers see a key twice"
        assert canonical(read_with_deltalake(keyed.paths.table)) in (before, canonical(list(expected.values())))
        keyed.run(f"run {turn}")
        assert canonical(read_agreed(keyed.paths.table)) == canonical(list(expected.values())), f"turn {turn}"
        staged = sum(map(len, batches))
        assert figures_of(keyed, f"run {turn}")[:3] == [len(changed), staged - len(changed), staged], f"turn {turn}"
        assert keyed.leftovers() == []
    assert killed >= 8


def test_of_two_begun_plans_the_longer_is_finished(tmp_path: Path) -> None:
    """A run that was frozen just before it wrote its plan down writes it while another carries a longer one out."""
    scenes = Scenes(tmp_path, "update")
    total = len(count_calls(scenes, act=kill)[0])
    for at in sweep(total, 10):
        keyed = scenes.make(str(at))
        late = plan_of(keyed, "late")
        keyed.stage([row(1, 3, "Rome"), row(5, 3, "Rome")])
        with pytest.MonkeyPatch.context() as patch:
            StorageCalls(patch, at, kill)
            with pytest.raises(KilledHere):
                keyed.run("second")
        write_intent(keyed.paths, late)
        keyed.run("third")
        expected = [row(1, 3, "Rome"), *AFTER["update"][1:4], row(5, 3, "Rome"), AFTER["update"][5]]
        assert canonical(read_agreed(keyed.paths.table)) == canonical(expected), f"killed at {at}"


def test_a_begun_publish_that_is_given_up(tmp_path: Path) -> None:
    """What ``repair`` does: the files that were hidden come back, killed at every call or not."""
    scenes = Scenes(tmp_path, "update")
    for at in range(1, 100):
        keyed = scenes.make(str(at))
        set_aside(plan_of(keyed, "given up"), keyed.paths.table, lambda: True)
        assert read_with_duckdb(keyed.paths.table) == []
        assert len(list_set_aside(keyed.paths.table)) == 2
        with pytest.MonkeyPatch.context() as patch:
            StorageCalls(patch, at, kill)
            killed = False
            try:
                bring_back(keyed.paths.table, app_id="repair", check_lease=lambda: None)
            except KilledHere:
                killed = True
        bring_back(keyed.paths.table, app_id="repair again", check_lease=lambda: None)
        assert canonical(read_agreed(keyed.paths.table)) == canonical(BEFORE), f"killed at {at}"
        assert list_set_aside(keyed.paths.table) == []
        if not killed:
            break
    assert not killed
    keyed.run("second")
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])


@pytest.mark.parametrize("devices", [1, 0], ids=["on disk", "stored"])
def test_frozen_while_it_gives_up_a_publish(tmp_path: Path, lake: Path | None) -> None:
    """The sleeper wakes after another process has brought the files back, and the next one has replaced them."""
    scenes = Scenes(tmp_path, "update", lake)

    def begin(name: str) -> Keyed:
        keyed = scenes.make(name)
        set_aside(plan_of(keyed, "given up"), keyed.paths.table, lambda: True)
        return keyed

    def give_up(keyed: Keyed, holds: Callable[[], bool] = lambda: True) -> None:
        bring_back(keyed.paths.table, app_id="repair", check_lease=FakeLease(holds).check)

    keyed = begin("counted")
    with pytest.MonkeyPatch.context() as patch:
        counted = StorageCalls(patch, -1, watch)
        give_up(keyed)
    calls = [at for at, name in enumerate(counted.names, 1) if name != "os.fsync"]
    for at in (calls[number - 1] for number in sweep(len(calls), 6)):
        keyed = begin(str(at))

        def work(sleeper: Sleeper, keyed: Keyed = keyed) -> None:
            give_up(keyed, lambda: not sleeper.is_overtaken)

        sleeper = Sleeper(at, work, (TidegateError, OSError))
        where = f"frozen at {at} ({sleeper.call})"
        assert not sleeper.has_ended, where
        sleeper.is_overtaken = True
        give_up(keyed)
        assert canonical(read_agreed(keyed.paths.table)) == canonical(BEFORE), where
        keyed.run("second")
        before = visible_files(keyed)
        sleeper.wake()
        assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"]), where
        assert visible_files(keyed) == before, where
        assert storage.list_tree(keyed.paths.table, f"*{storage.COPY_SUFFIX}") == [], where


def plan_of(keyed: Keyed, run_id: str) -> PublishIntent:
    """What a run would write down for what is staged now."""
    context = keyed.context(run_id)
    facts = recover_run(context)
    verdict = audit_increment(context, facts)
    folded = load_judged(context, facts.unpublished, verdict)
    assert folded is not None
    return plan_merge(
        context, facts.unpublished, folded, run_id=run_id, app_version_before=0, rows={}, custom_metadata={}
    )


def visible_files(keyed: Keyed) -> list[Path]:
    return storage.list_tree(keyed.paths.table, "*.parquet")


def test_an_old_manifest_that_comes_back(tmp_path: Path) -> None:
    """As a driver writes it that was frozen just before: the note of the last publish does not go back to it."""
    keyed = Keyed(tmp_path, order_by="n")
    (old,) = keyed.stage(BEFORE)
    keyed.run("first")
    keyed.stage(*BATCHES)
    keyed.run("second")
    before = storage.read_note(keyed.paths.published)
    assert before is not None and before["batch_id"] == 2
    write_manifest(keyed.paths.manifest(QUERY, 0), old)
    keyed.run("third")
    assert storage.read_note(keyed.paths.published) == before
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])
    assert keyed.leftovers() == []
