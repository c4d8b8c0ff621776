"""Which errors of a task Airflow tries again, and how soon: those that may pass, and not those that need a person.

From Airflow 3.3 on a task has a policy that looks at the error's type. Before, an error that must not be tried again is
raised as Airflow's own ``AirflowFailException``, with the same text. Airflow 3.1 takes no factor by which the delay
grows, only a switch, which doubles it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

from tidegate.core.errors import TidegateError, TryAgainError

RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)
LONGEST_RETRY_DELAY = timedelta(minutes=10)
TURN = timedelta(seconds=15)
"""How long a task that waits for its turn is put off."""

try:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError:
    RETRY_POLICY: Any = None
else:
    # The type of the error decides: busy, away or killed is tried again, what needs a person is not. Errors that are
    # not ours (a metadata database that is away) fall to Airflow's own rule, which is to try again.
    RETRY_POLICY = ExceptionRetryPolicy(
        rules=[
            RetryRule(exception=TryAgainError, action=RetryAction.RETRY, reason="may work later; nothing is lost"),
            RetryRule(
                exception=TidegateError, action=RetryAction.FAIL, reason="needs a person; a retry would not help"
            ),
        ]
    )


def retry_arguments() -> dict[str, object]:
    """The arguments of every task that say how it is tried again."""
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
    """The error as a task raises it, so that Airflow tries again only what may pass."""
    if RETRY_POLICY is not None or error.retry:
        return error
    from airflow.providers.common.compat.sdk import AirflowFailException

    return AirflowFailException(str(error))


def as_turn() -> Exception:
    """What puts a task off for a moment, without a slot and without a retry."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    return AirflowRescheduleException(datetime.now(UTC) + TURN)
