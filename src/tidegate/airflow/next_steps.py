"""What to do next, in the words of Airflow: the texts of errors and notes are written for a terminal."""

from __future__ import annotations

import re

from tidegate.core.errors import TidegateError

ACTS = {"run": "Run now", "backfill": "Backfill", "refresh": "Refresh", "replay": "Replay quarantine", "pause": "Pause"}
"""The button of each action on the page of a pipeline."""

_BUTTONS = {
    "Decide": re.compile(r"\btidegate (?:release|discard|reread) "),
    ACTS["backfill"]: re.compile(r"\btidegate backfill (?![^`]*--run-id)|^--from "),
    ACTS["refresh"]: re.compile(r"\btidegate refresh (?![^`]*--run-id)"),
    ACTS["replay"]: re.compile(r"\btidegate quarantine replay (?![^`]*--(?:file|as)\b)"),
}
"""The commands that a button replaces; a button starts a new run, so it replaces none that continues another."""
_ON_THE_PAGE = "on the pipeline's page"
_IN_A_TERMINAL = "in a terminal: "
_LOSS = r' --accept-loss "[^"]*"'
_RUN = re.compile(
    rf"(?:\brun )?(?<!{_IN_A_TERMINAL})(?:`(?P<quoted>tidegate run \w+(?:{_LOSS})?)`"
    rf"|(?<!`)\b(?P<bare>tidegate run \w+(?:{_LOSS})?))(?: again)?(?P<verb> [a-z]{{3,}}s\b)?"
)
_OPTION = r"(?: with (?P<option>--[a-z-]+ (?:'[^']*'|[^\s;,`']+)))?"
_AGAIN = re.compile(rf"\brun (?:the same command |it )?again\b{_OPTION}")
_STATUS = re.compile(
    rf"(?<!{_IN_A_TERMINAL})(?<!{_IN_A_TERMINAL}`)(?P<quote>`?)\b(?P<command>tidegate status \w+)(?P=quote)"
)
_SAME_COMMAND = re.compile(rf"\bthe same command\b{_OPTION}")


def reword(error: TidegateError) -> TidegateError:
    """Reword what an error says of the next step, for a task's log; returns the error."""
    error.next_run, error.fix = for_airflow(error.next_run or ""), for_airflow(error.fix or "")
    return error


def for_airflow(text: str) -> str:
    """Reword a next step: it names the task, the DAG or a button, and a command only as the alternative.

    A text that is reworded already stays as it is, as does one that names no command to repeat.
    """
    text = _RUN.sub(_reword_run, text)
    text = _AGAIN.sub(lambda found: _with_option(found, "clear the task", " or trigger the DAG"), text)
    text = _SAME_COMMAND.sub(lambda found: _with_option(found, "the cleared task"), text)
    text = _STATUS.sub(rf"the pipeline's page ({_IN_A_TERMINAL}`\g<command>`)", text)
    buttons = [button for button, command in _BUTTONS.items() if command.search(text)]
    if not buttons or _ON_THE_PAGE in text:
        return text
    step = f"{' or '.join(buttons)} {_ON_THE_PAGE}"
    is_command = text.startswith(("tidegate ", "--from "))
    return f"{step}; {_IN_A_TERMINAL}{text}" if is_command else f"{text}; in Airflow: {step}"


def _reword_run(found: re.Match[str]) -> str:
    command, verb = found["quoted"] or found["bare"], found["verb"] or ""
    field = " with the field Accept a loss" if "--accept-loss" in command else ""
    if verb:
        step = f"the next DAG run{field}"
    else:
        step = f"trigger the DAG{field}" if field else "clear the task or trigger the DAG"
    return f"{step} ({_IN_A_TERMINAL}`{command}`){verb}"


def _with_option(found: re.Match[str], step: str, otherwise: str = "") -> str:
    """The step. An option continues a run of that id, so nothing is to be done ``otherwise`` than by its task."""
    option = found["option"]
    return f"{step}{otherwise}" if option is None else f"{step} ({_IN_A_TERMINAL}the command with {option})"
