"""Airflow's pages in headless Chromium, as a person uses them: what is clicked and typed, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as until
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.examples import REPOSITORY
from tools import chromium
from tools.airflow_client import AirflowClient
from tools.chromium import PATIENCE_SECONDS, log_in
from tools.console import ToolError

AXE = REPOSITORY / "ui" / "node_modules" / "axe-core" / "axe.min.js"
"""There once the script of the pages was built or checked on this machine."""


class Browser:
    """Airflow's UI with somebody logged in."""

    def __init__(self, driver: Chrome, client: AirflowClient) -> None:
        self.driver = driver
        self.client = client

    def log_in(self) -> None:
        """At Airflow's own login page."""
        log_in(self.driver, self.client)

    def backfill(self, dag_id: str, first: str, last: str) -> None:
        """*Trigger*, *Backfill*, a date range (days like 2026/01/31), *Run Backfill*."""
        self.driver.get(f"{self.client.url}/dags/{dag_id}")
        self._click(By.CSS_SELECTOR, "[data-testid=trigger-dag-button]")
        self._click(By.XPATH, "//*[@role='dialog']//*[normalize-space(text())='Backfill']")
        for place, day in ((0, first), (1, last)):
            self._wait(lambda _: len(self._pickers()) == 2)
            self._pickers()[place].click()
            field = self._find(By.CSS_SELECTOR, "[data-state=open] input[placeholder='YYYY/MM/DD']")
            field.send_keys(day, Keys.ENTER)
            self.driver.find_element(By.XPATH, "//*[normalize-space(text())='Date Range']").click()
            self._wait(until.invisibility_of_element(field))
        self._click(By.XPATH, "//button[normalize-space(.)='Run Backfill' and not(@disabled)]")

    def answer(self, subject: str, choice: str, reason: str) -> None:
        """Browse the required actions, open one, type the reason, press the choice."""
        self.driver.get(f"{self.client.url}/required_actions")
        self._click(By.LINK_TEXT, subject)
        self._find(By.NAME, "element_reason").send_keys(reason)
        self._click(By.CSS_SELECTOR, f"[data-testid='hitl-option-{choice}']")

    def run_now(self, dag_id: str) -> None:
        """The tab *Tidegate* of a DAG, *Run now*, and again in the dialog, with Enter."""
        self.enter(f"dags/{dag_id}/plugin/tidegate")
        self._find(By.LINK_TEXT, "Run now").send_keys(Keys.ENTER)
        self._find(By.CSS_SELECTOR, "dialog[open] form button").send_keys(Keys.ENTER)
        self._find(By.XPATH, "//*[@role='status']//p[contains(., 'was started')]")
        self.driver.switch_to.default_content()

    def enter(self, path: str, *, is_framed: bool = True) -> None:
        """A page of Airflow's that has one of tidegate's in a frame, in which everything is from here on; or tidegate's
        by itself."""
        self.driver.switch_to.default_content()
        self.driver.get(f"{self.client.url}/{path}")
        if is_framed:
            self._wait(until.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe")))
        self._wait(lambda chrome: chrome.execute_script("return document.body?.dataset.ready !== undefined"))

    def press_link(self, name: str) -> None:
        """A link, by what it begins with."""
        self._click(By.PARTIAL_LINK_TEXT, name)

    def open_action(self, name: str) -> None:
        """Press an action's button, which opens its dialog. ``name`` is what the button begins with."""
        self._click(By.XPATH, f"//a[@data-dialog and starts-with(normalize-space(.), '{name}')]")
        self._find(By.CSS_SELECTOR, "dialog[open]")

    def fill(self, **fields: str) -> None:
        """Type into fields of the dialog; of those with choices, press one."""
        for name, value in fields.items():
            found = self.driver.find_elements(By.CSS_SELECTOR, f"dialog[open] input[name={name}]")
            if found[0].get_attribute("type") == "radio":
                found = [one for one in found if one.get_attribute("value") == value]
                found[0].click()
            else:
                found[0].send_keys(value)

    def see_plan(self) -> str:
        """*See the plan*; what it says."""
        self._click(By.XPATH, "//dialog[@open]//button[normalize-space(.)='See the plan']")
        return str(self._find(By.CSS_SELECTOR, "dialog[open] [aria-labelledby=title-plan]").text)

    def confirm(self) -> str:
        """The button that does it; what the page says then."""
        self._click(By.CSS_SELECTOR, "dialog[open] form[method=post] button")
        return str(self._wait(lambda chrome: self._read_status()))

    def _read_status(self) -> str:
        """What was done, once the page is there again that the dialog was on; "" until then."""
        if self.driver.find_elements(By.CSS_SELECTOR, "dialog[open]"):
            return ""
        found = self.driver.find_elements(By.CSS_SELECTOR, "[role=status]")
        return found[0].text if found else ""

    def _pickers(self) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, "[role=dialog] [data-testid=datetime-input]")

    def _find(self, by: str, what: str) -> WebElement:
        found: WebElement = self._wait(until.element_to_be_clickable((by, what)))
        return found

    def _click(self, by: str, what: str) -> None:
        self._find(by, what).click()

    def _wait(self, condition: Callable[[Chrome], Any]) -> Any:
        ignored = [NoSuchElementException, StaleElementReferenceException]  # replaced while it was looked at
        return WebDriverWait(self.driver, PATIENCE_SECONDS, ignored_exceptions=ignored).until(condition)


def set_window(chrome: Chrome, width: int, scheme: str = "light", height: int = 900) -> None:
    """A window of this size, on a system that is ``light`` or ``dark``."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def check_page(chrome: Chrome, scheme: str, page: str) -> None:
    """The page, or the frame, that one is in, with every part of it: it has this scheme, is no wider than its window,
    its policy refused nothing, and axe finds nothing."""
    theme = "return document.documentElement.dataset.theme"
    WebDriverWait(chrome, PATIENCE_SECONDS).until(lambda _: chrome.execute_script(theme) == scheme, page)
    assert chrome.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), page
    complaints = [line["message"] for line in chrome.get_log("browser") if "/tidegate/" in line["message"]]
    complaints = [one for one in complaints if not one.endswith("can escape its sandboxing.")]  # of Airflow's frames
    assert complaints == [], f"{page}: {complaints}"
    if AXE.is_file():
        chrome.execute_script(AXE.read_text())
        found = chrome.execute_async_script("axe.run().then(arguments[0])")
        told = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]]
        assert told == [], f"{page}: {told}"


def see_all(chrome: Chrome, width: int, scheme: str = "light") -> None:
    """Open what is folded, and make the window as high as the page, so that every part is asked for and drawn."""
    chrome.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")

    def is_all_there() -> bool:
        height = chrome.execute_script("return document.documentElement.scrollHeight")
        set_window(chrome, width, scheme, max(height + 200, 900))
        left = "[data-chart]:not([data-drawn]), [data-spark]:not([data-drawn]), [aria-busy], main [data-part] > .wait"
        return not chrome.find_elements(By.CSS_SELECTOR, left)

    WebDriverWait(chrome, PATIENCE_SECONDS, 0.1).until(lambda _: is_all_there())


@contextlib.contextmanager
def start_chromium() -> Iterator[Chrome]:
    """Chromium without a window. Where there is none with its driver (Debian: chromium, chromium-driver) the test is
    skipped."""
    with contextlib.ExitStack() as stack:
        try:
            chrome = stack.enter_context(chromium.start_chromium())
        except ToolError as error:
            pytest.skip(str(error))
        yield chrome


@contextlib.contextmanager
def open_browser(client: AirflowClient, pictures: Path) -> Iterator[Browser]:
    """A browser, logged in; what it shows when a test fails is ``failed.png`` in ``pictures``. Skips the test as
    :func:`start_chromium` does."""
    with start_chromium() as chrome:
        browser = Browser(chrome, client)
        browser.log_in()
        try:
            yield browser
        except BaseException:
            chrome.save_screenshot(str(pictures / "failed.png"))
            raise
