"""A feed of nested events (62 fields, arrays of structs), beside a plain job that writes the same columns."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Row
from benchmarks.wide_cases import compare_with_plain_job
from benchmarks.workbench import Workbench

if TYPE_CHECKING:
    from benchmarks.cases import Size

EVENTS = 60_000
FILES = 6
MALFORMED_EVERY = 17  # 5.9 % of the records

_ACTOR = "id: BIGINT, login: STRING, display_login: STRING, gravatar_id: STRING, url: STRING, avatar_url: STRING"
_USER = "id: BIGINT, login: STRING, node_id: STRING, type: STRING, site_admin: BOOLEAN"
_SCHEMA = f"""\
id STRING, type STRING, public BOOLEAN, created_at TIMESTAMP, score DOUBLE, cost DECIMAL(12,2), day DATE,
actor STRUCT<{_ACTOR}>,
org STRUCT<id: BIGINT, login: STRING>,
repo STRUCT<id: BIGINT, name: STRING, url: STRING, owner: STRUCT<{_USER}>>,
payload STRUCT<action: STRING, number: INT, push_id: BIGINT, size: INT, distinct_size: INT, head: STRING,
 commits: ARRAY<STRUCT<sha: STRING, message: STRING, `distinct`: BOOLEAN, url: STRING,
  author: STRUCT<name: STRING, email: STRING, at: TIMESTAMP>>>,
 issue: STRUCT<id: BIGINT, number: INT, title: STRING, state: STRING, locked: BOOLEAN, comments: INT,
  user: STRUCT<{_USER}>,
  labels: ARRAY<STRUCT<id: BIGINT, name: STRING, color: STRING>>, created_at: TIMESTAMP>>,
counts MAP<STRING, BIGINT>
"""
_TESTED = ("id", "type", "public", "created_at", "day", "actor", "repo", "payload", "score", "cost")


def run_nested(bench: Workbench, size: Size) -> list[Row]:
    """60,000 nested events in six files of gzip, 10 rules."""
    return _run(bench, size, f"{EVENTS:,} nested events, 62 fields", is_dirty=False)


def run_nested_dirty(bench: Workbench, size: Size) -> list[Row]:
    """The same with two fields that the schema does not have, and 6 % of records in which a type has changed."""
    work = f"{EVENTS:,} nested events, 62 fields, two unknown, 6 % malformed"
    return _run(bench, size, work, is_dirty=True)


def _run(bench: Workbench, size: Size, work: str, *, is_dirty: bool) -> list[Row]:
    inbox = bench.folder / "records"
    inbox.mkdir()
    rng = random.Random(work)
    events = size.rows(EVENTS)
    malformed = 0
    for number in range(FILES):
        with gzip.open(inbox / f"events-{number}.json.gz", "wt", compresslevel=6) as file:
            for event in range(number, events, FILES):
                is_malformed = is_dirty and event % MALFORMED_EVERY == 0
                malformed += is_malformed
                file.write(json.dumps(_make_event(rng, event, is_dirty, is_malformed)) + "\n")
    rules = [
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": column},
            "severity": "critical",
            "meta": {"rule": f"{column}_is_there", "on_failure": "quarantine"},
        }
        for column in _TESTED
    ]
    return compare_with_plain_job(
        bench,
        size.repeats,
        f"{work}, {len(rules)} rules",
        _SCHEMA.replace("\n", " "),
        rules,
        inbox,
        events - malformed,
        1.0,
    )


def _make_event(rng: random.Random, number: int, is_dirty: bool, is_malformed: bool) -> dict[str, Any]:
    event = {
        "id": str(30_000_000_000 + number),
        "type": rng.choice(("PushEvent", "IssuesEvent", "PullRequestEvent")),
        "public": True,
        "created_at": _make_time(rng),
        "score": rng.random(),
        "cost": rng.randrange(100_000) / 100,
        "day": f"2026-03-{rng.randrange(1, 29):02}",
        "actor": _make_actor(rng),
        "org": {"id": number % 997, "login": f"org{number % 997}"} if number % 3 else None,
        "repo": {
            "id": rng.randrange(1 << 30),
            "name": f"owner{number % 911}/repo{number % 7919}",
            "url": f"https://api.example.org/repos/owner{number % 911}/repo{number % 7919}",
            "owner": _make_user(rng),
        },
        "payload": {
            "action": "opened",
            "number": number,
            "push_id": rng.randrange(1 << 40),
            "size": number % 4,
            "distinct_size": number % 3,
            "head": f"{rng.getrandbits(160):040x}",
            "commits": [_make_commit(rng) for _ in range(number % 4)],
            "issue": {
                "id": rng.randrange(1 << 40),
                "number": number,
                "title": f"It does not work, said user {number}",
                "state": "open",
                "locked": False,
                "comments": number % 12,
                "user": _make_user(rng),
                "labels": [{"id": label, "name": f"label {label}", "color": "ededed"} for label in range(number % 3)],
                "created_at": _make_time(rng),
            },
        },
        "counts": {"stars": rng.randrange(10_000), "forks": rng.randrange(1000)},
    }
    if is_dirty:
        event["performed_via"] = {"app": "mobile", "version": 3}
        event["payload"]["pusher_type"] = "user"
    if is_malformed:
        event["repo"]["id"] = f"r{event['repo']['id']}"
    return event


def _make_time(rng: random.Random) -> str:
    return f"2026-03-01T{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}Z"


def _make_actor(rng: random.Random) -> dict[str, Any]:
    number = rng.randrange(100_000)
    return {
        "id": number,
        "login": f"user{number}",
        "display_login": f"user{number}",
        "gravatar_id": "",
        "url": f"https://api.example.org/users/user{number}",
        "avatar_url": f"https://avatars.example.org/u/{number}?",
    }


def _make_user(rng: random.Random) -> dict[str, Any]:
    number = rng.randrange(100_000)
    return {"id": number, "login": f"user{number}", "node_id": f"MDQ6{number}", "type": "User", "site_admin": False}


def _make_commit(rng: random.Random) -> dict[str, Any]:
    sha = f"{rng.getrandbits(160):040x}"
    return {
        "sha": sha,
        "message": f"Fix what {sha[:7]} has broken, and add a test of it",
        "distinct": True,
        "url": f"https://api.example.org/commits/{sha}",
        "author": {"name": "A. N. Author", "email": f"{sha[:12]}@example.org", "at": _make_time(rng)},
    }
