"""``plan`` and ``status`` where something cannot be told: what is unknown is said to be, with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import app
from tidegate.sources.kafka import brokers


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Kafka pipeline whose broker is away, and one whose spec is bad."""
    monkeypatch.setattr(brokers, "_PATIENCE_SECONDS", 0.2)
    (tmp_path / "tidegate.yaml").write_text('version: 1\nkafka: {bootstrap_servers: "127.0.0.1:9"}\n')
    for name, source in (("clicks", "{type: kafka, topics: [t], format: text}"), ("misspelt", "{tipe: kafka}")):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        (tmp_path / "jobs" / name / "pipeline.yaml").write_text(
            f"version: 1\nname: {name}\nschedule: null\nsources:\n  s: {source}\n"
        )
    return tmp_path


def ask(root: Path, *command: str, expect: int = 0) -> str:
    done = CliRunner().invoke(app, ["--project", str(root), *command])
    assert done.exit_code == expect, done
    return done.stdout


def test_a_backlog_that_cannot_be_told(root: Path) -> None:
    clicks, misspelt = json.loads(ask(root, "status", "--json"))
    codes = {"clicks": "BROKER_AWAY", "misspelt": "BAD_SPEC"}
    shown = ask(root, "status")
    for row in (clicks, misspelt):
        error = row["backlog_unknown"]
        assert row["backlog"] is None and error["code"] == codes[row["pipeline"]] and error["fix"]
        assert row["errors"] == [error]
        # How often the client library tried within its time is another figure in each command.
        said = f"{error['code']}: {error['message']}".partition("\n")[0].partition(" within ")[0]
        assert shown.count(said) == 1, "the reason is said once"
    *heads, summary = [line for line in shown.splitlines() if not line.startswith(" ")]
    assert heads == [f"{name}: no table yet, backlog: unknown ({code})" for name, code in codes.items()]
    assert summary == "2 pipelines: 2 cannot be read"


def test_the_lines_of_a_nested_error_stand_under_it(root: Path) -> None:
    head, first, *more = ask(root, "plan", "clicks", expect=75).splitlines()
    assert (head, first.partition(": no")[0]) == ("clicks: the next run would refuse", "  would refuse: BROKER_AWAY")
    assert [line.partition(": ")[0] for line in more] == ["    where", "    next run", "    fix"]
    assert "same command again" in more[-1]
