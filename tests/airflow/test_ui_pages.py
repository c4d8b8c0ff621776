"""The pages, as the app answers them, with stand-ins for Airflow's login and rights: whatever a report holds, the
browser gets text, and what somebody may not see is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import pytest
from fastapi.testclient import TestClient

from tests.support.many_runs import SCENES, Made, make_many
from tests.support.ui_server import make_app
from tidegate.airflow.ui.app import app
from tidegate.airflow.ui.pages import PARTS
from tidegate.airflow.ui.served import Patience
from tidegate.core import storage
from tidegate.runs.reports.report import read_newest, save_report
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.views.pages import pipelines

HIDDEN = "secret_pipeline"
_ATTRIBUTES = {"style", "srcdoc", "formaction"}


class Tags(HTMLParser):
    """Collects what the browser would take for tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Refuse what no page has; note the rest."""
        assert tag not in ("img", "iframe", "object", "embed", "base", "style", "svg"), tag
        for name, value in attrs:
            assert not name.startswith("on") and name not in _ATTRIBUTES, (tag, name)
            if "data-outside" in dict(attrs) and name == "href":
                assert dict(attrs)["rel"] == "noopener noreferrer" and re.match("^https?://", value or "")
            elif name in ("href", "src", "data-goto", "data-part"):
                assert re.match(r"^(/|#|data:,$)", value or ""), (tag, value)
                assert not (value or "").startswith("//")
                self.links.append(value or "")
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        """Note it."""
        self.text.append(data)


def parse(text: str) -> Tags:
    """The tags of a page, none of which is a script with text of its own but data."""
    tags = Tags()
    tags.feed(text)
    for script in tags.scripts:
        assert script.get("src") or script.get("type") == "application/json", script
    for block in re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL):
        assert "<" not in block and ">" not in block
        json.loads(block)
    return tags


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = make_many(tmp_path_factory.mktemp("many") / "project", len(SCENES) + 1, 8)
    (made.project.jobs / HIDDEN).mkdir()
    text = f"version: 1\nname: {HIDDEN}\nschedule: null\nsources:\n  s: {{type: rate}}\n"
    (made.project.jobs / HIDDEN / "pipeline.yaml").write_text(text)
    return made


@pytest.fixture(scope="module")
def client(made: Made) -> Iterator[TestClient]:
    patch = pytest.MonkeyPatch()
    readable, paused = (lambda name: name != HIDDEN), [made.scenes["late"]]
    outer = make_app(made.project.root, readable=readable, paused=paused, patch=patch)
    with TestClient(outer, headers={"accept": "text/html"}) as found:
        yield found
    patch.undo()


def list_addresses(made: Made) -> list[str]:
    found = ["/tidegate/pipelines"]
    for name in made.scenes.values():
        found.append(f"/tidegate/dags/{name}")
        runs = pipelines.look_at(made.project, name).runs
        found += [f"/tidegate/dags/{name}/run?run_id={run.run_id.replace('+', '%2B')}" for run in runs[:3]]
        found += [f"/tidegate/dags/{name}/parts/{part}" for part in PARTS]
    return found


def test_every_page_is_text_and_has_the_policy(client: TestClient, made: Made) -> None:
    """Among them those of a report full of markup, of a broken spec, of reports that are cut off."""
    for address in list_addresses(made):
        answer = client.get(address)
        assert answer.status_code == 200, address
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        parse(answer.text)
        assert HIDDEN not in answer.text, address


def test_a_paused_dag_is_marked(client: TestClient, made: Made) -> None:
    page = client.get("/tidegate/pipelines").text
    row = page.partition(f'data-name="{made.scenes["late"]}"')[2].partition("</tr>")[0]
    assert page.count(">paused</span>") == row.count(">paused</span>") == 1
    counts = [client.get(f"/tidegate/dags/{made.scenes[one]}").text.count(">paused</span>") for one in ("late", "well")]
    assert counts == [1, 0]


def test_what_is_held_is_told_where_it_waits(client: TestClient, made: Made) -> None:
    name = made.scenes["held"]
    part = client.get(f"/tidegate/dags/{name}/parts/waiting", params={"fragment": "1"}).text
    assert "waits for a decision" in part and "Later runs wait for it." in part and "rows are below 0" in part


def test_how_far_a_run_has_read(client: TestClient, made: Made) -> None:
    name = made.scenes["running"]
    run_id = pipelines.look_at(made.project, name).runs[0].run_id
    line = "ingest: 1,234 rows, 1,200 of 4,000 offsets, 100 rows/s, about 28 s left"
    figures = {"rows": 1234, "rows_per_second": 100, "offsets": 1200, "offsets_pending": 4000, "seconds_left": 28}
    address = f"/tidegate/dags/{name}/run"
    assert line not in client.get(address, params={"run_id": run_id}).text
    ProgressLog(made.project.paths(name).progress(run_id)).note_reading(figures)
    assert line in client.get(address, params={"run_id": run_id}).text


def test_markup_in_a_report_is_shown_as_it_is(client: TestClient, made: Made) -> None:
    name = made.scenes["odd"]
    run = pipelines.look_at(made.project, name).runs[0]
    tags = parse(client.get(f"/tidegate/dags/{name}/run", params={"run_id": run.run_id}).text)
    assert sum("<script>alert(1)</script>" in text for text in tags.text) >= 3


def test_links_of_a_page_lead_somewhere(client: TestClient, made: Made) -> None:
    page = client.get("/tidegate/pipelines").text
    own = [link for link in parse(page).links if link.startswith("/tidegate/")]
    assert len(own) > 20
    for link in dict.fromkeys(own):
        assert client.get(link.replace("&amp;", "&")).status_code == 200, link


@pytest.mark.parametrize("place", ["", "/run?run_id=x", "/runs", "/runs/x", *(f"/parts/{part}" for part in PARTS)])
def test_who_may_not_read_a_dag_gets_nothing_of_it(client: TestClient, place: str) -> None:
    answer = client.get(f"/tidegate/dags/{HIDDEN}{place}")
    assert answer.status_code == 403 and "<h1>You are not allowed to see this</h1>" in answer.text


@pytest.mark.parametrize("dag_id", ["..", "A", "x" * 100, "orders%00", "..%2F..%2Fetc", "a%20b"])
@pytest.mark.parametrize("place", ["", "/run?run_id=x", "/runs", "/parts/table"])
def test_what_is_no_pipeline_name_is_not_found(client: TestClient, dag_id: str, place: str) -> None:
    assert client.get(f"/tidegate/dags/{dag_id}{place}").status_code == 404


@pytest.mark.parametrize("run_id", ["../../x", "a/b", "é\x00", "x" * 5000, "<b>"])
def test_odd_run_ids_have_a_page_that_says_there_is_no_report(client: TestClient, made: Made, run_id: str) -> None:
    answer = client.get(f"/tidegate/dags/{made.scenes['well']}/run", params={"run_id": run_id})
    assert answer.status_code == 200 and "Neither Airflow nor the project" in answer.text


def test_a_report_as_json(client: TestClient, made: Made) -> None:
    name = made.scenes["well"]
    [newest, *_] = client.get(f"/tidegate/dags/{name}/runs").json()["runs"]
    run_id = newest["run_id"].replace("+", "%2B")
    assert client.get(f"/tidegate/dags/{name}/runs/{run_id}").json() == newest
    assert client.get(f"/tidegate/dags/{name}/runs/none").status_code == 404


def test_files_of_the_bundle_may_be_kept(client: TestClient) -> None:
    page = client.get("/tidegate/pipelines").text
    for address in re.findall(r'(?:src|href)="(/tidegate/static/[^"]+)"', page):
        answer = client.get(address)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
        assert client.get(address, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    for name in ("manifest.json", "..%2Fapp.py", "none.js"):
        assert client.get(f"/tidegate/static/{name}").status_code == 404


def test_a_project_that_cannot_be_read_is_said(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\nstat: x\n")
    with TestClient(make_app(tmp_path, patch=monkeypatch), headers={"accept": "text/html"}) as client:
        answer = client.get("/tidegate/pipelines")
        page = client.get("/tidegate/dags/orders")
    assert answer.status_code == page.status_code == 503
    assert "BAD_PROJECT" in answer.text and "unknown key" in page.text and "This cannot be shown" in page.text


def test_every_route_asks_who_it_is_and_those_of_a_dag_whether_it_may_be_read() -> None:
    from airflow.api_fastapi.core_api.security import get_user

    from tidegate.airflow.ui import access

    for route in app.routes:
        dependencies = {one.call for one in route.dependant.dependencies}  # type: ignore[attr-defined]
        assert get_user in dependencies, route
        if "{dag_id}" in route.path:  # type: ignore[attr-defined]
            assert access.may_read_dag in dependencies, route


def test_a_slow_look_is_given_up_and_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    patience, go, looks = Patience(), threading.Event(), []

    def look() -> str:
        looks.append(1)
        go.wait(10)
        return "found"

    assert patience.ask("key", look, 0.05) is None
    assert patience.ask("key", look, 0.05) is None
    go.set()
    deadline = time.monotonic() + 10
    while patience._looks["key"].ended is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert patience.ask("key", look, 0) == "found", "what was given up is kept for the one who asks again"
    assert (looks, patience._looks) == ([1], {})
    assert patience.ask("key", look, 5) == "found" and looks == [1, 1], "and looked at anew by the next one"


def test_who_comes_later_does_not_wait_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a disk that hangs keeps a thread of Airflow's server for each page that is loaded again."""
    monkeypatch.setattr("tidegate.airflow.ui.served._AGAIN_SECONDS", 0.01)
    go, kept, waited = threading.Event(), Patience(), []

    def count(looks: Sequence[Future[object]], seconds: float) -> Any:
        waited.append(seconds)
        return wait(looks, 0)

    monkeypatch.setattr("tidegate.airflow.ui.served.wait", count)
    for later in (0.0, 5.0, 20.0):
        clock = SimpleNamespace(monotonic=partial(float, 1000 + later))
        monkeypatch.setattr("tidegate.airflow.ui.served.time", clock)
        assert kept.ask("key", partial(go.wait, 10), 8) is None
    go.set()
    assert [round(one, 1) for one in waited] == [8, 3, 0.0]


def test_few_wait_for_as_long_as_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or pages of a disk that hangs take every thread of Airflow's server, and no other page is answered."""
    go, all_wait, waited = threading.Event(), threading.Barrier(21), list[float]()

    def hold(looks: Sequence[Future[object]], seconds: float) -> Any:
        waited.append(seconds)
        all_wait.wait(30)
        return wait(looks, 0)

    monkeypatch.setattr("tidegate.airflow.ui.served.wait", hold)
    asked = [Patience(), Patience()]

    def ask(number: int) -> None:
        assert asked[number % 2].ask(number, partial(go.wait, 30), 8) is None

    people = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for one in people:
        one.start()
    all_wait.wait(30)
    for one in people:
        one.join(30)
    assert sorted(waited) == [1] * 4 + [8] * 16
    all_wait = threading.Barrier(1)
    asked[0].ask("later", partial(go.wait, 30), 8)
    assert waited[-1] == 8, "the places are given back"
    go.set()


def test_what_nobody_asks_for_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    go, kept = threading.Event(), Patience()
    assert kept.ask("old", partial(go.wait, 10), 0) is None
    go.set()
    deadline = time.monotonic() + 10
    while kept._looks["old"].ended is None and time.monotonic() < deadline:
        time.sleep(0.01)
    monkeypatch.setattr("tidegate.airflow.ui.served._KEPT_SECONDS", 0)
    assert kept.ask("other", int, 5) == 0 and kept._looks == {}


def test_looks_that_never_come_back_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.airflow.ui.served._WAITING_AT_MOST", 3)
    go, begun, patience = threading.Event(), threading.Semaphore(0), Patience(at_once=2)

    def hang() -> None:
        begun.release()
        go.wait(120)

    try:
        for number in range(2):
            assert patience.ask(number, hang, 0) is None
            assert begun.acquire(timeout=30)
        assert patience.ask("pending", int, 0.05) is None, "both threads are taken"
        monkeypatch.setattr("tidegate.airflow.ui.served._STUCK_SECONDS", 0)
        assert patience.ask("next", partial(int, 7), 30) == 7
        for number in range(6):
            assert patience.ask(f"more {number}", hang, 0) is None
            assert begun.acquire(timeout=30)
        for number in range(5):
            assert patience.ask(f"too many {number}", int, 0) is None
        assert patience._workers == 8 and patience._waiting.qsize() == 3
    finally:
        go.set()


def test_the_fault_of_a_look_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a disk whose server does not answer among them: it is no sign that the look goes on."""

    def look() -> None:
        raise TimeoutError("Connection timed out")

    asked = Patience()
    with pytest.raises(TimeoutError, match="Connection timed out"):
        asked.ask("key", look, 5)
    assert asked._looks == {}


def test_a_server_ends_while_a_look_hangs() -> None:
    text = (
        "import threading\nfrom tidegate.airflow.ui.served import Patience\n"
        "print(Patience().ask('key', threading.Event().wait, 0.1))"
    )
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "None\n"), ended.stderr


def test_looks_that_are_done_at_once_are_given() -> None:
    patience = Patience()
    for number in range(500):
        assert patience.ask(number, partial(int, number), 30) == number
    assert patience._looks == {}


def test_names_that_are_not_unicode_and_figures_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a file may be any bytes; it stands in errors and notes as Python has it."""
    made = make_many(tmp_path / "p", len(SCENES), 2)
    name = made.scenes["failing"]
    paths = made.project.paths(name)
    report = read_newest(paths, 1)[0][0]
    assert report.error is not None
    report.error["message"], report.notes = "caf\udce9.json is gone", ["caf\udce9.json \x1b[2J\u202e"]
    report.quality["results"][0]["observed_value"] = float("nan")
    storage.replace(paths.report("r\ud800"), storage.dump_json({**report.view(), "run_id": "r\ud800"}))
    save_report(paths, report)
    with TestClient(make_app(tmp_path / "p", patch=monkeypatch), headers={"accept": "text/html"}) as client:
        run = f"/tidegate/dags/{name}/run?run_id={report.run_id.replace('+', '%2B')}"
        for address in ("/tidegate/pipelines", f"/tidegate/dags/{name}", run):
            answer = client.get(address)
            assert answer.status_code == 200 and "caf\\udce9.json is gone" in answer.text, address
            assert not set("\x1b\u202e") & set(answer.text), address
        assert "caf\\udce9.json \\u001b[2J\\u202e" in answer.text
        runs = client.get(f"/tidegate/dags/{name}/runs").json()["runs"]
        assert len(runs) == 3 and any("caf\udce9.json" in (one["error"] or {}).get("message", "") for one in runs)


def test_a_verdict_of_anything_leaves_the_page_of_all_pipelines_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_many(tmp_path / "p", len(SCENES), 2)
    name = made.scenes["held"]
    [path] = made.project.paths(name).verdicts.glob("*.json")
    verdict = json.loads(path.read_text())
    with TestClient(make_app(tmp_path / "p", patch=monkeypatch), headers={"accept": "text/html"}) as client:
        for more in ({"reasons": [3, None]}, {"reasons": 7}, {"at": "yesterday"}, {"at": 5}, {"batches": "x"}):
            path.write_text(json.dumps({**verdict, **more}))
            for address in ("/tidegate/pipelines", f"/tidegate/dags/{name}"):
                assert client.get(address).status_code == 200, (more, address)


def test_a_report_that_cannot_be_read_is_an_error_in_words(client: TestClient, made: Made) -> None:
    paths = made.project.paths(made.scenes["torn"])
    torn = max(paths.runs.glob("*.json"))
    answer = client.get(
        f"/tidegate/dags/{paths.name}/runs/{quote(unquote(torn.stem), safe='')}", headers={"accept": "*/*"}
    )
    assert answer.status_code == 409 and answer.json()["error"]["code"] == "STATE_FILE_UNREADABLE"
    assert "content-security-policy" in client.get("/tidegate/nothing", headers={"accept": "*/*"}).headers


def let_go_of(pipe: Path) -> None:
    """End the waiting of whoever reads the pipe, which is gone then."""
    writing = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    pipe.unlink()
    time.sleep(0.5)
    os.close(writing)


def test_a_disk_that_does_not_answer_keeps_no_page_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that nobody writes stands for it: opening it waits."""
    from tidegate.airflow.ui import served

    made = make_many(tmp_path / "p", len(SCENES), 2)
    name = made.scenes["late"]
    pipe = made.project.paths(name).report("manual__2026-01-01T00:00:00+00:00")
    os.mkfifo(pipe)
    monkeypatch.setattr(served, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(served, "for_pages", Patience())
    dag = f"/tidegate/dags/{name}"
    places = [dag, f"{dag}/runs"]
    places += [f"{dag}/{one}manual__2026-01-01T00%3A00%3A00%2B00%3A00" for one in ("run?run_id=", "runs/")]
    try:
        with TestClient(make_app(tmp_path / "p", patch=monkeypatch), headers={"accept": "text/html"}) as client:
            for place in places:
                answer = client.get(place)
                assert answer.status_code == 503 and "disk takes longer" in answer.text, place
            monkeypatch.setattr(served, "PATIENCE_SECONDS", 3)  # the others answer in time on a busy machine too
            page = client.get("/tidegate/pipelines")
            assert page.status_code == 200 and f"{name} does not answer" in page.text
            assert all(other in page.text for other in made.scenes.values()), "the others are shown all the same"
            monkeypatch.setattr(served, "PATIENCE_SECONDS", 30)
            assert client.get(f"/tidegate/dags/{made.scenes['windows']}").status_code == 200
    finally:
        let_go_of(pipe)


def test_a_dry_run_that_takes_long_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.airflow.ui import plans

    made = make_many(tmp_path / "p", len(SCENES) + 1, 2)
    name, other = made.scenes["late"], made.scenes["well"]
    spec = made.project.paths(name).job / "pipeline.yaml"
    text = spec.read_bytes()
    spec.unlink()
    os.mkfifo(spec)
    monkeypatch.setattr(plans, "DRY_RUN_SECONDS", 0.2)
    actions = f"/tidegate/dags/{name}/actions"
    with TestClient(make_app(tmp_path / "p", patch=monkeypatch), headers={"accept": "text/html"}) as client:
        for asked in ("backfill?first=2026-01-01&last=2026-01-02", "refresh?look=yes", "replay?look=yes"):
            page = client.get(f"{actions}/{asked}")
            assert page.status_code == 200 and "taking longer than" in page.text and "Ask again" in page.text
            assert 'method="post"' not in page.text, "nothing is done without its plan"
        assert client.get(f"/tidegate/dags/{other}/actions/run").status_code == 200
        let_go_of(spec)
        spec.write_bytes(text)
        monkeypatch.setattr(plans, "DRY_RUN_SECONDS", 30)
        assert "taking longer than" not in client.get(f"{actions}/refresh?look=yes").text


def test_a_run_of_airflow_without_a_report(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits is followed; of one that has ended the page says so, and where its decision is told."""
    runs = {
        "waiting": {"state": "queued", "decides_on": None, "refused": None},
        "decider": {"state": "success", "decides_on": "manual__<1>", "refused": None},
        "refused": {"state": "failed", "decides_on": None, "refused": None},
    }
    told = {
        "waiting": "it waits for its turn",
        "decider": "It carried out a decision on",
        "refused": "the log of its task says why",
        "nobody": "Neither Airflow nor the project has a run of this name",
    }
    with TestClient(
        make_app(made.project.root, patch=monkeypatch, runs=runs), headers={"accept": "text/html"}
    ) as client:
        for run_id, text in told.items():
            page = client.get(f"/tidegate/dags/{made.scenes['well']}/run?run_id={run_id}").text
            assert text in page, run_id
            assert ("data-live=" in page) == (run_id == "waiting")
            assert "manual__<1>" not in page


@pytest.mark.parametrize(("query", "what"), [("?runs=many", "runs: "), ("/run", "run_id: Field required")])
def test_an_address_that_cannot_be_used_is_told_as_a_page(
    client: TestClient, made: Made, query: str, what: str
) -> None:
    answer = client.get(f"/tidegate/dags/{made.scenes['well']}{query}")
    assert answer.status_code == 422 and "This did not work" in answer.text and what in answer.text
    assert client.get(f"/tidegate/dags/{made.scenes['well']}{query}", headers={"accept": "*/*"}).json()["detail"]


def test_who_may_do_nothing_is_told_too_that_the_dag_is_paused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.airflow.ui import access

    with TestClient(make_app(made.project.root, patch=monkeypatch), headers={"accept": "text/html"}) as client:
        none = {"trigger": False, "edit": False, "decide": False}
        monkeypatch.setattr(access, "list_rights", lambda user, dag_id: none)
        monkeypatch.setattr(access, "is_paused", lambda dag_id: True)
        page = client.get(f"/tidegate/dags/{made.scenes['behind']}").text
    assert "The DAG is paused" in page and "Unpause" not in page
