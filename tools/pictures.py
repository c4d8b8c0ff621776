"""Pictures of the pages in Airflow, in ``docs/images/``: what `make pictures` calls.

They are of the demonstration, which must be running (`make run`), in headless Chromium. What names this machine is
written over before a picture is taken: the folder of the project, the host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as until
from selenium.webdriver.support.wait import WebDriverWait

from tools.airflow_local import Airflow, find_airflow
from tools.chromium import PATIENCE_SECONDS, log_in, start_chromium
from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.demo import HELD

FOLDER = REPO_ROOT / "docs" / "images"
BYTES_AT_MOST = 150_000
_WIDE, _PHONE = (1200, 720), (390, 844)
_WRITE_OVER = """
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode())
  for (const [old, other] of arguments[0])
    walk.currentNode.data = walk.currentNode.data.replace(new RegExp(old, 'g'), other);
return document.body.innerText;
"""
_UNDRAWN = """
return [...document.querySelectorAll('[data-chart]:not([data-drawn]), [data-spark]:not([data-drawn]), [data-part]')]
  .filter(one => !one.matches('[data-part]') || one.querySelector(':scope > .wait') || one.matches('[aria-busy]'))
  .filter(one => { const box = one.getBoundingClientRect(); return box.top < innerHeight && box.bottom > 0; }).length;
"""


@dataclass(frozen=True)
class Picture:
    """A page of Airflow (``place``), and what is done in the frame with ours before it is taken: the link or button
    that is pressed, the element that is scrolled to."""

    name: str
    place: str
    size: tuple[int, int] = _WIDE
    theme: str = "light"
    click: str = ""
    scroll_to: str = ""


def list_pictures(held_run: str) -> list[Picture]:
    """All of them; ``held_run`` is the run that waits for a person."""
    nav, dag = "/plugin/tidegate-pipelines", f"/dags/{HELD}/plugin/tidegate"
    run = f"/dags/{HELD}/runs/{quote(held_run, safe=':+@~')}/plugin/tidegate-run"
    return [
        Picture("pipelines", nav),
        Picture("pipelines-dark", nav, theme="dark"),
        Picture("pipelines-phone", "/tidegate/pipelines", _PHONE),
        Picture("pipeline", "/dags/students/plugin/tidegate"),
        Picture("pipeline-history", "/dags/clicks/plugin/tidegate", scroll_to="[data-refresh=history]"),
        Picture("pipeline-quarantine", "/dags/students/plugin/tidegate", scroll_to="#quarantine"),
        Picture("run", run, scroll_to="[data-refresh=flow]"),
        Picture(
            "run-phone", f"/tidegate/dags/{HELD}/run?run_id={quote(held_run, safe='')}", _PHONE, scroll_to=".figures"
        ),
        Picture("decide", dag, (1200, 900), click="Decide"),
        Picture("backfill-dark", dag, theme="dark", click="Backfill"),
    ]


def take_pictures() -> None:
    """Take all of them. Raises ToolError when the demonstration does not run, or nothing of it is held."""
    airflow = find_airflow()
    if airflow is None:
        raise ToolError("the demonstration is not running", "make run")
    pictures = list_pictures(_find_held_run())
    FOLDER.mkdir(exist_ok=True)
    with start_chromium("--hide-scrollbars") as chrome:
        log_in(chrome, airflow.client)
        for picture in pictures:
            data = _take(chrome, airflow, picture)
            if len(data) > BYTES_AT_MOST:
                raise ToolError(f"{picture.name} has {len(data):,} bytes, more than {BYTES_AT_MOST:,}")
            (FOLDER / f"{picture.name}.png").write_bytes(data)
            say(f"pictures: {picture.name}, {len(data) / 1000:.0f} kB")


def _find_held_run() -> str:
    from tidegate.rework.held import list_held_work
    from tidegate.spec.project import load_project

    found = list_held_work(load_project(REPO_ROOT).paths(HELD))
    if not found:
        raise ToolError(f"nothing of {HELD} waits for a decision any more", "make run, which leaves it so")
    return found[0]["run_id"]


def _take(chrome: Chrome, airflow: Airflow, picture: Picture) -> bytes:
    width, height = picture.size
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": picture.theme}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    chrome.execute_script("localStorage.setItem('theme', arguments[0])", picture.theme)
    chrome.get(f"{airflow.url}{picture.place}")
    if not picture.place.startswith("/tidegate/"):
        _wait(chrome, until.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe")))
    _wait(chrome, lambda one: one.execute_script("return document.body?.dataset.ready !== undefined"))
    if picture.scroll_to:
        chrome.execute_script("document.querySelector(arguments[0]).scrollIntoView()", picture.scroll_to)
    if picture.click:
        link = f"//a[@data-dialog and starts-with(normalize-space(.), '{picture.click}')]"
        _wait(chrome, until.element_to_be_clickable((By.XPATH, link))).click()
        _wait(chrome, until.visibility_of_element_located((By.CSS_SELECTOR, "dialog[open] form")))
    _wait(chrome, lambda one: one.execute_script(_UNDRAWN) == 0)
    if picture.scroll_to:  # what has come meanwhile has moved it
        chrome.execute_script("document.querySelector(arguments[0]).scrollIntoView()", picture.scroll_to)
        _wait(chrome, lambda one: one.execute_script(_UNDRAWN) == 0)
    _write_over(chrome)
    chrome.switch_to.default_content()
    _write_over(chrome)
    return bytes(chrome.get_screenshot_as_png())


def _write_over(chrome: Chrome) -> None:
    folder, host = _escape(str(REPO_ROOT)), _escape(socket.gethostname())
    others = [(f"{folder}/", ""), (folder, "."), (rf"\b{host}\b", "host")]
    text = chrome.execute_script(_WRITE_OVER, others)
    shown = next((found for old, _ in others if (found := re.search(old, text))), None)
    if shown is not None:
        raise ToolError(f"a page still shows {shown[0]}")


def _escape(text: str) -> str:
    """As a part of a pattern, for Python and JavaScript alike."""
    return re.sub(r"[^\w/-]", lambda found: f"\\{found[0]}", text)


def _wait(chrome: Chrome, condition: Callable[[Chrome], Any]) -> Any:
    patience = WebDriverWait(chrome, PATIENCE_SECONDS, 0.3, ignored_exceptions=[StaleElementReferenceException])
    return patience.until(condition)


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    if arguments:
        raise ToolError("it takes no arguments", "make pictures")
    take_pictures()
    return 0


if __name__ == "__main__":
    run_main(main)
