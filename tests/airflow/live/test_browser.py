"""Airflow and tidegate's pages in it, in Chromium, as people use them: every page, every action, light and dark, narrow
and wide, for each role. Where there is no Chromium these tests are skipped."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

from selenium.webdriver.common.by import By

from tests.airflow.acting import list_audit
from tests.airflow.browser import Browser, check_page, open_browser, see_all, set_window
from tests.airflow.live.project import HISTORY, set_daily_factor, set_lowest_price
from tests.airflow.live.scene import (
    Live,
    hold,
    list_backfills,
    publish_daily,
    read_commits,
    wait_for,
)

_WIDE, _NARROW = 1400, 390


@contextlib.contextmanager
def open_as(live: Live, name: str, pictures: Path) -> Iterator[Browser]:
    """A browser in which somebody has logged in."""
    with open_browser(live.client if name == live.client.user else live.log_in(name), pictures) as browser:
        set_window(browser.driver, _WIDE)
        yield browser


def find_newest_run(live: Live, dag_id: str) -> str:
    """The newest run that published records that had come in."""
    paths = (live.root / "data" / "state" / dag_id / "runs").glob("*[!l].json")
    reports = [json.loads(path.read_text()) for path in paths]
    took = [one for one in reports if (one["mode"], one["outcome"]) == ("incremental", "published")]
    return str(max(took, key=lambda one: str(one["started_at"]))["run_id"])


@contextlib.contextmanager
def serve_history() -> Iterator[list[tuple[str, str | None]]]:
    """What stands where the project says that Spark's history server is; the (path, referer) of each request to it."""
    asked: list[tuple[str, str | None]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Referer"]))
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", urlsplit(HISTORY).port or 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


def test_every_page(live: Live, tmp_path: Path) -> None:
    """With real runs, light and dark: wide in Airflow's frame; narrow by themselves, since Airflow's own page around
    the frame is wider than a phone."""
    publish_daily(live)
    run_id = quote(find_newest_run(live, "daily"), safe=":")
    pages = {
        "daily": ("plugin/tidegate-pipelines", "tidegate/pipelines"),
        "price_not_negative": ("dags/daily/plugin/tidegate", "tidegate/dags/daily"),
        "Where the records went": (
            f"dags/daily/runs/{run_id}/plugin/tidegate-run",
            f"tidegate/dags/daily/run?run_id={run_id}",
        ),
    }
    with open_as(live, "uma", tmp_path) as browser:
        chrome = browser.driver
        for text, (framed, bare) in pages.items():
            for width, page in ((_WIDE, framed), (_NARROW, bare)):
                set_window(chrome, width)
                chrome.get_log("browser")
                browser.enter(page, is_framed=page == framed)
                assert text in chrome.find_element(By.TAG_NAME, "main").text
                for scheme in ("light", "dark"):
                    see_all(chrome, width, scheme)
                    check_page(chrome, scheme, f"{page} {width} {scheme}")


def test_spark_has_pages_of_its_own_outside_of_the_frame(live: Live, tmp_path: Path) -> None:
    """In a tab of its own, which is not told where it was led from."""
    publish_daily(live)
    run_id = find_newest_run(live, "daily")
    with open_as(live, "vera", tmp_path) as browser, serve_history() as asked:
        browser.enter(f"dags/daily/runs/{quote(run_id, safe=':')}/plugin/tidegate-run")
        browser.press_link("Spark history of local-")
        wait_for(lambda: any(path.startswith("/history/local-") for path, _ in asked))
        assert {referer for _, referer in asked} == {None}
        assert len(browser.driver.window_handles) == 2


def test_every_role_sees_what_it_may(live: Live, tmp_path: Path) -> None:
    acts = ["Run now", "Backfill", "Refresh", "Replay quarantine", "Pause"]
    for name, offered in (("vera", []), ("uma", acts), (live.client.user, acts)):
        with open_as(live, name, tmp_path) as browser:
            chrome = browser.driver
            browser.enter("plugin/tidegate-pipelines")
            assert {"quiet", "strict"} <= {one.text for one in chrome.find_elements(By.CSS_SELECTOR, ".name")}
            browser.enter("dags/quiet/plugin/tidegate")
            found = chrome.find_elements(By.CSS_SELECTOR, "nav[aria-label=Actions] a")
            assert [one.text for one in found] == offered, name
            chrome.get(f"{live.client.url}/tidegate/dags/quiet/actions/run")
            refused = "You are not allowed to see this" in chrome.find_element(By.TAG_NAME, "body").text
            assert refused == (not offered), name
            chrome.delete_all_cookies()
            for page in ("pipelines", "dags/quiet", "dags/quiet/actions/run", "dags/quiet/parts/table"):
                chrome.get(f"{live.client.url}/tidegate/{page}")
                text = chrome.find_element(By.TAG_NAME, "body").text
                assert "quiet" not in text and "Not authenticated" in text, "nobody is logged in any more"


def test_every_action_on_days_and_records(live: Live, tmp_path: Path) -> None:
    """Backfill, refresh, replay of a record that the corrected suite lets pass, pause and unpause: pressed on the page
    of the pipeline, and done by the real scheduler."""
    publish_daily(live)

    def finish(told: str) -> str:
        assert "was started" in told
        run_id = next(word for word in told.split() if word.startswith("manual__"))
        assert live.client.wait_for_dag_run("daily", run_id, 240)["state"] == "success"
        return run_id

    with open_as(live, "uma", tmp_path) as browser:
        page = "dags/daily/plugin/tidegate"
        before = live.read_prices("daily")
        set_daily_factor(live.root, 11)
        browser.enter(page)
        browser.open_action("Backfill")
        browser.fill(first="01012026", last="01012026")
        assert "day=2026-01-01" in browser.see_plan()
        run_id = finish(browser.confirm())
        assert live.read_prices("daily") == {**before, "2026-01-01": 11.0}
        assert live.client.fetch_xcom("daily", run_id, "publish")["mode"] == "backfill"
        assert live.client.call("GET", f"dags/daily/dagRuns/{run_id}")["triggering_user_name"] == "uma"

        browser.enter(page)
        browser.open_action("Refresh")
        assert "whole table" in browser.see_plan()
        run_id = finish(browser.confirm())
        assert live.client.fetch_xcom("daily", run_id, "publish")["mode"] == "refresh"
        assert set(live.read_prices("daily").values()) == {11.0} and 50 not in live.read_ids("daily")

        set_lowest_price(live.root, -100)
        browser.enter(page)
        browser.open_action("Replay")
        plan = browser.see_plan()
        assert "1 record would be replayed" in plan and "price_not_negative" in plan
        run_id = finish(browser.confirm())
        assert live.client.fetch_xcom("daily", run_id, "publish")["mode"] == "replay"
        assert live.read_ids("daily").count(50) == 1
        browser.enter(page)
        browser.open_action("Replay")
        assert "There is nothing to replay" in browser.see_plan()

        for action, told, paused in (("Pause", "The DAG is paused", True), ("Unpause", "The DAG is unpaused", False)):
            browser.enter(page)
            browser.open_action(action)
            assert told in browser.confirm()
            assert live.client.call("GET", "dags/daily")["is_paused"] is paused


def test_a_decision_on_the_page(live: Live, tmp_path: Path) -> None:
    """*Decide* on the page of the pipeline: the run that waits goes on, and who, when and why are kept."""
    run_id, _ = hold(live, "strict", "pressed", [(60, -6.0)])
    reason = "geprüft: <b>größer</b> als nötig"
    with open_as(live, "uma", tmp_path) as browser:
        browser.enter("dags/strict/plugin/tidegate")
        browser.open_action("Decide")
        browser.fill(decision="release", reason=reason)
        assert f"Your decision on run {run_id}" in browser.confirm()
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    ruling = live.client.fetch_xcom("strict", run_id, "publish")["decision"]
    assert (ruling["decision"], ruling["who"], ruling["reason"]) == ("release", "uma (Airflow)", reason)
    assert ("uma", run_id) in list_audit(live.client, "strict", "update_hitl_detail")
    assert 60 in live.read_ids("strict")


def test_a_backfill_and_an_answer_with_airflows_own_buttons(live: Live, tmp_path: Path) -> None:
    """The button *Run Backfill* and a Required Action, as a person clicks them."""
    reason = "geprüft: größer als nötig"
    with open_browser(live.client, tmp_path) as browser:
        publish_daily(live)
        before, made = live.read_prices("daily"), len(list_backfills(live))
        set_daily_factor(live.root, 9)
        run_id, action = hold(live, "strict", "clicked", [(6, -6.0)])
        browser.backfill("daily", "2026/01/01", "2026/01/02")
        wait_for(lambda: len(list_backfills(live)) == made + 2, 60)
        browser.answer(action["subject"], "Release", reason)
        for run in list_backfills(live)[made:]:
            assert live.client.wait_for_dag_run("daily", run["dag_run_id"], 240)["state"] == "success"
        assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    assert live.read_prices("daily") == {**before, "2026-01-01": 9.0, "2026-01-02": 9.0}
    assert 6 in live.read_ids("strict")
    ruling = live.client.fetch_xcom("strict", run_id, "publish")["decision"]
    assert (ruling["who"], ruling["reason"]) == (f"{live.client.user} (Airflow)", reason)
    assert json.loads(read_commits(live, "strict")[-1]["tidegate.decision"]) == ruling


def test_run_now_by_keyboard(live: Live, tmp_path: Path) -> None:
    """In Airflow's own page around the frame."""
    before = len(live.client.list_dag_runs("quiet"))
    with open_browser(live.client, tmp_path) as browser:
        browser.run_now("quiet")
        wait_for(lambda: len(live.client.list_dag_runs("quiet")) == before + 1, 60)
    run_id = live.client.list_dag_runs("quiet")[-1]["dag_run_id"]
    assert live.client.wait_for_dag_run("quiet", run_id)["triggering_user_name"] == live.client.user
