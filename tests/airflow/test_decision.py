"""What a person answers to a Required Action is text from outside: known choices, one printable line, bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.airflow import decision
from tidegate.airflow.decision import describe, in_turn, name_responder, read_answer
from tidegate.core.errors import HeldError, TryAgainError, UsageError


def make_event(option: str = "Release", reason: object = "looked at it", **more: Any) -> dict[str, Any]:
    user = {"id": "7", "name": "ada"}
    return {"chosen_options": [option], "params_input": {"reason": reason}, "responded_by_user": user, **more}


def test_an_answer() -> None:
    answer = read_answer(make_event(reason="  $(rm -rf /) is only text "))
    assert (answer.decision, answer.reason, answer.who) == ("release", "$(rm -rf /) is only text", "ada (Airflow)")
    assert read_answer(make_event("Read again")).decision == "reread"
    assert read_answer(make_event(reason={"value": "from a field"})).reason == "from a field"


@pytest.mark.parametrize("reason", [None, "", "   ", "...", "two\nlines", "bell\x07", "x" * 501, 7, ["a"], "a\u2028b"])
def test_a_reason_that_is_refused(reason: object) -> None:
    with pytest.raises(UsageError) as error:
        read_answer(make_event(reason=reason))
    assert error.value.code == "DECISION_FORM_REFUSED" and "xxx" not in str(error.value)


@pytest.mark.parametrize("chosen", [[], ["release"], ["Release", "Discard"], ["rm -rf"], None])
def test_a_choice_that_is_refused(chosen: object) -> None:
    with pytest.raises(UsageError, match="not one of the choices"):
        read_answer(make_event(chosen_options=chosen))


def test_who_it_was() -> None:
    assert name_responder({"id": "7", "name": ""}) == "7 (Airflow)"
    assert name_responder(SimpleNamespace(id="7", name="ada")) == "ada (Airflow)"
    assert name_responder(None) == "unknown (Airflow)"
    assert name_responder({"name": "a\nb"}) == "'a\\nb' (Airflow)"
    assert len(name_responder({"name": "x" * 9999})) < 250


def test_data_in_the_text_is_shown_as_it_is() -> None:
    held = HeldError("INCREMENT_HELD", "good: <script>\n[x](javascript:1)", where="", next_run="", fix="")
    text = describe(held, ["Release", "Discard", "Read again"])
    assert "    good: <script>\n    [x](javascript:1)\n" in text and "Later runs of this DAG wait" in text


def test_an_answer_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "_TRY_EVERY_SECONDS", 0.01)
    tries, told = [], []

    def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TryAgainError("LEASE_HELD", "busy")
        return "done"

    assert in_turn(work, told.append) == "done" and len(told) == 1
    with pytest.raises(TryAgainError, match="BROKER_AWAY"):
        in_turn(lambda: (_ for _ in ()).throw(TryAgainError("BROKER_AWAY", "away")), told.append)
