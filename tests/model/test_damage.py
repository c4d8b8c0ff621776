"""A table of which a file or a version of the log is gone or changed: every command says so, and each names a way on
that ends with every record counted once."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tests.model.processes import Process, Stop, stops
from tests.model.world import NAME, Make, Shape, World
from tests.support.cut_log import clean_log
from tidegate.cli.commands import app
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.outputs import Lost, Status
from tidegate.rework.backfill.command import backfill_table
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.table.log.compaction import compact_log
from tidegate.table.log.files import list_versions
from tidegate.views.acknowledge import acknowledge_changes
from tidegate.views.doctor import examine
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status
from tidegate.views.verify import verify_pipeline

Harm = Callable[[World], Path]


def _a_file(world: World) -> Path:
    return sorted(world.paths.table.rglob("part-*.parquet"))[0]


def take_file(world: World) -> Path:
    path = _a_file(world)
    path.unlink()
    return path


def lengthen_file(world: World) -> Path:
    path = _a_file(world)
    path.write_bytes(path.read_bytes() + b"x")
    return path


def change_bytes(world: World) -> Path:
    """Same name, same size, a whole footer."""
    path = _a_file(world)
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF
    path.write_bytes(data)
    return path


def take_commit(world: World) -> Path:
    path = world.paths.table / "_delta_log" / f"{1:020d}.json"
    path.unlink()
    return path


def tear_commit(world: World) -> Path:
    path = world.paths.table / "_delta_log" / f"{1:020d}.json"
    path.write_bytes(path.read_bytes()[:-9])
    return path


def take_commit_of_quarantine(world: World) -> Path:
    world.offer(0, ["good", "malformed"])
    assert world.run(world.new_run_id()).error is None
    path = world.paths.quarantine / "_delta_log" / f"{0:020d}.json"
    path.unlink()
    return path


def take_compacted_commit(world: World) -> Path:
    compact_log(world.paths.table, lambda: None)
    return take_commit(world)


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes pipelines with three versions of the table, a malformed record, and nothing that is new."""

    def make_world(shape: Shape) -> World:
        world = new_world(shape)
        for kinds in (["good", "good", "malformed"], ["good", "good"], ["good"]):
            world.offer(1 if shape == "kafka" else 0, kinds)
            assert world.run(world.new_run_id()).error is None
        return world

    return make_world


def _command(*words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done
    return done.exit_code, json.loads(done.stdout) if done.stdout else None


def _find_commands(texts: list[str]) -> list[list[str]]:
    return [shlex.split(one) for text in texts for one in re.findall(r"`tidegate ([^`]+)`", text)]


def _read_trouble(rows: list[Status]) -> list[str]:
    """What `status --check` exits with 1 for, except a failed last run and lost rows: they remain after a repair."""
    return [one["message"] for row in rows for one in row["trouble"] if one["kind"] not in ("failed", "lost")]


def _find_lost(world: World) -> Lost | None:
    """The lost rows that `status` reports."""
    (row,), (glance,) = project_status(world.project, NAME), project_status(world.project, None)
    assert row["lost"] == glance["lost"]
    assert [one["kind"] for one in row["trouble"] if one["kind"] == "lost"] == (["lost"] if row["lost"] else [])
    return row["lost"]


def _look(world: World) -> dict[str, list[str]]:
    """What each command that only looks says is wrong, by command."""
    project = world.project
    return {
        "plan": [one["message"] for one in plan_pipeline(project, NAME)["errors"]],
        "status": _read_trouble(project_status(project, None)),
        "status NAME": _read_trouble(project_status(project, NAME)),
        "doctor": [one.found for one in examine(project) if one.check.endswith(f" of {NAME}") and not one.ok],
        "verify": [one["path"] for table in verify_pipeline(project, NAME)["tables"] for one in table["damaged"]],
    }


@pytest.mark.parametrize("harm", [take_file, lengthen_file])
def test_a_file_that_is_gone_or_changed_is_named_by_every_command(make: Make, harm: Harm) -> None:
    world = make("files")
    assert not any(_look(world).values())
    name = harm(world).name
    told = _look(world)
    assert all(any(name in one for one in some) for some in told.values()), told
    world.offer(0, ["good"])
    for _ in range(2):
        refused = world.run("idle").error
        assert isinstance(refused, DisagreementError) and refused.code == "TABLE_DAMAGED" and name in refused.message
        assert refused.exit_code == 78
    _follow(world, ["repair", NAME])


@pytest.mark.parametrize("leaves", ["a checkpoint beside all commits", "a log that begins with a checkpoint"])
def test_a_file_that_a_checkpoint_names_is_named_by_every_command(make: Make, leaves: str) -> None:
    """A run does not publish past it, as it does not where the commit is there that brought the file."""
    world = make("files")
    if leaves == "a checkpoint beside all commits":
        DeltaTable(str(world.paths.table)).create_checkpoint()
    else:
        clean_log(world.paths.table)
    name = take_file(world).name
    told = _look(world)
    assert all(any(name in one for one in some) for some in told.values()), told
    for run_id in ("idle", "more"):
        refused = world.run(run_id).error
        assert isinstance(refused, DisagreementError) and refused.code == "TABLE_DAMAGED" and name in refused.message
        world.offer(0, ["good"])
    if leaves == "a checkpoint beside all commits":
        _follow(world, ["repair", NAME])
    else:
        assert repair_pipeline(world.project, NAME, dry_run=False)["code"] == "TABLE_DAMAGED"
        assert verify_pipeline(world.project, NAME)["ok"] and _find_lost(world) is not None
        assert world.run(world.new_run_id()).error is None


def _take_folder(world: World) -> None:
    shutil.rmtree(world.paths.table)


def _take_log(world: World) -> None:
    shutil.rmtree(world.paths.table / "_delta_log")


def _empty_log(world: World) -> None:
    _take_log(world)
    (world.paths.table / "_delta_log").mkdir()


def _take_quarantine(world: World) -> None:
    shutil.rmtree(world.paths.quarantine)


@pytest.mark.parametrize("harm", [_take_folder, _take_log, _empty_log, _take_quarantine])
def test_verify_says_of_a_table_that_is_gone_what_a_run_says(make: Make, harm: Callable[[World], None]) -> None:
    world = make("files")
    harm(world)
    refused = world.run("idle").error
    assert isinstance(refused, DisagreementError)
    assert refused.code == ("QUARANTINE_BEHIND" if harm is _take_quarantine else "TABLE_GONE")
    with pytest.raises(DisagreementError) as found:
        verify_pipeline(world.project, NAME)
    assert found.value.to_dict() == refused.to_dict() and found.value.exit_code == 78
    if refused.code == "TABLE_GONE":
        assert "version 2" in refused.message
        assert repair_pipeline(world.project, NAME, dry_run=False)["code"] == "TABLE_GONE"
        assert [one["table"] for one in verify_pipeline(world.project, NAME)["tables"]] == ["quarantine"]


def test_verify_of_a_pipeline_that_has_not_run_yet(new_world: Make) -> None:
    world = new_world("files")
    code, value = _command("--project", str(world.root), "verify", NAME, "--json")
    assert (code, value["ok"], value["tables"]) == (0, True, [])


@pytest.mark.parametrize("harm", [take_commit, tear_commit])
def test_verify_does_not_count_the_files_of_a_log_that_cannot_be_read(make: Make, harm: Harm) -> None:
    world = make("files")
    harm(world)
    shown = CliRunner().invoke(app, ["--project", str(world.root), "verify", NAME]).stdout
    assert f"{world.paths.table}, version 2: its log does not say which files it has" in shown
    assert "0 files" not in shown


def test_a_file_with_other_bytes_is_found_by_verify(make: Make) -> None:
    world = make("files")
    name = change_bytes(world).name
    told = _look(world)
    assert [key for key, some in told.items() if some] == ["verify"] and name in told["verify"][0]
    words = _find_commands(verify_pipeline(world.project, NAME)["fix"])
    assert words == [["repair", NAME, "--verify"]]
    _follow(world, words[0])


def _follow(world: World, words: list[str]) -> None:
    """Do what verify says, and then what that says."""
    code, value = _command("--project", str(world.root), "verify", NAME, "--json")
    assert code == 78 and not value["ok"] and words in _find_commands(value["fix"])
    deep = "--verify" in words
    before = sorted(world.paths.table.rglob("*"))
    shown = repair_pipeline(world.project, NAME, dry_run=True, verify=deep)
    assert sorted(world.paths.table.rglob("*")) == before
    assert words in _find_commands(shown["choices"])
    done = repair_pipeline(world.project, NAME, dry_run=False, verify=deep)
    assert (done["code"], len(done["actions"])) == ("TABLE_DAMAGED", len(shown["actions"]))
    assert not any(_look(world).values()), "what is left of the table is whole"
    lost = _find_lost(world)
    assert lost is not None and lost["rows"] == sum(one["rows"] for one in lost["files"]) > 0
    assert [lost["command"].split()[1:]] == _find_commands(done["choices"])
    shown = CliRunner().invoke(app, ["--project", str(world.root), "status", NAME, "--check"])
    assert shown.exit_code == 1 and f"`{lost['command']}`" in shown.stdout
    assert "lost with damaged files" in shown.stderr
    ((command, name, *options),) = _find_commands(done["choices"])
    assert (command, name) == ("backfill", NAME)
    assert set(options[::2]) == {"--partition"}
    report = backfill_table(world.project, NAME, "again", Wanted(partitions=options[1::2]), submit=world._submit)
    assert report["outcome"] == "published"
    assert _find_lost(world) is None
    world.settle("discard")
    assert verify_pipeline(world.project, NAME)["ok"]


def test_a_lost_file_of_quarantine_comes_back_with_the_table(make: Make) -> None:
    world = make("files")
    (path,) = world.paths.quarantine.rglob("*.parquet")
    path.unlink()
    assert all(any(path.name in one for one in some) for some in _look(world).values())
    refused = world.run("idle").error
    assert isinstance(refused, DisagreementError) and "quarantine is not as it was written" in refused.message
    found = [one.check for one in examine(world.project) if not one.ok and "TABLE_DAMAGED" in one.found]
    assert found == [f"quarantine of {NAME}"]
    done = repair_pipeline(world.project, NAME, dry_run=False)
    assert _find_commands(done["choices"]) == [["refresh", NAME]]
    assert not any(_look(world).values())
    lost = _find_lost(world)
    assert lost is not None and [one["of"] for one in lost["files"]] == ["quarantine"]
    assert lost["command"] == f"tidegate refresh {NAME}"
    assert world.refresh("again").error is None
    assert _find_lost(world) is None
    world.settle("discard")


def _lose(world: World, count: int) -> list[str]:
    """Lose files of ``count`` partitions, and have them taken out of the log; the partitions."""
    found = {path.parent.name: path for path in sorted(world.paths.table.rglob("part-*.parquet"))}
    days = sorted(found)[:count]
    assert len(days) == count
    for day in days:
        found[day].unlink()
    repair_pipeline(world.project, NAME, dry_run=False)
    return days


def _days(lost: Lost | None) -> set[str]:
    return set() if lost is None else {f"day={one['partition']['day']}" for one in lost["files"]}


def _read_reasons(world: World) -> list[str]:
    """Why lost rows were acknowledged, as it stays on record; who did it is there too."""
    events = [storage.read_json(path) for path in storage.list_folder(world.paths.lost_rows)]
    return [one["reason"] for one in events if one["kind"] == "acknowledged" and one["who"]]


def test_lost_rows_are_reported_until_they_are_rebuilt_or_acknowledged(make: Make) -> None:
    world = make("files")
    first, second = _lose(world, 2)
    assert _days(_find_lost(world)) == {first, second}
    world.offer(0, ["good"])
    assert world.run(world.new_run_id()).error is None
    assert _days(_find_lost(world)) == {first, second}, "a run rebuilds nothing"
    report = backfill_table(world.project, NAME, "again", Wanted(partitions=[first]), submit=world._submit)
    assert report["outcome"] == "published"
    lost = _find_lost(world)
    assert lost is not None and lost["command"] == f"tidegate backfill {NAME} --partition {second}"
    with pytest.raises(UsageError) as unknown:
        acknowledge_changes(world.project, NAME, [first], reason="known")
    assert unknown.value.code == "NOT_CHANGED" and _find_lost(world) == lost
    done = acknowledge_changes(world.project, NAME, [second], reason="known")
    assert (done["lost"], done["acknowledged"], done["left"]) == (lost["files"], [], 0)
    assert _find_lost(world) is None
    assert _read_reasons(world) == ["known"]
    again = acknowledge_changes(world.project, NAME, [], reason="known")
    assert (again["lost"], again["left"]) == ([], 0)


def test_lost_rows_of_topics_can_be_acknowledged(make: Make) -> None:
    world = make("kafka")
    (day,) = _lose(world, 1)
    with pytest.raises(UsageError) as unknown:
        acknowledge_changes(world.project, NAME, ["another"], reason="known")
    assert unknown.value.code == "NOT_CHANGED" and unknown.value.message.endswith(f"not acknowledged yet: {day}")
    assert [one["rows"] for one in acknowledge_changes(world.project, NAME, [], reason="known")["lost"]]
    assert _find_lost(world) is None
    assert _read_reasons(world) == ["known"]


def test_lost_rows_of_a_table_whose_log_was_cut_are_rebuilt_by_a_new_table(make: Make) -> None:
    world = make("files")
    clean_log(world.paths.table)
    _a_file(world).unlink()
    command = f"tidegate reset {NAME} --from-beginning"
    shown = repair_pipeline(world.project, NAME, dry_run=True)
    assert f"`{command}`: a new table from all records still in the sources" in shown["next_run"][1]
    assert [command.split()[1:]] == _find_commands(repair_pipeline(world.project, NAME, dry_run=False)["choices"])
    lost = _find_lost(world)
    assert lost is not None and lost["command"] == command
    refused = world.refresh("again").error
    assert isinstance(refused, DisagreementError) and refused.code == "BACKFILL_LOG_CUT"
    assert f"`{command}`" in str(refused.fix)
    assert world.reset(from_beginning=True).error is None
    assert _find_lost(world) is None
    world.settle("discard")
    assert _find_lost(world) is None


def test_a_repair_says_that_sinks_keep_the_rows_of_lost_files(new_world: Make) -> None:
    world = new_world("files", sinks="sinks:\n  - {type: console}\n")
    world.offer(0, ["good"])
    assert world.run("r1").error is None
    take_file(world)
    told = repair_pipeline(world.project, NAME, dry_run=True)["next_run"]
    assert sum("the sinks" in one for one in told) == 1


def test_the_report_of_lost_rows_outlives_a_clean_up_of_the_log(make: Make) -> None:
    world = make("files")
    (day,) = _lose(world, 1)
    DeltaTable(str(world.paths.table)).create_checkpoint()
    for commit in (world.paths.table / "_delta_log").glob("*.json"):
        commit.unlink()
    assert _days(_find_lost(world)) == {day}


def test_lost_rows_of_a_table_that_is_no_longer_there_are_not_reported(make: Make, tmp_path: Path) -> None:
    world = make("files")
    backup = shutil.copytree(world.paths.table, tmp_path / "backup")
    _lose(world, 1)
    assert _find_lost(world) is not None
    shutil.rmtree(world.paths.table)
    shutil.copytree(backup, world.paths.table)
    assert _find_lost(world) is None
    _lose(world, 1)
    assert _find_lost(world) is not None
    repair_pipeline(world.project, NAME, dry_run=False, rebuild=True)
    world.disagrees = True
    assert _find_lost(world) is None
    world.settle("discard")
    assert _find_lost(world) is None


@pytest.mark.parametrize("to_version", [2, 4])
def test_only_a_rollback_to_before_the_repair_ends_the_report_of_lost_rows(make: Make, to_version: int) -> None:
    world = make("files")
    world.offer(0, ["good"])
    assert world.run(world.new_run_id()).error is None
    log = world.paths.table / "_delta_log" / f"{3:020d}.json"
    (name,) = [one["add"]["path"] for one in map(json.loads, log.read_text().splitlines()) if "add" in one]
    (world.paths.table / name).unlink()
    repair_pipeline(world.project, NAME, dry_run=False)
    world.offer(0, ["good"])
    assert world.run(world.new_run_id()).error is None
    assert world.rollback(to_version, "leave-out").error is None
    assert (_find_lost(world) is None) == (to_version == 2)


def test_a_rollback_over_the_rebuilding_reports_the_lost_rows_again(make: Make) -> None:
    world = make("files")
    (day,) = _lose(world, 1)
    repaired = max(list_versions(world.paths.table))
    report = backfill_table(world.project, NAME, "again", Wanted(partitions=[day]), submit=world._submit)
    assert report["outcome"] == "published" and _find_lost(world) is None
    rebuilt = max(list_versions(world.paths.table))
    assert world.rollback(repaired, "leave-out").error is None
    assert _days(_find_lost(world)) == {day}
    assert world.rollback(rebuilt, "leave-out").error is None
    assert _find_lost(world) is None


def test_a_stale_acknowledgement_takes_no_later_loss_back(make: Make) -> None:
    """It was suspended before its write, while a repair noted another file."""
    world = make("files")
    _lose(world, 1)

    def acknowledge() -> Any:
        return acknowledge_changes(world.project, NAME, [], reason="known")

    process = Process("acknowledge")
    process.start(acknowledge, Stop("lost_rows"))
    assert process.state == "stopped"
    world.freeze(process)
    _lose(world, 1)
    lost = _find_lost(world)
    assert lost is not None and len(lost["files"]) == 2
    world.sleepers.remove(process)
    process.thaw(None)
    lost = _find_lost(world)
    assert lost is not None and len(lost["files"]) in (1, 2)


@pytest.mark.parametrize("shape", ["kafka", "files"])
@pytest.mark.parametrize("harm", [take_commit, tear_commit, take_compacted_commit, take_commit_of_quarantine])
def test_a_version_of_the_log_that_is_gone_is_left_behind_with_its_table(make: Make, shape: Shape, harm: Harm) -> None:
    world = make(shape)
    name = harm(world).name
    refused = world.run("idle").error
    assert isinstance(refused, DisagreementError) and refused.exit_code == 78
    assert name in refused.message
    code, value = _command("--project", str(world.root), "verify", NAME, "--json")
    assert code == 78 and any(name in one["path"] for table in value["tables"] for one in table["damaged"])
    fixes = [f"`{one}`" if one.startswith("tidegate") else one for one in [str(refused.fix), *value["fix"]]]
    assert ["repair", NAME, "--rebuild"] in _find_commands(fixes)
    with pytest.raises(DisagreementError) as stuck:
        repair_pipeline(world.project, NAME, dry_run=False)
    assert ["repair", NAME, "--rebuild"] in _find_commands([str(stuck.value.fix)])
    shown = repair_pipeline(world.project, NAME, dry_run=True, rebuild=True)
    assert "back up table and quarantine" in shown["actions"][0]
    code, reset = _command("--project", str(world.root), "reset", NAME, "--from-beginning", "--dry-run", "--json")
    assert code == 0 and "back up table and quarantine" in reset["actions"][0]
    repair_pipeline(world.project, NAME, dry_run=False, rebuild=True)
    world.disagrees = True
    world.settle("discard")
    assert verify_pipeline(world.project, NAME)["ok"]


@pytest.mark.parametrize("harm", [take_commit, tear_commit, take_compacted_commit, take_commit_of_quarantine])
def test_status_reports_a_damaged_log_and_all_else(make: Make, harm: Harm) -> None:
    world = make("files")
    name = harm(world).name
    world.offer(0, ["good"])
    for words, expected in (["--check"], 1), ([], 0):
        code, rows = _command("--project", str(world.root), "status", NAME, "--json", *words)
        assert code == expected
        (row,) = rows
        assert [name in error["message"] for error in row["errors"]] == [True]
        assert [one["kind"] for one in row["trouble"]] == ["refused"]
        version = 3 if harm is take_commit_of_quarantine else 2
        assert row["table"]["version"] == version and len(row["runs"]) == version + 1
        assert row["backlog"] and row["backlog_unknown"] is None and row["pending"]


@pytest.mark.parametrize("harm", [take_commit, tear_commit, take_compacted_commit])
def test_status_reports_a_damaged_log_and_what_waits_alone(new_world: Make, harm: Harm) -> None:
    world = new_world("files", on_critical="continue")
    for run_id, kinds in (("r1", ["good"]), ("r2", ["good"]), ("r3", ["poor", "poor"])):
        world.offer(0, kinds)
        world.run(run_id)
    name = harm(world).name
    world.offer(0, ["good"])
    for asked in (NAME, None):
        (row,) = project_status(world.project, asked)
        assert [name in error["message"] for error in row["errors"]] == [True]
        assert [one["run_id"] for one in row["waiting"]] == ["r3"]
        assert [one["kind"] for one in row["trouble"]] == ["held", "refused"]
        assert row["backlog"] and row["backlog_unknown"] is None and row["pending"]


@pytest.mark.parametrize("harm", [take_file, lengthen_file, take_commit, take_commit_of_quarantine])
def test_status_prints_each_error_once(make: Make, harm: Harm) -> None:
    world = make("files")
    harm(world)
    world.offer(0, ["good"])
    for _ in range(3):
        refused = world.run(world.new_run_id()).error
        assert isinstance(refused, DisagreementError)
    for words in [NAME], []:
        done = CliRunner().invoke(app, ["--project", str(world.root), "status", *words, "--check"])
        assert done.exit_code == 1
        assert f"{NAME}: would refuse: " in done.stderr
        assert (done.stdout + done.stderr).count(refused.message) == 1, done.output
        assert done.stdout.count("would refuse: ") == 1


@pytest.mark.parametrize("harm", [lengthen_file, take_commit])
def test_a_repair_that_is_killed_anywhere_is_completed_by_the_next_one(make: Make, harm: Harm) -> None:
    rebuild = harm is take_commit
    stopped = 0
    for stop in stops(7 if rebuild else 2, killed=True):
        world = make("files")
        harm(world)

        def command(world: World = world) -> Any:
            return repair_pipeline(world.project, NAME, dry_run=False, rebuild=rebuild)

        process = world._start("repair", command, stop)
        if process.state != "stopped":
            break
        stopped += 1
        world.kill(process)
        again = world._start("repair", command, None)
        assert again.error is None
        world.disagrees = True
        if not rebuild:
            assert not any(_look(world).values())
            assert len(_days(_find_lost(world))) == 1
            assert world.refresh("again").error is None
            assert _find_lost(world) is None
        world.settle("discard")
        assert verify_pipeline(world.project, NAME)["ok"]
    assert stopped > 3
