"""The conditions of Airflow."""

from __future__ import annotations

from tidegate.core.errors import Condition, TryAgainError, UsageError

CONNECTION_INVALID = Condition(
    "CONNECTION_INVALID",
    UsageError,
    "connection {conn_id!r} {fault}",
    next_run="fails again until the connection is corrected",
    fix="airflow connections delete {conn_id}; airflow connections add {conn_id} {arguments}",
)

TRIGGER_FORM_REFUSED = Condition(
    "TRIGGER_FORM_REFUSED",
    UsageError,
    "the conf of this run cannot be used: {fault}",
    next_run="is not affected; nothing was read",
    fix="{fix}",
)

ACTION_OF_OTHER_SITE = Condition(
    "ACTION_OF_OTHER_SITE",
    UsageError,
    "the request did not come from these pages: the browser reports another site as its origin, or no origin",
    next_run="is not affected; nothing was done",
    fix="use the pages in Airflow; a program sends its token as `Authorization: Bearer ...`",
)

ACTION_REFUSED = Condition(
    "ACTION_REFUSED",
    UsageError,
    "the request cannot be used: {fault}",
    next_run="is not affected; nothing was done",
    fix="open the page of the pipeline again, and use its form",
)

ACTION_TOO_SOON = Condition(
    "ACTION_TOO_SOON",
    TryAgainError,
    "run {run_id} is running in Airflow, and is not asking for a decision now: {state}",
    next_run="is not affected; nothing was decided",
    fix="look again in a minute: if the run then waits for a decision, give it in the run's Required Action; if the "
    "run has ended, another run carries your decision out",
)

DECISION_UNDER_WAY = Condition(
    "DECISION_UNDER_WAY",
    UsageError,
    "a decision is in progress: run {decider} is queued or running in Airflow to {decision} it",
    next_run="is not affected; your decision was not accepted",
    fix="check again when run {decider} has ended (in a paused DAG it starts once the DAG is unpaused); to make "
    "another decision, mark that run as failed in Airflow before it begins",
)

AIRFLOW_REFUSED = Condition(
    "AIRFLOW_REFUSED",
    UsageError,
    "Airflow does not {what} (HTTP {status}): {said}",
    next_run="is not affected; nothing was done",
    fix="follow the message of Airflow above; permissions are granted by the administrator of this Airflow",
)

SPARK_KUBERNETES_MISSING = Condition(
    "SPARK_KUBERNETES_MISSING",
    UsageError,
    "connection {conn_id!r} is for {master}, and Airflow's Spark provider needs the Python package `kubernetes` for "
    "that",
    next_run="fails again until this is fixed",
    fix="install `kubernetes` in Airflow's environment (apache-airflow-providers-apache-spark[cncf.kubernetes])",
)

SPARK_BINARY_MISSING = Condition(
    "SPARK_SUBMIT_MISSING",
    UsageError,
    "{binary}, which connection {conn_id!r} asks for, is not on PATH",
    next_run="fails again until this is fixed; nothing was read",
    fix="remove spark-binary from the connection's extra, or install it",
)

TASK_KILLED = Condition(
    "KILLED",
    TryAgainError,
    "the task was stopped (SIGTERM){driver}",
    next_run="continues the work that this run has begun; nothing is lost or duplicated",
    fix="clear the task, or wait for the next scheduled run",
)

PROJECT_NOT_FOUND = Condition(
    "PROJECT_NOT_FOUND",
    UsageError,
    "no {project_file} at or above {parent}, and TIDEGATE_PROJECT is not set",
    next_run="fails again until this is fixed; nothing was read",
    fix="put the DAG file into a project, or set TIDEGATE_PROJECT, or build_dag(name, project_dir=...)",
)

DECISION_FORM_REFUSED = Condition(
    "DECISION_FORM_REFUSED",
    UsageError,
    "the answer is refused: {fault}",
    next_run="is not affected; nothing was decided, and Airflow asks again",
    fix="answer the Required Action with one of its choices and a reason in one line",
)
