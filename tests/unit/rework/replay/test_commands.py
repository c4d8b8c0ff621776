"""The commands of quarantine, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.held import NAME
from tests.support.outputs import check_output
from tests.unit.rework.replay.quarantined import Quarantined, at_work, text
from tidegate.cli.commands import app
from tidegate.core.errors import DefectError, HeldError, TidegateError, UsageError
from tidegate.rework.replay.choose import check_pipeline
from tidegate.runs.preflight.gather import gather_facts
from tidegate.state.manifest import manifest_from_json, write_manifest
from tidegate.table.quarantine.filters import parse_where

BAD = "{torn"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Quarantined]:
    made = Quarantined(tmp_path / "project")
    with at_work(made):
        made.bring("R1", [1], [(BAD, "malformed"), (text(7, 7), "malformed"), (text(9, -9), "positive")])
        yield made


def ask(made: Quarantined, *command: str) -> Result:
    return CliRunner().invoke(app, ["--project", str(made.root), "quarantine", *command])


def refused(done: Result) -> TidegateError:
    assert isinstance(done.exception, TidegateError)
    return done.exception


def test_from_an_export_to_a_replay_of_what_was_edited(made: Quarantined, tmp_path: Path) -> None:
    shown = check_output("quarantine-show", ask(made, "show", NAME, "--reason", "malformed", "--json").stdout)
    target = tmp_path / "records.jsonl"
    done = ask(made, "export", NAME, "--reason", "malformed", "--to", str(target))
    assert (done.stdout, done.stderr) == ("", f"exported 2 records to {target}\n")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(one["id"] for one in shown)
    again = ask(made, "export", NAME, "--to", str(target))
    assert (refused(again).code, refused(again).exit_code) == ("EXPORT_PLACE", 64)
    edited = [{**line, "raw": text(8, 8)} for line in lines if line["raw"] == BAD]
    target.write_text("".join(json.dumps(line) + "\n" for line in edited))
    plan = check_output(
        "quarantine-replay", ask(made, "replay", NAME, "--file", str(target), "--dry-run", "--json").stdout
    )
    assert (plan["records"], plan["edited"], plan["stay"]) == (1, 1, [])
    report = check_output("report", ask(made, "replay", NAME, "--file", str(target), "--as", "mine", "--json").stdout)
    assert (report["mode"], report["run_id"], report["rows"]["published"]) == ("replay", "mine", 1)
    gone = ask(made, "replay", NAME, "--file", str(target))
    assert (refused(gone).code, refused(gone).exit_code) == ("REPLAY_FILE", 64)
    assert made.rows() == [1, 8]
    everything = ask(made, "export", NAME)
    assert len(everything.stdout.splitlines()) == 2 and everything.stderr == "exported 2 records\n"


@pytest.mark.parametrize("command", ["list", "show", "export", "replay"])
def test_a_reason_that_is_none(made: Quarantined, command: str) -> None:
    done = ask(made, command, NAME, "--reason", "malformd")
    assert refused(done).code == "QUARANTINE_UNKNOWN" and "did you mean malformed?" in str(refused(done))
    done = ask(made, command, NAME, "--rule", "god")
    assert refused(done).code == "QUARANTINE_UNKNOWN" and "did you mean good?" in str(refused(done))
    done = ask(made, command, NAME, "--where", "sorce=x")
    assert refused(done).code == "QUARANTINE_WHERE" and "did you mean source?" in str(refused(done))
    if command != "replay":
        assert ask(made, command, NAME, "--reason", "late").exit_code == 0


@pytest.mark.parametrize("command", ["list", "show", "export", "replay"])
def test_a_run_that_is_none(made: Quarantined, command: str) -> None:
    done = ask(made, command, NAME, "--run-id", "R11")
    assert (refused(done).code, refused(done).exit_code) == ("QUARANTINE_UNKNOWN", 64)
    assert "no record in quarantine has the run id R11" in str(refused(done))
    assert ask(made, command, NAME, "--run-id", "R1", "--reason", "late").exit_code == 0
    made.bring("R2", [5], [])
    assert ask(made, command, NAME, "--run-id", "R2").exit_code == 0, "it has quarantined nothing"


def test_a_run_id_that_met_no_record_is_told_from_the_name_of_the_replay(made: Quarantined) -> None:
    made.bring("R2", [5], [])
    report = json.loads(ask(made, "replay", NAME, "--run-id", "R2", "--json").stdout)
    assert report["outcome"] == "nothing_new"
    assert "--run-id chooses records by the run that quarantined them; --as names this replay" in report["notes"]


def test_arguments_that_do_not_go_together(made: Quarantined, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("")
    done = ask(made, "replay", NAME, "--file", str(file), "--reason", "malformed", "--where", "raw~x")
    assert refused(done).code == "BAD_OPTIONS" and "--reason, --where" in refused(done).message
    empty = ask(made, "replay", NAME, "--file", str(file))
    assert empty.exit_code == 0 and "nothing to replay" in empty.output
    done = ask(made, "replay", NAME, "--reason", "late")
    assert done.exit_code == 0 and "nothing to replay" in done.output


def test_a_dry_run_says_what_is_in_the_way(made: Quarantined) -> None:
    made.root.joinpath("jobs", NAME, "pipeline.yaml").write_text(
        made.root.joinpath("jobs", NAME, "pipeline.yaml").read_text().replace("orders: {type", "others: {type")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.rework.replay.command.check_agreement", lambda *a: None)
        done = ask(made, "replay", NAME, "--dry-run")
    assert done.exit_code == 64
    assert "3 records would stay: the pipeline has no source orders any more" in done.output
    assert "cannot be done: REPLAY_REFUSED: none of the 3 records" in done.output


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_rows_that_replace_one_another(made: Quarantined, mode: str) -> None:
    from tidegate.spec.pipeline import load_pipeline

    spec = load_pipeline(made.project, NAME).replace(output_mode=mode)
    with pytest.raises(UsageError, match=f"REPLAY_NOT_APPEND: .* output_mode {mode}"):
        check_pipeline(gather_facts(made.paths, spec), spec)


def test_records_that_spark_did_not_read_fail_the_replay(made: Quarantined) -> None:
    drive = made.drive

    def lose_one(context: Any, *more: Any) -> None:
        drive(context, *more)
        [path] = context.paths.manifests.rglob("*.json")
        manifest = manifest_from_json(path.read_bytes())
        taken = manifest.sources["orders"]
        path.unlink()
        write_manifest(path, replace(manifest, sources={"orders": replace(taken, rows=taken.rows - 1)}))

    made.drive = lose_one  # type: ignore[method-assign]
    before = made.aside()
    with pytest.raises(DefectError, match=r"REPLAY_OTHER_RECORDS: 3 records .*, but 2 were read"):
        made.replay()
    assert made.aside() == before and made.rows() == [1]


def test_records_of_a_held_run_wait_for_the_decision(made: Quarantined) -> None:
    """Where they are in quarantine before it: `reread` would read them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.quality.pandas_engine.judge_files", _fail)
        with pytest.raises(HeldError):
            made.bring("R2", [5], [(text(6, 6), "malformed")])
    if made.aside()[text(6, 6)]:
        with pytest.raises(UsageError, match=r"REPLAY_REFUSED: .*their run is not over"):
            made.replay("early", where=parse_where([f"raw={text(6, 6)}"]))
    assert made.rows() == [1]


def _fail(suite: Any, files: object, types: object) -> list[Any]:
    from tidegate.quality.engine import RuleResult

    return [RuleResult(rule.rule, rule.type, rule.severity, False, 1) for rule in suite.rules]
