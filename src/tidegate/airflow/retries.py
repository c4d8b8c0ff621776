"""Which errors of a task Airflow retries, and how soon: temporary ones, and not those that need a person.

From Airflow 3.3 a task has a retry policy by type of error. Before, an error that must not be retried is raised as
Airflow's ``AirflowFailException``, with the same text. Airflow 3.1 has no factor for the exponential backoff, only a
switch, which doubles the delay.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from tidegate.core.errors import TidegateError, TryAgainError

RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)
LONGEST_RETRY_DELAY = timedelta(minutes=10)
TURN = timedelta(seconds=15)
"""After how long a task that waits for the lease is rescheduled."""

try:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError:
    RETRY_POLICY: object = None
else:
    # Errors that are not ours (an unreachable metadata database) fall to Airflow's default, which is to retry.
    RETRY_POLICY = ExceptionRetryPolicy(
        rules=[
            RetryRule(exception=TryAgainError, action=RetryAction.RETRY, reason="may work later; nothing is lost"),
            RetryRule(
                exception=TidegateError, action=RetryAction.FAIL, reason="needs a person; a retry would not help"
            ),
        ]
    )


def retry_arguments() -> dict[str, object]:
    """The arguments of every task about its retries."""
    grows: float | bool = version("apache-airflow-task-sdk").startswith("1.1.") or 2.0
    policy = {} if RETRY_POLICY is None else {"retry_policy": RETRY_POLICY}
    return {
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
        "retry_exponential_backoff": grows,
        "max_retry_delay": LONGEST_RETRY_DELAY,
        **policy,
    }


def as_final(error: TidegateError) -> Exception:
    """The error as a task raises it, so that Airflow retries only temporary errors."""
    if RETRY_POLICY is not None or error.retry:
        return error
    from airflow.providers.common.compat.sdk import AirflowFailException

    return AirflowFailException(str(error))


def as_turn() -> Exception:
    """The exception that reschedules a task, which takes no slot and costs no retry."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    return AirflowRescheduleException(datetime.now(UTC) + TURN)
