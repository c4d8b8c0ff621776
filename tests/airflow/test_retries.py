"""What a task raises where Airflow has a policy for retries (from 3.3 on), and where it has none."""

from __future__ import annotations

import errno
import logging

import pytest

from tidegate.airflow import retries
from tidegate.airflow.task import explain_errors
from tidegate.core.errors import HeldError, TryAgainError, UsageError


@pytest.mark.parametrize("error", [HeldError("HELD", "x"), UsageError("BAD_SPEC", "x", fix="do this")])
def test_what_needs_a_person_is_final_without_a_policy_too(
    error: UsageError | HeldError, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    monkeypatch.setattr(retries, "RETRY_POLICY", None)
    final = retries.as_final(error)
    assert isinstance(final, AirflowFailException) and str(final) == str(error)
    assert "retry_policy" not in retries.retry_arguments()
    passing = TryAgainError("BUSY", "x")
    assert retries.as_final(passing) is passing, "it may work later"
    monkeypatch.setattr(retries, "RETRY_POLICY", object())
    assert retries.as_final(error) is error
    assert retries.retry_arguments()["retry_policy"] is retries.RETRY_POLICY


def test_an_error_of_the_file_system_is_named_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    error = OSError(errno.ESTALE, "Stale file handle", "/srv/state/orders/lease")
    error.__cause__ = error
    log = logging.getLogger("task")
    with pytest.raises(TryAgainError, match="STORAGE_FAILED"), explain_errors(log, "/srv"):
        raise error
    assert "the file system that holds /srv/state/orders/lease failed: Stale file handle (ESTALE)" in caplog.text
