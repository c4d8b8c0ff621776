"""A refresh that keeps the older part of the table, which the source no longer has: each record once, whatever
maintenance, replays, rollbacks and earlier rebuilds have made of the files; what stays, stays byte for byte."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tests.model import beside, fake_spark
from tests.model.beside import code_of, decide, done, points_of_finishing, refuse_all
from tests.model.processes import Stop
from tests.model.world import NAME, Make, Shape, World, newest_version, read_delta, read_log, read_plain
from tests.support.sweep import choose
from tidegate.cli.commands import app
from tidegate.core.errors import HeldError, TidegateError
from tidegate.rework.backfill.command import preview_backfill
from tidegate.rework.replay.choose import Selection
from tidegate.spec.models import MaintenanceSpec
from tidegate.state.birth import KeptState
from tidegate.table.quarantine.read import QuarantineFilter

COMPACT = MaintenanceSpec(keep_versions=0, compact_below="32 MiB", source="keep")
OLDER = "the table, but for its older part"
refresh = partial(beside.refresh, keeps_older=True)


def bring(world: World, *kinds: str, partition: int = 0) -> None:
    """New records, and a run that takes them."""
    world.offer(partition, kinds)
    done(world.run(world.new_run_id()))


def lose(world: World, number: int) -> None:
    """The source no longer has one of its files."""
    (world.root / f"data/inbox/{number}.csv").unlink()


def change(world: World, number: int) -> None:
    path = world.root / f"data/inbox/{number}.csv"
    path.write_text(path.read_text().replace("good", "best"))


def files_of(world: World) -> dict[str, bytes]:
    """The table's files as plain readers find them."""
    table = world.paths.table
    return {str(one.relative_to(table)): one.read_bytes() for one in table.rglob("*.parquet") if one.name[0] != "."}


def ids_in(world: World, names: set[str]) -> set[str]:
    rows = read_plain(world.paths.table)
    there = Counter[str]()
    for name in names:
        there += read_plain_file(world.paths.table / name)
    assert not there - rows
    return set(there)


def read_plain_file(path: Path) -> Counter[str]:
    import pyarrow.parquet as pq

    return Counter(str(row["id"]) for row in pq.read_table(path, partitioning=None).to_pylist())


def check_kept(world: World, *numbers: int, reads: int, run_id: str = "fresh") -> Any:
    """The refresh leaves exactly the records of these files (``f<number>-...``) as they are, and reads so many others;
    the plan has said so before."""
    before = files_of(world)
    older = preview_backfill(world.project, NAME, None, keeps_older=True)["intervals"][0]["older"]
    assert files_of(world) == before, "a dry run changes nothing"
    count = world.reads
    report = done(refresh(world, run_id))
    assert (report["outcome"], report["rebuilt"]) == ("published", [OLDER])
    assert world.reads - count == reads
    after = files_of(world)
    kept = {name for name in after if after[name] == before.get(name)}
    assert {one.partition("-")[0] for one in ids_in(world, kept)} == {f"f{number}" for number in numbers}
    assert older is not None and (older["files"], older["rows"]) == (len(kept), len(ids_in(world, kept)))
    assert any(f"the older part stays as it is: {older['rows']} row" in note for note in report["notes"])
    world.check_all()
    assert done(refresh(world, run_id)) == report, "a retry changes nothing"
    assert files_of(world) == after
    return report


def go_on(world: World) -> None:
    """Live runs go on, a second refresh is exact, and so is one after maintenance."""
    bring(world, "good", "malformed")
    world.check_all()
    assert done(refresh(world, "second"))["rebuilt"] == [OLDER]
    world.check_all()
    done(world.maintain("tidy", COMPACT))
    world.check_all()
    bring(world, "good", "good")
    assert done(refresh(world, "third"))["rebuilt"] == [OLDER]
    world.check_all()
    reads = world.reads
    done(world.run(world.new_run_id()))
    assert world.reads == reads


def made(new_world: Make, *increments: tuple[str, ...], shape: Shape = "files") -> World:
    world = new_world(shape)
    for kinds in increments:
        bring(world, *kinds)
    return world


@contextlib.contextmanager
def two_and_two() -> Iterator[None]:
    """Records of the first two files are of one day, the others of the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "day_of", lambda row: "2026-01-01" if row["id"][:3] in DAY_1 else "2026-01-02")
        yield


DAY_1 = ("f1-", "f2-")
FOUR = (("good", "good", "malformed"), ("good", "good"), ("malformed", "good", "good"), ("good", "good"))


def test_files_that_are_gone_in_the_front(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    lose(world, 1)
    assert code_of(refresh(world, "plain", keeps_older=False)) == "BACKFILL_GONE"
    report = check_kept(world, 1, reads=7)
    assert report["rows"]["read"] == 7 and "data/inbox/1.csv is gone" in str(report["notes"])
    go_on(world)


def test_a_file_that_was_changed_in_the_middle(new_world: Make) -> None:
    """What comes before it stays as well, though it is there."""
    world = made(new_world, *FOUR)
    change(world, 3)
    check_kept(world, 1, 2, 3, reads=2)
    go_on(world)


def test_files_that_were_put_together_from_both_parts(new_world: Make) -> None:
    world = made(new_world, *FOUR[:3])
    done(world.maintain("tidy", COMPACT))
    bring(world, *FOUR[3])
    lose(world, 1)
    check_kept(world, 1, 2, 3, reads=2)
    go_on(world)


def test_files_that_were_put_together_within_each_part(new_world: Make) -> None:
    """Day by day: the first two runs have rows of one day alone, the others of the other one."""
    world = new_world("files")
    with two_and_two():
        for kinds in FOUR:
            bring(world, *kinds)
        assert len(files_of(world)) > 4
        done(world.maintain("tidy", COMPACT))
        assert len(files_of(world)) == 2
        lose(world, 1)
        check_kept(world, 1, 2, reads=5)
        go_on(world)


def test_quarantine_alone_has_records_of_both_parts(new_world: Make) -> None:
    """A backfill that found a whole day malformed has put the records of two runs into one file."""
    world = new_world("files")
    with two_and_two():
        for kinds in (("good", "good"), ("good",), ("good", "good"), ("good",)):
            bring(world, *kinds)
        world.offered |= {one: "malformed" for one in world.offered if one[:3] in DAY_1}
        world.judged.clear()  # what the first reports say of them is no longer so
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(World, "_parse", lambda world, row: {**row, "kind": world.offered[row["id"]]})
            done(world.backfill("day", "2026-01-01", "2026-01-01"))
            world.check_all()
            lose(world, 1)
            count = world.reads
            assert done(refresh(world))["rebuilt"] == [OLDER] and world.reads - count == 3
        world.check_all()


def test_a_replay_over_both_parts(new_world: Make) -> None:
    """Nobody knows of which batch its rows are: they stay, and so do the records that were in quarantine with them."""
    world = made(new_world, *FOUR)
    done(world.replay("again", Selection(), mend=True))
    lose(world, 1)
    check_kept(world, 1, 2, 3, reads=2)
    go_on(world)


def test_a_replay_of_each_part(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    done(world.replay("of-r1", Selection(QuarantineFilter(run_id="r1")), mend=True))
    done(world.replay("of-r3", Selection(QuarantineFilter(run_id="r3"))))
    lose(world, 1)
    check_kept(world, 1, reads=7)
    go_on(world)


def test_records_that_were_edited_stay_with_the_older_part(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    first = next(id_ for id_, text in world.in_quarantine().items() if text.startswith("f1-"))
    done(world.replay("edit", Selection(edits={first: "f1-2,good"})))
    lose(world, 1)
    check_kept(world, 1, reads=7)
    go_on(world)


def test_behind_a_whole_refresh(new_world: Make) -> None:
    """Of which batch its rows are nobody knows: all of it stays where a part is lost."""
    world = made(new_world, *FOUR[:2])
    done(refresh(world, "whole", keeps_older=False))
    bring(world, *FOUR[2])
    lose(world, 1)
    check_kept(world, 1, 2, reads=3)
    lose(world, 2)
    check_kept(world, 1, 2, reads=3, run_id="next")
    go_on(world)


def test_behind_a_backfill(new_world: Make) -> None:
    """Only the day that it rebuilt has files of several batches."""
    world = made(new_world, *FOUR)
    done(world.backfill("day", "2026-01-01", "2026-01-01"))
    bring(world, "good", "good")
    lose(world, 1)
    check_kept(world, 1, 2, 3, 4, reads=2)
    go_on(world)


def test_a_day_is_rebuilt_after_it(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    content = (world.root / "data/inbox/1.csv").read_bytes()
    lose(world, 1)
    check_kept(world, 1, reads=7)
    assert code_of(world.backfill("day", "2026-01-01", "2026-01-01")) == "BACKFILL_GONE"
    world.check_all()
    (world.root / "data/inbox/1.csv").write_bytes(content)
    done(world.backfill("day", "2026-01-01", "2026-01-01"))
    world.check_all()
    assert done(refresh(world, "whole"))["rebuilt"] == ["the whole table"]
    world.check_all()


@pytest.mark.parametrize("then", ["reread", "leave-out"])
def test_behind_a_rollback(new_world: Make, then: Any) -> None:
    """Files that came back have names of the rollback."""
    world = made(new_world, *(("good", "good") for _ in range(3)))
    done(world.maintain("tidy", MaintenanceSpec(compact_below="32 MiB", source="keep")))
    done(world.rollback(1, then))
    done(world.run(world.new_run_id()))
    bring(world, "good", "good")
    lose(world, 1)
    done(refresh(world))
    world.check_all()
    go_on(world)


def test_increments_that_were_left_out(new_world: Make) -> None:
    """Of a discarded increment nothing is read, and that its file is gone is no reason to keep more."""
    world = made(new_world, *FOUR[:2])
    world.offer(0, ["poor", "poor", "poor"])
    bad = world.new_run_id()
    assert isinstance(world.run(bad).error, HeldError)
    done(world.decide("discard", bad))
    bring(world, "good", "good")
    lose(world, 1)
    lose(world, 3)
    check_kept(world, 1, reads=4)
    go_on(world)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_an_increment_that_waited_alone(new_world: Make, shape: Shape, is_late: bool) -> None:
    """Released, its files have the names of its batches: they stay with the older part, or go and are built anew."""
    for lost in range(1, 4):
        world = new_world(shape, on_critical="continue")
        bring(world, "good", "good", "malformed")
        world.offer(0, ["poor", "poor", "good", "malformed"])
        assert isinstance(world.run("waits").error, HeldError)
        if not is_late:
            done(world.decide("release", "waits"))
        bring(world, "good", "malformed")
        bring(world, "good", "good")
        if is_late:
            done(world.decide("release", "waits"))
        lose(world, lost) if shape == "files" else world.retain_from(0, [1, 4, 8][lost - 1])
        reads = world.reads
        assert done(refresh(world))["rebuilt"] == [OLDER]
        assert world.reads - reads == [8, 4, 2][lost - 1]
        world.check_all()
        go_on(world)


def test_a_file_that_grew_between_being_taken_and_being_read(new_world: Make) -> None:
    """What was appended then is in the table, and no mark covers it: once it changes again nobody can tell."""
    world = made(new_world, *FOUR[:1])
    world.offer(0, ["good", "good"])
    file = world.root / "data/inbox/2.csv"
    submit = World._submit

    def append_first(world: World, plan: Any) -> int:
        with file.open("a") as out:
            out.write("f2-2,good\n")
        world.offered["f2-2"] = "good"
        return submit(world, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "_submit", append_first)
        done(world.run("r2"))
    world.runs += 1
    bring(world, "good", "good")
    with file.open("a") as out:
        out.write("f2-3,good\n")
    assert code_of(refresh(world, "plain", keeps_older=False)) == "BACKFILL_GONE"
    check_kept(world, 1, 2, reads=2)


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_log_of_quarantine_is_cut(new_world: Make, is_lost: bool) -> None:
    """Nobody can tell by now of which records the files of a replay are: read again they would be there twice."""
    world = made(new_world, *FOUR)
    done(world.replay("again", Selection()))
    bring(world, "good", "malformed")
    DeltaTable(str(world.paths.quarantine)).create_checkpoint()
    for commit in sorted((world.paths.quarantine / "_delta_log").glob("*[0-9].json"))[:-1]:
        commit.unlink()
    if is_lost:
        lose(world, 1)
    before = files_of(world)
    refused = refresh(world, keeps_older=is_lost)
    assert code_of(refused) == "BACKFILL_LOG_CUT" and "quarantine/orders" in str(refused.error)
    assert files_of(world) == before
    assert DeltaTable(str(world.paths.quarantine)).to_pyarrow_table().num_rows == 3


def test_offsets_that_are_gone(new_world: Make) -> None:
    world = new_world("kafka")
    for kinds in FOUR:
        bring(world, *kinds)
    bring(world, "good", "malformed", partition=1)
    world.retain_from(0, 4)  # in the second increment
    assert code_of(refresh(world, "plain", keeps_older=False)) == "BACKFILL_GONE"
    reads = world.reads
    report = done(refresh(world))
    assert (report["rebuilt"], world.reads - reads) == ([OLDER], 7)
    assert "source orders" in str(report["notes"])
    world.check_all()
    bring(world, "good", "malformed")
    assert done(refresh(world, "second"))["rows"]["read"] == 9
    world.check_all()


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_nothing_is_gone_and_everything_is(new_world: Make, shape: Shape) -> None:
    world = made(new_world, *FOUR[:2], shape=shape)
    report = done(refresh(world))
    assert report["rebuilt"] == ["the whole table"]
    assert any("no part of the table stays as it is" in note for note in report["notes"])
    world.check_all()
    lose(world, 2) if shape == "files" else world.retain_from(0, 5)
    before = files_of(world)
    refused = refresh(world, "second")
    assert code_of(refused) == "BACKFILL_GONE"
    assert "--keep-older" not in str(refused.error)
    assert f"`tidegate repair {NAME} --rebuild`" in str(refused.error)
    plan = preview_backfill(world.project, NAME, None, keeps_older=True)
    assert plan["hindrance"] is not None and plan["intervals"][0]["older"] is None
    assert files_of(world) == before
    world.check_all()


def test_the_error_of_a_whole_refresh_names_the_option(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    lose(world, 1)
    error = refresh(world, "plain", keeps_older=False).error
    assert isinstance(error, TidegateError) and "`tidegate refresh orders --keep-older`" in str(error.fix)
    done(refresh(world))
    world.check_all()


def test_a_query_with_state_is_refused(new_world: Make) -> None:
    world = new_world("files")
    kept: KeptState = {"operator": "aggregate", "keys": ["id"], "values": ["count"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", [kept])
        for kinds in FOUR:
            bring(world, *kinds)
        lose(world, 1)
        before, reads = files_of(world), world.reads
        assert code_of(refresh(world)) == "REFRESH_KEEPS_STATE"
        assert "--keep-older" not in str(refresh(world, "plain", keeps_older=False).error)
        assert (files_of(world), world.reads) == (before, reads)
        world.check_all()


def test_a_transform_that_keeps_state_by_now_is_refused(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    lose(world, 1)
    before = files_of(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_spark, "STATE", [{"operator": "aggregate", "keys": ["id"], "values": ["count"]}])
        assert code_of(refresh(world)) == "REFRESH_KEEPS_STATE"
    assert files_of(world) == before
    world.check_all()


def test_rows_that_no_run_has_read(new_world: Make) -> None:
    """Another program has written some: they stay, in front of what is rebuilt."""
    import pyarrow as pa
    from deltalake import write_deltalake

    world = made(new_world, *FOUR[:2])
    rows = {"id": ["x-0", "x-1"], "kind": ["good", "good"], "day": ["2026-01-01", "2026-01-02"]}
    table = pa.table({name: pa.array(values) for name, values in rows.items()})
    write_deltalake(str(world.paths.table), table.set_column(2, "day", table["day"].cast(pa.date32())), mode="append")
    world.passed |= {"x-0", "x-1"}
    bring(world, *FOUR[2])
    refused = refresh(world, "plain", keeps_older=False)
    assert code_of(refused) == "BACKFILL_FOREIGN_ROWS" and "refresh orders --keep-older" in str(refused.error)
    before = files_of(world)
    report = done(refresh(world))
    assert (report["rebuilt"], report["rows"]["read"]) == ([OLDER], 8)
    after = files_of(world)
    kept = {name for name in after if after[name] == before.get(name)}
    assert ids_in(world, kept) == {"x-0", "x-1"}
    world.check_all()
    done(world.maintain("tidy", COMPACT))
    refused = refresh(world, "second")
    assert code_of(refused) == "BACKFILL_FOREIGN_ROWS", "each file has rows of both parts by now"
    bring(world, "good", "good")
    assert done(refresh(world, "third"))["rows"]["read"] == 2
    for read in (read_plain, read_log, read_delta):
        assert read(world.paths.table)["x-0"] == read(world.paths.table)["x-1"] == 1
    world.check_all()


def test_on_the_command_line(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    # The columns of a dry run come from Spark, which the model replaces.
    world.patch.setattr("tidegate.spark.inspection.analyse.analyse_pipeline", lambda *names, **options: None)
    lose(world, 1)

    def ask(*more: str) -> Any:
        command = ["--project", str(world.root), "refresh", NAME, "--keep-older", "--json", *more]
        return done(world._start("refresh", lambda: json.loads(CliRunner().invoke(app, command).stdout), None))

    older = ask("--dry-run")["intervals"][0]["older"]
    assert (older["rows"], older["lost"]) == (2, ["data/inbox/1.csv is gone"])
    world.patch.setattr("tidegate.cli.repairs.submit_before_audit", lambda project, name: world._submit)
    assert ask("--run-id", "fresh")["rebuilt"] == [OLDER]
    world.check_all()


def hold(world: World, run_id: str = "fresh") -> None:
    """A refresh that the gate does not pass."""
    with pytest.MonkeyPatch.context() as patch:
        refuse_all(patch)
        refused = refresh(world, run_id)
        assert code_of(refused) == "BACKFILL_HELD"
        assert "live runs continue" in str(refused.error) and f"with the same command and --run-id {run_id}" in str(
            refused.error
        )


def test_held_and_then_released_or_dropped(new_world: Make) -> None:
    for decision in ("release", "discard"):
        with two_and_two():
            _hold_and_decide(new_world, decision)


def _hold_and_decide(new_world: Make, decision: str) -> None:
    world = made(new_world, *FOUR)
    lose(world, 2)  # of the first day every row stays
    before = files_of(world)
    hold(world)
    done(world.maintain("tidy", COMPACT))
    assert files_of(world) == before, "its partitions wait with it, also those of which every row stays"
    report = done(decide(world, decision))
    assert report["rebuilt"] == ([OLDER] if decision == "release" else [])
    assert (files_of(world) == before) is (decision == "discard")
    world.check_all()
    go_on(world)


def test_held_and_out_of_date(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    lose(world, 1)
    hold(world)
    bring(world, "good")
    refused = decide(world, "release")
    assert code_of(refused) == "BACKFILL_OUTDATED" and OLDER in str(refused.error)
    done(decide(world, "discard"))
    world.check_all()


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_killed_at_every_storage_call_of_the_swap(new_world: Make, shape: Shape, part: int) -> None:
    def make() -> World:
        world = made(new_world, *FOUR[:3], shape=shape)
        lose(world, 1) if shape == "files" else world.retain_from(0, 2)
        return world

    points = points_of_finishing(refresh(make()), killed=True, more_than=15)
    for point in choose(points, 16)[part::4]:
        world = make()
        process = refresh(world, stop=Stop(nth=point))
        assert process.state == "stopped"
        world.kill(process)
        world.check()
        done(world.run(world.new_run_id()))
        world.check_all()
        assert done(refresh(world))["rebuilt"] == [OLDER]
        world.check_all()


def test_frozen_while_the_table_is_maintained(new_world: Make) -> None:
    world = made(new_world, *FOUR)
    lose(world, 1)
    world.freeze(refresh(world, stop=Stop("link data/state/orders/intents")))
    done(world.maintain("tidy", COMPACT))
    bring(world, "good", "malformed")
    world.thaw(0)
    done(world.run(world.new_run_id()))
    world.check_all()


SEEDS = range(200) if os.environ.get("TIDEGATE_SWEEP") == "all" else range(3, 6)
_REFUSALS = ("BACKFILL_GONE", "BACKFILL_REPLAYED", "BACKFILL_SPILLS", "REPLAY_REFUSED", "REPLAY_HELD")
_REFUSALS += ("ROLLBACK_MOVED", "ROLLBACK_HELD", "BACKFILL_HELD", "REPLAY_FILE")


@pytest.mark.parametrize("shape", ["files", "kafka"])
def test_whatever_came_before(new_world: Make, shape: Shape) -> None:
    """What the source loses goes up to any record that was taken; in between anything that makes files anew."""
    kept = sum(_go_through(new_world(shape), random.Random(seed)) for seed in SEEDS)
    assert kept > 0


def _go_through(world: World, chance: random.Random) -> int:
    """How many refreshes kept an older part."""
    kept = 0
    for step in range(12):
        _do_something(world, chance, step)
        world.check_all()
        if chance.random() < 0.4:
            before = files_of(world)
            process = refresh(world, f"refresh-{step}", keeps_older=chance.random() < 0.8)
            world.check_all()
            if process.error is not None:
                assert code_of(process) in _REFUSALS
                assert files_of(world) == before
            else:
                kept += process.value["rebuilt"] == [OLDER]
    return kept


def _do_something(world: World, chance: random.Random, step: int) -> None:
    what = chance.choice(["run", "run", "run", "lose", "maintain", "replay", "backfill", "rollback", "discard"])
    process = None
    kinds = ["good", "good", "good", *chance.choices(["good", "malformed"], k=chance.randint(0, 3))]
    if what == "run" or step == 0:
        world.offer(chance.randint(0, 1), kinds)
        process = world.run(world.new_run_id())
    elif what == "lose" and world.shape == "kafka":
        partition = chance.randint(0, 1)
        world.retain_from(partition, chance.randint(0, len(world.kafka.sent[partition]) // 2))
    elif what == "lose":
        number = chance.randint(1, max(1, world.files * 2 // 3))
        (world.root / f"data/inbox/{number}.csv").unlink(missing_ok=True)
    elif what == "maintain":
        process = world.maintain(world.new_run_id(), chance.choice([COMPACT, MaintenanceSpec(compact_below="1 MiB")]))
    elif what == "replay":
        runs = [None, None, *range(1, world.runs + 1)]
        run = chance.choice(runs)
        of = Selection() if run is None else Selection(QuarantineFilter(run_id=f"r{run}"))
        process = world.replay(world.new_run_id("p"), of, mend=chance.random() < 0.5)
    elif what == "backfill":
        first, last = chance.choice([("01", "01"), ("02", "02"), ("01", "02")])
        process = world.backfill(world.new_run_id("b"), f"2026-01-{first}", f"2026-01-{last}")
    elif what == "rollback":
        version = max(0, newest_version(world.paths.table) - chance.randint(1, 4))
        process = world.rollback(version, "leave-out", world.new_run_id("v"))
    elif what == "discard":
        world.offer(0, ["poor", "poor"])
        held = world.new_run_id()
        if isinstance(world.run(held).error, HeldError):
            process = world.decide("discard", held)
    assert process is None or process.error is None or isinstance(process.error, TidegateError), process.error


def test_rows_that_another_program_deleted_are_of_the_older_part(new_world: Make) -> None:
    """Behind them nothing was deleted: the rest can be rebuilt, and they do not come back."""
    world = new_world("files")
    for _ in range(3):
        bring(world, "good")
    DeltaTable(str(world.paths.table)).delete("id = 'f2-0'")
    assert code_of(refresh(world, "plain", keeps_older=False)) == "BACKFILL_FOREIGN_ROWS"
    report = done(refresh(world))
    assert report["rebuilt"] == [OLDER]
    assert any("another program has deleted rows" in note for note in report["notes"])
    assert report["rows"]["read"] == 1
    assert read_log(world.paths.table) == Counter(["f1-0", "f3-0"])
