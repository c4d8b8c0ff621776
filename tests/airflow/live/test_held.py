"""Held increments under a real scheduler: Airflow asks a person, and the answer is carried out."""

from __future__ import annotations

import json

from tests.airflow.acting import list_audit
from tests.airflow.live.project import (
    SECRET_VARIABLE,
    drop_rows,
)
from tests.airflow.live.scene import (
    CANARY,
    Live,
    answer,
    hold,
    read_commits,
    wait_for,
    wait_for_state,
)
from tests.airflow.processes import read_command
from tidegate.runs.decide import decide
from tidegate.runs.reports.verdicts import Answer
from tidegate.spec.project import load_project


def test_a_held_increment_asks_a_person_and_the_answer_publishes_it(live: Live) -> None:
    before, told = live.read_ids("strict"), len(live.client.list_asset_events("strict"))
    run_id, action = hold(live, "strict", "bad", [(1, 1.0), (2, -5.0)])
    assert action["subject"] == f"strict: run {run_id} is held"
    assert action["options"] == ["Release", "Discard", "Read again"] and "price_not_negative" in action["body"]
    log = live.client.fetch_log("strict", run_id, "audit")
    for part in ("price_not_negative", f"tidegate release strict {run_id}", f"tidegate discard strict {run_id}"):
        assert part in log
    assert live.read_ids("strict") == before and len(live.client.list_asset_events("strict")) == told
    pid = live.client.fetch_task("strict", run_id, "audit")["pid"]
    wait_for(lambda: not read_command(pid))  # nothing runs while a person thinks

    # What the form would refuse does not decide anything, and is asked for again.
    answer(live, "strict", run_id, "audit", "Release", {"reason": "two\nlines"})
    wait_for(lambda: "holds line breaks" in live.client.fetch_log("strict", run_id, "audit"))
    wait_for_state(live, "strict", run_id, "audit", {"awaiting_input", "deferred"})
    assert live.client.list_required_actions("strict", run_id)

    attack = f"$(touch {live.root / 'canary'}) <script>alert(1)</script> a refund, agreed"
    answer(live, "strict", run_id, "audit", "Release", {"reason": attack})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert set(live.states("strict", run_id).values()) == {"success"}
    assert live.client.fetch_task("strict", run_id, "audit")["try_number"] == 1
    assert live.read_ids("strict") == sorted([*before, 1, 2]) and not (live.root / "canary").exists()
    event = live.client.list_asset_events("strict")[-1]
    ruling = event["extra"]["decision"]
    assert event["extra"]["outcome"] == "published"
    assert (ruling["decision"], ruling["who"], ruling["reason"]) == ("release", f"{live.client.user} (Airflow)", attack)
    assert json.loads(read_commits(live, "strict")[-1]["tidegate.decision"]) == ruling


def test_a_discarded_increment_ends_the_run_as_discarded(live: Live) -> None:
    before, told = live.read_ids("strict"), len(live.client.list_asset_events("strict"))
    run_id, _ = hold(live, "strict", "worse", [(3, -1.0)])
    answer(live, "strict", run_id, "audit", "Discard", {"reason": "a test feed"})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert live.states("strict", run_id) == {"ingest": "success", "audit": "success", "publish": "skipped"}
    report = live.client.fetch_xcom("strict", run_id, "publish")
    assert (report["outcome"], report["decision"]["reason"]) == ("discarded", "a test feed")
    assert live.read_ids("strict") == before and len(live.client.list_asset_events("strict")) == told


def test_a_decision_in_the_terminal_counts_and_the_one_who_answers_later_is_told(live: Live) -> None:
    before = live.read_ids("strict")
    run_id, _ = hold(live, "strict", "late", [(4, -1.0)])
    project = load_project(live.root, {SECRET_VARIABLE: CANARY})
    decide(project, "strict", run_id, Answer("release", "known", "somebody"))
    answer(live, "strict", run_id, "audit", "Discard", {"reason": "not known"})
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert "somebody already decided to release it" in live.client.fetch_log("strict", run_id, "audit")
    assert live.read_ids("strict") == sorted([*before, 4])
    assert live.client.fetch_xcom("strict", run_id, "publish")["decision"]["who"] == "somebody"


def test_read_again_is_done_by_the_next_run_first(live: Live) -> None:
    before = live.read_ids("strict")
    run_id, _ = hold(live, "strict", "again", [(5, -1.0)])
    suite = live.root / "expectations" / "strict.yaml"
    text = suite.read_text()
    suite.write_text(text.replace("min_value: 0", "min_value: -10"))
    try:
        answer(live, "strict", run_id, "audit", "Read again", {"reason": "prices may be negative"})
        assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
        assert live.states("strict", run_id) == {"ingest": "success", "audit": "skipped", "publish": "skipped"}
        assert live.run("strict")["state"] == "success"
    finally:
        suite.write_text(text)
    assert live.read_ids("strict") == sorted([*before, 5])


def test_where_later_runs_go_on_one_that_waits_keeps_none_of_them_away(live: Live) -> None:
    run_id, action = hold(live, "patient", "bad", [(1, -1.0)])
    assert action["options"] == ["Release", "Discard"] and "Later runs continue" in action["body"]
    drop_rows(live.root, "patient", "good", [(2, 1.0)])
    assert live.run("patient")["state"] == "success"
    second, _ = hold(live, "patient", "worse", [(3, -1.0)])
    assert live.read_ids("patient") == [2]
    answer(live, "patient", second, "audit", "Discard", {"reason": "wrong"})
    answer(live, "patient", run_id, "audit", "Release", {"reason": "right after all"})
    for one in (run_id, second):
        assert live.client.wait_for_dag_run("patient", one)["state"] == "success"
    assert live.read_ids("patient") == [1, 2]
    outcomes = [one["tidegate.outcome"] for one in read_commits(live, "patient")]
    assert outcomes[:3] == ["waiting", "published", "waiting"]
    assert sorted(outcomes[3:]) == ["discarded", "published"]
    assert live.client.fetch_xcom("patient", run_id, "publish")["decision"]["reason"] == "right after all"


def test_what_no_run_waits_for_is_decided_by_another_run(live: Live) -> None:
    told = len(live.client.list_asset_events("strict"))
    run_id, _ = hold(live, "strict", "given_up", [(21, -1.0)])
    live.client.mark_task("strict", run_id, "audit", "failed")
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "failed"
    fields = {"run_id": run_id, "decision": "release", "reason": "a refund"}
    decider = live.visit("uma").act("strict", "decide", {"run_id": run_id}, **fields)
    assert live.client.wait_for_dag_run("strict", decider)["state"] == "success"
    assert set(live.states("strict", decider).values()) == {"success"}
    report = live.client.fetch_xcom("strict", decider, "publish")
    assert (report["run_id"], report["outcome"]) == (run_id, "published")
    assert (report["decision"]["who"], report["decision"]["reason"]) == ("uma (Airflow)", "a refund")
    assert live.client.list_asset_events("strict")[told]["extra"]["run_id"] == run_id
    assert ("uma", decider) in list_audit(live.client, "strict", "trigger_dag_run")
    assert live.read_ids("strict").count(21) == 1
