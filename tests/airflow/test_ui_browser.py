"""The pages in Chromium, without Airflow around them: charts under the strict policy, light and dark, narrow and wide,
by keyboard, axe's rules, and what changes while somebody looks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.airflow.browser import check_page, see_all, set_window, start_chromium
from tests.support.many_runs import SCENES, Made, make_many
from tests.support.ui_server import make_app
from tidegate.core.paths import encode_run_id
from tidegate.views.pages import pipelines
from tools.processes import choose_free_port

_PATIENCE_SECONDS = 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = make_many(tmp_path_factory.mktemp("many") / "project", len(SCENES) + 2, 30, kafka_share=0)
    (made.project.root / "tidegate.yaml").write_text("version: 1\nui: {show_data: true}\n")
    return made


@pytest.fixture(scope="module")
def address(made: Made) -> Iterator[str]:
    patch, port = pytest.MonkeyPatch(), choose_free_port()
    config = uvicorn.Config(make_app(made.project.root, patch=patch), host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/tidegate"
    server.should_exit = True
    thread.join(10)
    patch.undo()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with start_chromium() as found:
        yield found


def show(chrome: Chrome, address: str, width: int = 1400, scheme: str = "light") -> None:
    """A page, in a window of this width on a system that is light or dark."""
    set_window(chrome, width, scheme)
    chrome.get_log("browser")
    chrome.get(address)
    wait(chrome, lambda: chrome.execute_script("return document.body.dataset.ready !== undefined"))


def wait(chrome: Chrome, condition: Callable[[], Any]) -> Any:
    """What the condition gives. What was replaced while it was looked at is looked at again."""
    waiting = WebDriverWait(chrome, _PATIENCE_SECONDS, 0.1, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(lambda _: condition())


def run_address(made: Made, address: str, scene: str) -> str:
    name = made.scenes[scene]
    run_id = pipelines.look_at(made.project, name).runs[0].run_id.replace("+", "%2B")
    return f"{address}/dags/{name}/run?run_id={run_id}"


def list_pages(made: Made, address: str) -> list[str]:
    return [
        f"{address}/pipelines",
        f"{address}/dags/{made.scenes['held']}",
        f"{address}/dags/{made.scenes['broken']}",
        run_address(made, address, "held"),
        run_address(made, address, "windows"),
        run_address(made, address, "odd"),
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (320, "dark")])
def test_pages_are_whole_under_the_policy_and_pass_axe(
    chrome: Chrome, made: Made, address: str, width: int, scheme: str
) -> None:
    """In a frame of Airflow's all four: live/test_browser.py."""
    for page in list_pages(made, address):
        show(chrome, page, width, scheme)
        see_all(chrome, width, scheme)
        check_page(chrome, scheme, page)


def test_charts_have_their_canvas_and_their_figures_as_text(chrome: Chrome, made: Made, address: str) -> None:
    show(chrome, run_address(made, address, "held"))
    see_all(chrome, 1400)
    assert chrome.find_element(By.CSS_SELECTOR, "[data-chart=flow] canvas").size["width"] > 300
    balance = chrome.find_element(By.CSS_SELECTOR, ".balance").text
    name = made.scenes["held"]
    rows = pipelines.look_at(made.project, name).runs[0].rows
    for key in ("read", "malformed", "transformed", "rejected", "staged"):
        assert f"{rows[key]:,}" in balance


def test_a_click_on_a_bar_leads_to_its_run(chrome: Chrome, made: Made, address: str) -> None:
    show(chrome, f"{address}/dags/{made.scenes['well']}")
    canvas = wait(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "[data-chart=rows] canvas"))[0]
    canvas.click()
    wait(chrome, lambda: "/run?run_id=" in chrome.current_url)


def test_pipelines_are_sorted_and_chosen_by_keyboard(chrome: Chrome, made: Made, address: str) -> None:
    show(chrome, f"{address}/pipelines")

    def names() -> list[str]:
        found = chrome.find_elements(By.CSS_SELECTOR, "#pipelines tbody tr:not([hidden]) .name")
        return [one.text for one in found]

    everything = names()
    button = chrome.find_element(By.CSS_SELECTOR, "th[data-sort=published] button")
    button.send_keys(Keys.ENTER)
    published = {row.pipeline: row.published for row in (pipelines.look_at(made.project, one) for one in everything)}
    assert [published[one] for one in names()] == sorted(published.values(), reverse=True)
    chip = chrome.find_element(By.CSS_SELECTOR, "[data-filter=held]")
    chip.send_keys(Keys.SPACE)
    assert names() == [made.scenes["held"]] and chip.get_attribute("aria-pressed") == "true"
    chip.send_keys(Keys.SPACE)
    field = chrome.find_element(By.ID, "find")
    field.send_keys(made.scenes["late"])
    assert names() == [made.scenes["late"]]
    assert chrome.find_element(By.ID, "announce").get_attribute("textContent") == f"1 of {len(everything)} pipelines"


def test_pipelines_are_sorted_by_what_was_fetched_later(chrome: Chrome, address: str) -> None:
    show(chrome, f"{address}/pipelines")
    see_all(chrome, 1400)
    wait(chrome, lambda: not chrome.find_elements(By.CSS_SELECTOR, "td[data-part] .wait"))
    # Nothing is pending in these projects: figures to sort by take the place of what was fetched.
    figures = "document.querySelectorAll('#pipelines [data-backlog]')"
    chrome.execute_script(f"{figures}.forEach((one, number) => one.dataset.backlog = (number + 1) * 7 % 5)")
    chrome.find_element(By.CSS_SELECTOR, "th[data-sort=backlog] button").send_keys(Keys.ENTER)
    found = chrome.execute_script(f"return Array.from({figures}, (one) => Number(one.dataset.backlog))")
    assert len(found) > 2 and found == sorted(found, reverse=True)


def test_a_run_that_goes_on_is_followed_to_its_end(chrome: Chrome, made: Made, address: str) -> None:
    name = made.scenes["running"]
    run = pipelines.look_at(made.project, name).runs[0]
    show(chrome, run_address(made, address, "running"))
    assert chrome.find_element(By.CSS_SELECTOR, ".headline .state").text == "running"
    path = made.project.paths(name).runs / f"{encode_run_id(run.run_id)}.json"
    before = path.read_text()
    report = json.loads(before)
    report |= {"outcome": "published", "ended_at": report["started_at"]}
    report["rows"]["published"] = report["rows"]["staged"]
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps(report))
    beside.rename(path)
    wait(chrome, lambda: chrome.find_element(By.CSS_SELECTOR, ".headline .state").text == "published")
    assert f"{report['rows']['published']:,}" in chrome.find_element(By.CSS_SELECTOR, ".figures").text
    path.write_text(before)


def test_a_page_says_that_it_is_not_renewed(chrome: Chrome, made: Made, address: str) -> None:
    show(chrome, run_address(made, address, "running"))
    away = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    chrome.execute_cdp_cmd("Network.enable", {})
    chrome.execute_cdp_cmd("Network.emulateNetworkConditions", away)
    try:
        told = wait(chrome, lambda: chrome.find_elements(By.ID, "stale"))[0].text
        assert told.startswith("Not updated since 20") and "the server does not answer" in told
    finally:
        back = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        chrome.execute_cdp_cmd("Network.emulateNetworkConditions", back)
    wait(chrome, lambda: not chrome.find_elements(By.ID, "stale"))


def test_without_script_a_page_is_complete(chrome: Chrome, made: Made, address: str) -> None:
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chrome.get(f"{address}/dags/{made.scenes['well']}")
        link = chrome.find_element(By.CSS_SELECTOR, "#table .wait a")
        chrome.get(str(link.get_attribute("href")))
        assert "Rows per file" in chrome.find_element(By.TAG_NAME, "main").text
    finally:
        chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
