"""What people do from the pages, against Airflow's own API: who may, what is refused, what comes of it in Airflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from httpx import Response

from tests.airflow.app_in_process import HOST, HTML, OURS, PREFIX, AirflowApp
from tests.airflow.endings import make_context, run_to_its_end, run_without_spark
from tests.support.held import NAME, Held, commands
from tidegate.airflow.operators import IngestOperator
from tidegate.airflow.ui import airflow_calls, deciding, plans
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.runs.reports.report import new_report
from tidegate.table.publish.intent import PublishIntent

REFUSE_HINDERED = plans.refuse_hindered
ACTIONS = f"/tidegate/dags/{NAME}/actions"
FIELDS = {
    "run": {},
    "backfill": {"first": "2026-01-01", "last": "2026-01-02"},
    "refresh": {},
    "replay": {},
    "pause": {"paused": "yes"},
    "decide": {"run_id": "R1", "decision": "release", "reason": "looked at it"},
}
"""What each action is sent with."""
CONF = {
    "run": {},
    "backfill": {"backfill_from": "2026-01-01", "backfill_to": "2026-01-02"},
    "refresh": {"refresh": "all"},
    "replay": {"replay": "all"},
    "decide": {"decide": "release", "decide_run_id": "R1", "decide_reason": "looked at it"},
}
_DAG = "from tidegate.airflow import build_dag\n\ndag = build_dag({name!r})\n"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Pipeline ``orders``, whose run R1 is held, ``others``, whose run X1 is, ``failing`` and ``refusing``."""
    root = tmp_path_factory.mktemp("acted_on")
    held = Held(root)
    spec, suite = root / "jobs" / NAME / "pipeline.yaml", root / "expectations" / f"{NAME}.yaml"
    for name in ("others", "failing", "refusing"):
        for path in (root / "jobs" / name / "pipeline.yaml", root / "expectations" / f"{name}.yaml"):
            path.parent.mkdir(exist_ok=True)
            text = (spec if path.name == "pipeline.yaml" else suite).read_text()
            path.write_text(text.replace(f"name: {NAME}", f"name: {name}"))
    (root / "dags").mkdir()
    for name in (NAME, "others", "failing", "refusing"):
        (root / "dags" / f"{name}.py").write_text(_DAG.format(name=name))
    with commands(lambda: held):
        held.hold("R1")
    report = new_report("others", "X1")
    report.mode, report.rebuilt = "backfill", ["day=2026-01-01"]
    intent = PublishIntent("others", "X1", "table", "{}", [], "an app", 0, -1, report=dict(report.to_json()))
    side = held.project.paths("others").beside("backfills/job/try")
    keep_held(side, intent, Interval({"day": ["2026-01-01"]}), report)
    yield held


@pytest.fixture(scope="module")
def airflow(held: Held) -> Iterator[AirflowApp]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PROJECT", str(held.root))
        patch.setenv("AIRFLOW__API__BASE_URL", f"https://airflow.example.org{PREFIX}")
        made = AirflowApp(held.root)
        patch.setattr("tidegate.airflow.ui.served.find_served_project", lambda: held.root)
        # There is no table to rebuild; test_what_a_dry_run_refuses_is_not_started has the check itself.
        patch.setattr(plans, "refuse_hindered", lambda shown: None)
        yield made


def send(airflow: AirflowApp, role: str | None, act: str, of: str = NAME, **fields: str) -> Response:
    """An action, as a program sends it."""
    return airflow.client(role).post(f"/tidegate/dags/{of}/actions/{act}", json={**FIELDS[act], **fields})


def new_runs(airflow: AirflowApp, before: int, dag_id: str = NAME) -> list[dict[str, object]]:
    return airflow.list_runs(dag_id)[before:]


@pytest.mark.parametrize("act", sorted(FIELDS))
def test_who_may(airflow: AirflowApp, act: str) -> None:
    before = len(airflow.list_runs(NAME))
    asked = f"{ACTIONS}/{act}" + ("?run_id=R1" if act == "decide" else "")
    for role, status in ((None, 401), ("viewer", 403)):
        assert send(airflow, role, act).status_code == status
        assert airflow.client(role).get(asked).status_code == status
    assert len(airflow.list_runs(NAME)) == before
    for role in ("user", "admin"):
        page = airflow.client(role).get(asked, headers=HTML)
        assert page.status_code == 200 and "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("act", sorted(CONF))
def test_each_is_a_run_of_the_dag_in_the_name_of_who_did_it(airflow: AirflowApp, act: str) -> None:
    before, audit = len(airflow.list_runs(NAME)), len(airflow.list_audit(NAME, "trigger_dag_run"))
    answer = send(airflow, "user", act)
    assert answer.status_code == 200, answer.text
    [run] = new_runs(airflow, before)
    assert answer.json() == {"dag_id": NAME, "done": "started", "of": run["dag_run_id"]}
    of = run["conf"].pop("decide_of", None)  # type: ignore[attr-defined]
    assert (of is not None) == (act == "decide")
    assert (run["conf"], run["run_type"], run["triggering_user_name"]) == (CONF[act], "manual", "a user")
    entries = airflow.list_audit(NAME, "trigger_dag_run")
    assert len(entries) == audit + 1 and ("a user", run["dag_run_id"]) in entries


def test_pause_and_unpause(airflow: AirflowApp) -> None:
    for paused in ("yes", "no"):
        assert send(airflow, "user", "pause", paused=paused).json()["done"] == (
            "paused" if paused == "yes" else "unpaused"
        )
        assert airflow.client("admin").get(f"/api/v2/dags/{NAME}").json()["is_paused"] == (paused == "yes")
        page = airflow.client("user").get(f"/tidegate/dags/{NAME}", headers=HTML).text
        assert (">Unpause</a>" in page) == (paused == "yes")
    assert [who for who, _ in airflow.list_audit(NAME, "patch_dag")] == ["a user", "a user"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "cross-site", "origin": "http://airflow.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://airflow.example.evil.example"},
    ],
)
def test_what_another_site_sends_is_refused(airflow: AirflowApp, headers: dict[str, str]) -> None:
    browser, before = airflow.client("admin", by_cookie=True), len(airflow.list_runs(NAME))
    for act, fields in FIELDS.items():
        answer = browser.post(f"{ACTIONS}/{act}", data=fields, headers=headers)
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "ACTION_OF_OTHER_SITE"
    assert len(airflow.list_runs(NAME)) == before


@pytest.mark.parametrize(
    "headers",
    [OURS, {"origin": "http://airflow.example"}, {"origin": "https://airflow.example.org"}],
    ids=["fetch", "host", "base_url"],
)
def test_what_a_page_sends_is_done_and_leads_back_to_it(airflow: AirflowApp, headers: dict[str, str]) -> None:
    browser, before = airflow.client("user", by_cookie=True), len(airflow.list_runs(NAME))
    page = browser.get(f"{ACTIONS}/run", headers=HTML).text
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    for told in ("started", "again"):  # a double click
        answer = browser.post(f"{ACTIONS}/run", data={"token": token[1]}, headers={**HTML, **headers})
        assert answer.status_code == 303 and f"done={told}" in answer.headers["location"]
    [run] = new_runs(airflow, before)
    assert answer.headers["location"].startswith(f"{airflow.app.root_path}/tidegate/dags/{NAME}?done=")
    back = browser.get(HOST + answer.headers["location"], headers=HTML)
    assert 'note-info" role="status"' in back.text and str(run["dag_run_id"]) in back.text


def test_the_same_form_with_other_answers_is_another_run(airflow: AirflowApp) -> None:
    token, before = "20260101T000000Z-0123abcd", len(airflow.list_runs(NAME))
    for last in ("2026-01-02", "2026-01-03", "2026-01-02"):
        assert send(airflow, "user", "backfill", token=token, last=last).status_code == 200
    assert [run["conf"]["backfill_to"] for run in new_runs(airflow, before)] == ["2026-01-02", "2026-01-03"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("act", "fields", "status"),
    [
        ("run", {"dag_id": "others"}, 400),
        ("run", {"token": "../../x"}, 400),
        ("backfill", {"first": "$(date)"}, 400),
        ("backfill", {"last": ""}, 400),
        ("refresh", {"keep_older": "perhaps"}, 400),
        ("replay", {"reason": "no such rule"}, 400),
        ("replay", {"of_run": "../../../etc/passwd"}, 400),
        ("replay", {"of_run": "X1"}, 400),
        ("pause", {"paused": "maybe"}, 400),
        ("decide", {"decision": "publish"}, 400),
        ("decide", {"reason": "..."}, 400),
        ("decide", {"reason": "two\nlines"}, 400),
        ("decide", {"reason": ""}, 400),
        ("decide", {"run_id": "X1"}, 400),
        ("decide", {"run_id": "../R1"}, 400),
    ],
)
def test_what_cannot_be_meant_is_refused(airflow: AirflowApp, act: str, fields: dict[str, str], status: int) -> None:
    """Ids of another DAG among it: X1 is held, and is the other pipeline's."""
    before = len(airflow.list_runs(NAME))
    answer = send(airflow, "admin", act, **fields)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] and error["fix"] and "Traceback" not in answer.text
    assert len(airflow.list_runs(NAME)) == before


def test_bodies_that_cannot_be_read(airflow: AirflowApp) -> None:
    admin = airflow.client("admin")
    for body, kind, status in (
        (b"{}", "text/plain", 415),
        (b"[1]", "application/json", 400),
        (b'{"token": 7}', "application/json", 400),
        (b"[" * 9000, "application/json", 400),
        (b"\xff=1", "application/x-www-form-urlencoded", 400),
        (b"paused=yes&paused=no", "application/x-www-form-urlencoded", 400),
        (b"a" * 20_000, "application/x-www-form-urlencoded", 413),
    ):
        answer = admin.post(f"{ACTIONS}/pause", content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, "ACTION_REFUSED")
    assert admin.get("/tidegate/dags/..%2Fx/actions/run").status_code == 404
    assert admin.post("/tidegate/dags/nothere/actions/run", json={}).status_code == 404


@pytest.mark.parametrize("act", ["backfill", "refresh"])
def test_what_a_dry_run_refuses_is_not_started(airflow: AirflowApp, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "refuse_hindered", REFUSE_HINDERED)
    before = len(airflow.list_runs(NAME))
    refused = send(airflow, "user", act)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "BACKFILL_NO_TABLE")
    assert len(airflow.list_runs(NAME)) == before


def test_a_replay_that_its_dry_run_refuses_is_not_started(
    airflow: AirflowApp, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table whose rows replace others. Airflow, which has no such DAG, is not asked."""
    monkeypatch.setattr(plans, "refuse_hindered", REFUSE_HINDERED)
    job = held.root / "jobs" / "replacing"
    job.mkdir()
    spec = (held.root / "jobs" / NAME / "pipeline.yaml").read_text().replace(f"name: {NAME}", "name: replacing")
    (job / "pipeline.yaml").write_text(f"{spec}output_mode: update\ntable: {{keys: [n]}}\n")
    refused = send(airflow, "user", "replay", "replacing")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "REPLAY_NOT_APPEND"), refused.text


def test_runs_that_wait_for_their_turn_are_told(airflow: AirflowApp) -> None:
    assert send(airflow, "user", "run").status_code == 200
    page = airflow.client("user").get(f"/tidegate/dags/{NAME}", headers=HTML).text
    assert "in Airflow for the" in page
    queued = airflow.list_runs(NAME)[-1]["dag_run_id"]
    page = airflow.client("user").get(f"/tidegate/dags/{NAME}/run?run_id={queued}", headers=HTML).text
    assert 'class="state is-queued"' in page


def test_a_run_that_waits_is_answered(airflow: AirflowApp) -> None:
    """Its Required Action takes the decision, once."""
    airflow.require_action(NAME, "R1")
    before = len(airflow.list_runs(NAME))
    page = airflow.client("user").get(f"{ACTIONS}/decide?run_id=R1", headers=HTML).text
    assert all(f'value="{one}"' in page for one in ("release", "discard", "reread"))
    assert send(airflow, "user", "decide").json()["done"] == "decided"
    found = airflow.read_answer(NAME, "R1")
    assert (found["chosen_options"], found["params_input"]) == (["Release"], {"reason": "looked at it"})
    assert (found["responded_by_user"]["name"], found["state"]) == ("a user", "scheduled")
    assert airflow.list_audit(NAME, "update_hitl_detail") == [("a user", "R1")]
    # It is being carried out: another person is told so, and the same again is as good as the first.
    other = send(airflow, "admin", "decide", decision="discard")
    assert (other.status_code, other.json()["error"]["code"]) == (400, "DECIDED_ALREADY")
    assert "a user already decided to release it" in other.json()["error"]["message"]
    assert send(airflow, "admin", "decide").json()["done"] == "decided"
    assert airflow.list_audit(NAME, "update_hitl_detail") == [("a user", "R1")]
    assert len(airflow.list_runs(NAME)) == before


def test_a_run_that_is_about_to_ask_is_not_decided_on(airflow: AirflowApp, held: Held) -> None:
    """It is at work in Airflow, and has asked nobody yet: what X2 holds is not decided past it."""
    report = new_report("others", "X2")
    report.mode, report.rebuilt = "backfill", ["day=2026-01-02"]
    intent = PublishIntent("others", "X2", "table", "{}", [], "an app", 1, -1, report=dict(report.to_json()))
    side = held.project.paths("others").beside("backfills/other/try")
    keep_held(side, intent, Interval({"day": ["2026-01-02"]}), report)
    airflow.client("admin").post(
        "/api/v2/dags/others/dagRuns", json={"dag_run_id": "X2", "logical_date": None}
    ).raise_for_status()
    answer = send(airflow, "user", "decide", "others", run_id="X2")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ACTION_TOO_SOON")


def test_a_dag_that_is_no_pipeline_has_no_page_and_no_action(airflow: AirflowApp) -> None:
    """Such as the DAG of the maintenance, which has the tab as every DAG has."""
    admin = airflow.client("admin")
    for page in ("", "/actions/run", "/runs", "/parts/state", "/run?run_id=x"):
        answer = admin.get(f"/tidegate/dags/tidegate_maintenance{page}", headers=HTML)
        assert answer.status_code == 404 and "is not a pipeline of tidegate" in answer.text, page
    assert send(airflow, "admin", "run", "tidegate_maintenance").status_code == 404


def test_a_pipeline_that_airflow_has_no_dag_of_is_not_started(airflow: AirflowApp, held: Held) -> None:
    job = held.root / "jobs" / "undeployed"
    job.mkdir()
    spec = (held.root / "jobs" / NAME / "pipeline.yaml").read_text().replace(f"name: {NAME}", "name: undeployed")
    (job / "pipeline.yaml").write_text(spec)
    answer = send(airflow, "admin", "run", "undeployed")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "AIRFLOW_REFUSED")


def test_what_keeps_airflow_from_reading_a_dag_is_on_the_pages(airflow: AirflowApp) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.errors import ParseImportError
    from airflow.utils.session import create_session

    admin = airflow.client("admin")
    assert "cannot be read" not in admin.get("/tidegate/dags/others", headers=HTML).text
    with create_session() as session:
        dag = DagModel.get_dagmodel("others", session=session)
        assert dag is not None
        fault = "Traceback:\n  File others.py, line 3\nSyntaxError: '(' was never closed"
        error = ParseImportError(filename=dag.relative_fileloc, bundle_name=dag.bundle_name, stacktrace=fault)
        session.add(error)
    try:
        page = admin.get("/tidegate/dags/others", headers=HTML).text
        assert "Airflow cannot read the DAG" in page and "was never closed" in page
        assert "DAG cannot be read" in admin.get("/tidegate/pipelines", headers=HTML).text
    finally:
        with create_session() as session:
            session.delete(session.merge(error))


def test_held_work_beside_the_runs_is_decided_by_a_run(airflow: AirflowApp) -> None:
    before = len(airflow.list_runs("others"))
    for page in ("dags/others", "dags/others/run?run_id=X1"):
        shown = airflow.client("user").get(f"/tidegate/{page}", headers=HTML).text
        assert "/tidegate/dags/others/actions/decide?run_id=X1" in shown
        assert "/actions/" not in airflow.client("viewer").get(f"/tidegate/{page}", headers=HTML).text
    page = airflow.client("user").get("/tidegate/dags/others/actions/decide?run_id=X1", headers=HTML).text
    assert 'value="release"' in page and 'value="reread"' not in page and "another run of the DAG" in page
    assert "the table stays as it is" in page and "leave its rows out" not in page
    refused = send(airflow, "user", "decide", "others", run_id="X1", decision="reread")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "ACTION_REFUSED")
    assert send(airflow, "user", "decide", "others", run_id="X1").json()["done"] == "started"
    [run] = new_runs(airflow, before, "others")
    mark = re.search(r'name="mark" value="([0-9a-f]{16})"', page)
    assert mark is not None
    assert run["conf"] == {**CONF["decide"], "decide_run_id": "X1", "decide_of": mark[1]}
    other = send(airflow, "user", "decide", "others", run_id="X1", mark="0" * 16)
    assert other.status_code == 409 and "other records are held" in other.text


def test_one_run_at_a_time_decides_on_what_is_held(airflow: AirflowApp) -> None:
    """Of three people, or of one who opens the form again; the same form that is sent twice is no second decision."""
    for run in new_runs(airflow, 0, "others"):
        airflow.set_state("others", str(run["dag_run_id"]), "failed")
    form, before = {"run_id": "X1", "token": "20260101T000000Z-0123abcd"}, len(airflow.list_runs("others"))
    told = [send(airflow, "user", "decide", "others", **form).json()["done"] for _ in range(2)]
    assert told == ["started", "again"]
    [run] = new_runs(airflow, before, "others")
    for state in ("queued", "running"):
        airflow.set_state("others", str(run["dag_run_id"]), state)
        for role, decision in (("user", "release"), ("admin", "discard")):
            refused = send(airflow, role, "decide", "others", run_id="X1", decision=decision)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (409, "DECISION_UNDER_WAY")
            assert str(run["dag_run_id"]) in error["message"] and "to release it" in error["message"]
    assert len(airflow.list_runs("others")) == before + 1
    airflow.set_state("others", str(run["dag_run_id"]), "failed")
    assert send(airflow, "admin", "decide", "others", run_id="X1", decision="discard").json()["done"] == "started"


def test_a_decision_in_a_terminal_counts_and_the_waiting_is_ended(airflow: AirflowApp, held: Held) -> None:
    with commands(lambda: held):
        held.decide("release", "R1")
        held.next_batch = 1
        held.hold("R2")
        held.decide("discard", "R2")
    assert send(airflow, "user", "decide", run_id="R2", decision="discard").json()["done"] == "decided"
    other = send(airflow, "user", "decide", run_id="R2")
    assert other.json()["error"]["code"] == "DECIDED_ALREADY" and other.status_code == 400
    airflow.require_action(NAME, "R2")
    page = airflow.client("user").get(f"{ACTIONS}/decide?run_id=R2", headers=HTML).text
    assert "That decision counts" in page and 'value="discard"' in page and 'value="release"' not in page
    assert send(airflow, "user", "decide", run_id="R2", decision="discard").json()["done"] == "decided"
    assert airflow.read_answer(NAME, "R2")["state"] == "scheduled"


def test_only_what_somebody_may_do_is_shown(airflow: AirflowApp) -> None:
    page = airflow.client("viewer").get(f"/tidegate/dags/{NAME}", headers=HTML)
    assert page.status_code == 200 and "/actions/" not in page.text
    page = airflow.client("user").get(f"/tidegate/dags/{NAME}", headers=HTML)
    assert all(f"/actions/{act}" in page.text for act in ("run", "backfill", "refresh", "replay", "pause"))


def test_what_is_typed_is_escaped(airflow: AirflowApp) -> None:
    attack = "<script>alert(1)</script>"
    user = airflow.client("user")
    for asked in (f"replay?look=yes&reason={attack}", f"backfill?first={attack}&last=x", f"decide?run_id={attack}"):
        page = user.get(f"{ACTIONS}/{asked}", headers=HTML)
        assert page.status_code == 200 and attack not in page.text
    page = user.get(f"/tidegate/dags/{NAME}?done=started&of={attack}", headers=HTML)
    assert page.status_code == 200 and attack not in page.text


@pytest.mark.parametrize("told", ["started&of=nobody", "decided&of=nobody", "fired&of=R1", "again"])
def test_a_page_tells_of_nothing_that_was_not_done(airflow: AirflowApp, told: str) -> None:
    """Anybody can make up an address, and send it to somebody."""
    page = airflow.client("user").get(f"/tidegate/dags/{NAME}?done={told}", headers=HTML).text
    assert 'note-info" role="status"' not in page


@pytest.mark.parametrize("conf", [{"kept_<1>": "x"}, {"accept_loss": "a zero\u200bwidth"}])
def test_a_refused_form_is_no_failure_of_the_pipeline(airflow: AirflowApp, conf: dict[str, str]) -> None:
    """The pages tell its reason from the form that Airflow has stored; the pipeline's state is as before."""
    of, admin = "refusing", airflow.client("admin")
    body = {"conf": conf, "logical_date": None}
    answer = admin.post(f"/api/v2/dags/{of}/dagRuns", json=body).raise_for_status().json()
    run_id = str(answer["dag_run_id"])
    page = admin.get(f"/tidegate/dags/{of}/run", params={"run_id": run_id}, headers=HTML).text
    assert "is-queued" in page, "its task refuses the form, not the page"
    admin.patch(f"/api/v2/dags/{of}/dagRuns/{run_id}", json={"state": "failed"}).raise_for_status()
    page = admin.get(f"/tidegate/dags/{of}", headers=HTML).text
    assert run_id in page and "is-refused" in page and "TRIGGER_FORM_REFUSED" in page
    assert "is-never_ran" in page and 'is-failing"' not in page and "before it left a report" not in page
    page = admin.get(f"/tidegate/dags/{of}/run", params={"run_id": run_id}, headers=HTML).text
    assert "form refused" in page and "the conf of this run cannot be used" in page and "<1>" not in page
    assert ("unknown key" in page) == ("accept_loss" not in conf)
    assert "left no report of its own" not in page and "See the run in Airflow" in page
    assert 'is-failing"' not in admin.get("/tidegate/pipelines", headers=HTML).text.partition(f">{of}<")[2][:2000]


def test_a_form_that_is_refused_when_it_is_carried_out_has_its_reason_on_the_pages(
    airflow: AirflowApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task has pushed the error: Airflow's form alone does not show that nothing is held."""
    of, admin = "refusing", airflow.client("admin")
    conf = {"decide": "release", "decide_run_id": "nothing", "decide_reason": "looked at it"}
    answer = admin.post(f"/api/v2/dags/{of}/dagRuns", json={"conf": conf, "logical_date": None}).raise_for_status()
    run_id = str(answer.json()["dag_run_id"])
    run_without_spark(monkeypatch)
    ingest = IngestOperator(task_id="ingest", conn_id="x", pipeline=of, project_root=str(airflow.project))
    context = make_context(run_id, params=conf)
    assert isinstance(run_to_its_end(lambda: ingest.execute(context)), Exception)
    pushed = context["ti"].pushed["refused"]
    assert pushed["code"] == "NOT_HELD"
    airflow.push(of, run_id, "refused", pushed)
    admin.patch(f"/api/v2/dags/{of}/dagRuns/{run_id}", json={"state": "failed"}).raise_for_status()
    page = admin.get(f"/tidegate/dags/{of}", headers=HTML).text
    assert run_id in page and "NOT_HELD" in page and "before it left a report" not in page
    page = admin.get(f"/tidegate/dags/{of}/run", params={"run_id": run_id}, headers=HTML).text
    assert "form refused" in page and "nothing is held under this run id" in page
    airflow.push(of, run_id, "refused", {"not": "an error"})
    page = admin.get(f"/tidegate/dags/{of}/run", params={"run_id": run_id}, headers=HTML)
    assert page.status_code == 200 and "form refused" not in page.text


def test_runs_that_fail_before_a_report_are_on_the_pages(airflow: AirflowApp) -> None:
    """As where a DAG cannot be read on a worker: Airflow alone knows of them."""
    of = "failing"
    admin = airflow.client("admin")
    assert "Airflow before it left a report" not in admin.get("/tidegate/pipelines", headers=HTML).text
    live, beside = (str(send(airflow, "user", act, of=of).json()["of"]) for act in ("run", "backfill"))
    page = admin.get(f"/tidegate/dags/{of}", headers=HTML).text
    assert "2 runs wait in Airflow" in page
    for run_id in (live, beside):
        admin.patch(f"/api/v2/dags/{of}/dagRuns/{run_id}", json={"state": "failed"}).raise_for_status()
    page = admin.get(f"/tidegate/dags/{of}", headers=HTML).text
    assert "failed in Airflow before it left a report" in page and live in page and beside in page
    assert "leads to its log" in page
    assert "in a row" not in page and ">1</b> failing" in admin.get("/tidegate/pipelines", headers=HTML).text


@pytest.mark.parametrize("run_id", [".", "..", "R1/taskInstances/audit", "R1/taskInstances/audit/-1", "../../others"])
def test_a_run_id_leads_to_no_other_address_of_airflow(
    airflow: AirflowApp, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.airflow.ui import deciding

    asked: list[str] = []

    async def refuse(request: object, method: str, path: str, **more: object) -> None:
        asked.append(path)

    monkeypatch.setattr(deciding, "call", refuse)
    client = airflow.client("admin")
    answer = client.get(f"/tidegate/dags/{NAME}/actions/decide", params={"run_id": run_id})
    assert answer.status_code == 200 and "Nothing waits for a decision" in answer.text and not asked


def test_no_address_answers_without_a_login(airflow: AirflowApp) -> None:
    from tidegate.airflow.ui.app import app

    nobody = airflow.client(None)
    for route in app.routes:
        path = str(route.path).replace("{dag_id}", NAME).replace("{run_id:path}", "R1")  # type: ignore[attr-defined]
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"):
            for more in ({}, HTML, OURS, {"x-http-method-override": "POST"}):
                answer = nobody.request(method, f"/tidegate{path}", headers=more)
                assert answer.status_code in (401, 405), (method, path, answer.status_code)
        assert nobody.get(f"/tidegate{path}/").status_code in (401, 404)


def test_of_two_answers_at_one_moment_one_counts(airflow: AirflowApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow may say yes to both: whose answer it did not keep is told."""
    airflow.require_action(NAME, "R3")
    matter = deciding.Matter(None, None, None, None)

    async def look_at(question: deciding.Question) -> deciding.Matter:
        action = await deciding._find_action(question)
        return replace(matter, action=action)

    async def call(request: Any, method: str, path: str, **more: Any) -> airflow_calls.Answer:
        if method == "PATCH":
            more["body"] = {"chosen_options": ["Discard"], "params_input": {"reason": "somebody else's"}}
        return await airflow_calls.call(request, method, path, **more)

    monkeypatch.setattr(deciding, "look_at", look_at)
    monkeypatch.setattr(deciding, "call", call)
    answer = send(airflow, "user", "decide", run_id="R3")
    assert answer.json()["error"]["code"] == "DECIDED_ALREADY" and "discard" in answer.text
