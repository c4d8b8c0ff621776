"""The trigger form: what it offers, and what the task refuses however it was sent."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tidegate.airflow.form import (
    ACCEPT_LOSS_MAX_LENGTH,
    KNOWN_KEYS,
    AskedDecision,
    AskedReplay,
    TriggerForm,
    describe_form,
    read_form,
)
from tidegate.core.errors import UsageError

_DAYS = ["backfill_from", "backfill_to"]


def test_nothing_said_is_nothing_accepted() -> None:
    assert read_form({"accept_loss": None}, None).accept_loss is None
    assert read_form({"accept_loss": None}, {}).accept_loss is None
    assert read_form({}, {"accept_loss": None}).accept_loss is None


def test_a_reason_is_kept_as_written() -> None:
    reason = "topic re-created by ops on 3 May; agreed with Zoë (#4711), 100% sure"
    assert read_form({"accept_loss": f"  {reason} "}, {"accept_loss": reason}).accept_loss == reason


@pytest.mark.parametrize(
    "value",
    [
        "",
        "   ",
        "two\nlines",
        "tab\there",
        "nul\x00",
        "escape \x1b[2J",
        "right-to-left \u202e override",
        "zero\u200bwidth",
        "line\u2028separator",
        "\ud800",
        "x" * (ACCEPT_LOSS_MAX_LENGTH + 1),
        7,
        True,
        ["a reason"],
        {"reason": "x"},
    ],
)
def test_hostile_reasons_are_refused(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        read_form({"accept_loss": value}, {"accept_loss": value})
    assert caught.value.code == "TRIGGER_FORM_REFUSED"
    assert not caught.value.retry
    assert "two" not in str(caught.value) and "\x1b" not in str(caught.value), "the value must not be repeated"


@pytest.mark.parametrize(
    "key", ["project", "run_id", "conn_id", "application", "../../x", "{{ 1 }}", "k" * 10_000, "\x1b[2J"]
)
def test_unknown_keys_are_refused(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_form({"accept_loss": None, key: "x"}, {key: "x"})
    text = str(caught.value)
    assert caught.value.code == "TRIGGER_FORM_REFUSED"
    assert len(text) < 1000 and "\x1b" not in text


def test_shell_and_sql_text_stays_text() -> None:
    for text in (
        "$(touch /tmp/x); `id` && rm -rf /",
        "'); DROP TABLE orders; --",
        "../../../etc/passwd",
        "{{ conn.x }}",
    ):
        assert read_form({"accept_loss": text}, {"accept_loss": text}).accept_loss == text


def test_the_form_says_the_same_as_the_task() -> None:
    field = describe_form()["accept_loss"]
    schema = {key: field[key] for key in ("type", "minLength", "maxLength", "pattern")}
    for good in (None, "a reason", "x" * ACCEPT_LOSS_MAX_LENGTH):
        jsonschema.validate(good, schema)
    for bad in ("", "two\nlines", "x" * (ACCEPT_LOSS_MAX_LENGTH + 1), 7, ["x"]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"refresh": "all"}, {"refresh": "all"}),
        ({"refresh": "keep-older"}, {"refresh": "keep-older"}),
        ({"replay": "all"}, {"replay": AskedReplay()}),
        ({"replay": "selected", "replay_reason": " malformed "}, {"replay": AskedReplay("malformed")}),
        ({"replay": "selected", "replay_run_id": "R1"}, {"replay": AskedReplay(run_id="R1")}),
        (
            {"decide": "discard", "decide_run_id": "R1", "decide_reason": "a test feed"},
            {"decision": AskedDecision("discard", "R1", "a test feed")},
        ),
    ],
)
def test_work_beside_the_runs(given: dict[str, object], form: dict[str, object]) -> None:
    assert read_form(given, given) == TriggerForm(**form)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is for a single run"):
        read_form(given, given, of_backfill=True)
    for key, value in given.items():
        field = describe_form()[key]
        jsonschema.validate(value, {one: field[one] for one in field if one not in ("default", "title", "section")})


@pytest.mark.parametrize(
    "given",
    [
        {"refresh": "ALL"},
        {"refresh": True},
        {"replay": "some"},
        {"replay": "selected"},
        {"replay": "all", "replay_reason": "malformed"},
        {"replay_run_id": "R1"},
        {"replay": "selected", "replay_reason": "two\nlines"},
        {"replay": "selected", "replay_run_id": "x" * 251},
        {"decide": "release"},
        {"decide": "release", "decide_run_id": "R1"},
        {"decide": "release", "decide_run_id": "R1", "decide_reason": "..."},
        {"decide": "publish", "decide_run_id": "R1", "decide_reason": "why"},
        {"decide_reason": "why"},
        {"decide": ["release"], "decide_run_id": "R1", "decide_reason": "why"},
        {"refresh": "all", "replay": "all"},
        {"refresh": "all", "accept_loss": "gone"},
        {"replay": "all", "backfill_from": "2026-01-01", "backfill_to": "2026-01-01"},
    ],
)
def test_work_beside_the_runs_that_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        read_form(given, given)
    assert refused.value.code == "TRIGGER_FORM_REFUSED" and "two" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "keys", "fields"),
    [
        ({"accept_loss": " "}, ["accept_loss"], "Accept a loss"),
        ({"backfill_from": "2026-05-03"}, ["backfill_from", "backfill_to"], "Backfill from, Backfill to"),
        (
            {"backfill_from": "2026-05-03", "backfill_to": "2026-05-01"},
            ["backfill_from", "backfill_to"],
            "Backfill from",
        ),
        ({"backfill_from": "2026-02-30", "backfill_to": "2026-03-01"}, ["backfill_from", "backfill_to"], "Backfill to"),
        ({"backfil_from": "2026-05-03"}, ["backfill_from", "backfill_to"], "Backfill from"),
        ({"refresh": "ALL"}, ["refresh"], "Refresh"),
        ({"replay": "selected"}, ["replay", "replay_reason", "replay_run_id"], "Replay: reason, Replay: run"),
        ({"replay_run_id": "R1"}, ["replay", "replay_reason", "replay_run_id"], "Replay: run"),
        ({"decide": "release"}, ["decide", "decide_run_id", "decide_reason"], "Decide, Decide: run, Decide: reason"),
        ({"decide_of": "m"}, ["decide", "decide_run_id", "decide_reason"], "Decide"),
    ],
)
def test_the_fix_is_the_job_that_was_asked_for(given: dict[str, object], keys: list[str], fields: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_form(given, given)
    fix = str(refused.value.fix)
    found = json.loads(fix[fix.index("{") : fix.index("}") + 1])
    assert list(found) == keys and fields in fix, fix


def test_jobs_that_were_mixed_are_named_one_by_one() -> None:
    given = {"refresh": "all", "backfill_from": "2026-05-01", "backfill_to": "2026-05-02"}
    with pytest.raises(UsageError) as refused:
        read_form(given, given)
    fix = str(refused.value.fix)
    assert '{"refresh": ' in fix and '{"backfill_from": ' in fix and "for each" in fix and "accept_loss" not in fix


def test_an_unknown_key_like_no_other_is_answered_by_those_that_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        read_form({}, {"zzz": 1})
    assert "accept_loss, backfill_from, backfill_to" in str(refused.value.fix)
    assert "decide_of" not in str(refused.value.fix)


def test_every_field_of_the_form_belongs_to_a_job() -> None:
    assert tuple(describe_form()) == KNOWN_KEYS
