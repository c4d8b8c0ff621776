"""The trigger form: what it offers, and what the task refuses however it was sent."""

from __future__ import annotations

import jsonschema
import pytest

from tidegate.airflow.form import ACCEPT_LOSS_MAX_LENGTH, describe_form, read_form
from tidegate.errors import UsageError


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
