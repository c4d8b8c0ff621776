"""What the pages and the logs of tasks say is to be done: steps of Airflow, for the texts of every error."""

from __future__ import annotations

import html
import logging
import re
from string import Formatter

import pytest

from tidegate.airflow.next_steps import for_airflow, reword
from tidegate.airflow.task import explain_errors
from tidegate.airflow.ui.render import environment
from tidegate.runs.opening import describe_for_side_job
from tools.docs.errors import list_conditions

_OF_A_TERMINAL = re.compile(r"same command|\brun (?:it )?again|(?<!in a terminal: `)tidegate run \w")

_ONE_ERROR = '{% import "parts.html" as parts %}{{ parts.error(error) }}'


def _fill(text: str) -> str:
    """The text with a word for each value."""
    return text.format(**{name: 1 if spec else "orders" for _, name, spec, _ in Formatter().parse(text) if name})


@pytest.mark.parametrize("name", list_conditions())
def test_no_error_has_a_person_in_airflow_repeat_a_command(name: str, caplog: pytest.LogCaptureFixture) -> None:
    condition = list_conditions()[name]
    error = condition.kind(
        name, "it failed", where="here", next_run=_fill(condition.next_run), fix=_fill(condition.fix)
    )
    on_the_page = html.unescape(environment().from_string(_ONE_ERROR).render(error=error.to_dict()))
    with pytest.raises(Exception, match="it failed"), explain_errors(logging.getLogger("task"), "/nowhere"):
        raise error
    for text in (on_the_page, caplog.text, str(reword(error))):
        assert "it failed" in text and not _OF_A_TERMINAL.search(text), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("free space (df -h /x), then run again", "free space (df -h /x), then clear the task or trigger the DAG"),
        ("tidegate run a", "clear the task or trigger the DAG (in a terminal: `tidegate run a`)"),
        (
            "start the broker again, then `tidegate run a`: no",
            "start the broker again, then clear the task or trigger the DAG (in a terminal: `tidegate run a`): no",
        ),
        ("run `tidegate run a` again; or", "clear the task or trigger the DAG (in a terminal: `tidegate run a`); or"),
        ("`tidegate run a` finishes it", "the next DAG run (in a terminal: `tidegate run a`) finishes it"),
        (
            'tidegate run a --accept-loss "reason"',
            'trigger the DAG with the field Accept a loss (in a terminal: `tidegate run a --accept-loss "reason"`)',
        ),
        (
            "correct it, then run the same command again with --run-id 'b 1'; or not",
            "correct it, then clear the task (in a terminal: the command with --run-id 'b 1'); or not",
        ),
        ("the same command starts the rest", "the cleared task starts the rest"),
        (
            'tidegate release a r1 --reason "..."   or   tidegate discard a r1 --reason "..."',
            "Decide on the pipeline's page; in a terminal: "
            'tidegate release a r1 --reason "..."   or   tidegate discard a r1 --reason "..."',
        ),
        (
            "revert it; or `tidegate refresh a` rebuilds it",
            "revert it; or `tidegate refresh a` rebuilds it; in Airflow: Refresh on the pipeline's page",
        ),
        ("`tidegate backfill a --run-id b1` resumes it", "`tidegate backfill a --run-id b1` resumes it"),
        ("tidegate repair a --dry-run shows the choices", "tidegate repair a --dry-run shows the choices"),
        (
            "--from 2026-01-01 --to 2026-01-31; or --partition COLUMN=VALUE",
            "Backfill on the pipeline's page; in a terminal: --from 2026-01-01 --to 2026-01-31; or --partition "
            "COLUMN=VALUE",
        ),
        (
            "tidegate status a shows what is held",
            "the pipeline's page (in a terminal: `tidegate status a`) shows what is held",
        ),
        (
            "name them as `tidegate status a` does",
            "name them as the pipeline's page (in a terminal: `tidegate status a`) does",
        ),
        ("install `kubernetes`", "install `kubernetes`"),
    ],
)
def test_the_step_in_airflow_comes_before_the_command(text: str, expected: str) -> None:
    assert for_airflow(text) == expected == for_airflow(expected)


def test_an_error_of_a_side_job_names_its_task() -> None:
    error = list_conditions()["DISK_FULL"](path="/x", parent="/")
    describe_for_side_job(error, "backfill", "orders", "b1")
    said = str(reword(error))
    assert "clear the task (in a terminal: the command with --run-id b1)" in said
    assert "the cleared task starts the failed part again" in said and not _OF_A_TERMINAL.search(said)
