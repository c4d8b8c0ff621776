"""The conditions of the state folder."""

from __future__ import annotations

from tidegate.core.errors import (
    UNTIL_FIXED,
    Condition,
    DisagreementError,
    TryAgainError,
)

_LEASE_FREE = (
    "starts as soon as the lease is free; if the process that holds it died, the lease is taken over automatically"
)

LEASE_HELD = Condition(
    "LEASE_HELD",
    TryAgainError,
    "the lease of pipeline {pipeline} is held by {holder}, since {since}; it expires in {seconds:.0f} s unless it is "
    "renewed",
    next_run=_LEASE_FREE,
    fix="wait for run {run_id} to end, or stop it; then run again",
)

LEASE_PARKED = Condition(
    "LEASE_HELD",
    TryAgainError,
    "pipeline {pipeline} has been waiting for the next step of {holder} since {since}; the lease is kept for that "
    "run for another {seconds:.0f} s",
    next_run=_LEASE_FREE,
    fix="let run {run_id} continue, or run again after {seconds:.0f} s",
)

LEASE_LOST = Condition(
    "LEASE_LOST",
    TryAgainError,
    "pipeline {pipeline}: this process no longer holds the lease; {holder}",
    next_run="continues from what is staged; this process has changed nothing that a reader sees",
    fix="tidegate status {pipeline}",
)

STATE_CHANGED = Condition(
    "STATE_CHANGED",
    DisagreementError,
    "the transform was changed in a way that makes the state kept so far give wrong results: {change}{spelling_hint}",
    next_run=UNTIL_FIXED,
    fix="revert the change; or `tidegate refresh {name}` rebuilds table and state in a side job, from all that runs "
    "have read; or `tidegate repair {name} --rebuild`: a new table from all records still in the sources (with "
    "`--dry-run`, both show what they would read)",
)

STAGED_FILE_DAMAGED = Condition(
    "STAGED_FILE_DAMAGED",
    DisagreementError,
    "a staged file is not what was written: {damage}",
    next_run="fails again until this is fixed; nothing of the file was published",
    fix="check the disk, and what else writes there; then `tidegate repair {pipeline}`: the batch is read again from "
    "the source (`tidegate repair {pipeline} --dry-run` shows the choices)",
)

BATCH_OF_RETIRED_QUERY = Condition(
    "QUERY_RETIRED",
    TryAgainError,
    "query {name} ended when a loss was accepted: its batch {path_stem} is ignored",
    next_run="reads these records with the query that followed",
    fix="run again; nothing else needs to be done",
)
