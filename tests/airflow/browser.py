"""Airflow's pages in headless Chromium, as a person uses them: what is clicked and typed, nothing else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as until
from selenium.webdriver.support.wait import WebDriverWait

from tools.airflow_client import AirflowClient

_PATIENCE_SECONDS = 60
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1100"),
    # Nothing of what a browser does on its own: looking for updates, asking its maker's servers.
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """Airflow's UI with somebody logged in."""

    def __init__(self, driver: Chrome, client: AirflowClient) -> None:
        self.driver = driver
        self.client = client

    def log_in(self) -> None:
        """At Airflow's own login page."""
        self.driver.get(self.client.url)
        self._find(By.NAME, "username").send_keys(self.client.user)
        self._find(By.NAME, "password").send_keys(self.client.password)
        self._click(By.CSS_SELECTOR, "button[type=submit]")
        self._find(By.LINK_TEXT, "Dags")

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

    def _pickers(self) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, "[role=dialog] [data-testid=datetime-input]")

    def _find(self, by: str, what: str) -> WebElement:
        found: WebElement = self._wait(until.element_to_be_clickable((by, what)))
        return found

    def _click(self, by: str, what: str) -> None:
        self._find(by, what).click()

    def _wait(self, condition: Callable[[Chrome], Any]) -> Any:
        return WebDriverWait(self.driver, _PATIENCE_SECONDS).until(condition)


@contextlib.contextmanager
def start_chromium() -> Iterator[Chrome]:
    """Chromium without a window. Where there is none with its driver (Debian: chromium, chromium-driver) the test is
    skipped."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


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
