"""Airflow's pages in headless Chromium, as a person uses them: what is clicked and typed, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as until
from selenium.webdriver.support.wait import WebDriverWait

from tools import chromium
from tools.airflow_client import AirflowClient
from tools.chromium import PATIENCE_SECONDS, log_in
from tools.console import ToolError


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
        self.driver.get(f"{self.client.url}/dags/{dag_id}/plugin/tidegate")
        self._wait(until.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe")))
        self._find(By.LINK_TEXT, "Run now").send_keys(Keys.ENTER)
        self._find(By.CSS_SELECTOR, "dialog[open] form button").send_keys(Keys.ENTER)
        self._find(By.XPATH, "//*[@role='status']//p[contains(., 'was started')]")
        self.driver.switch_to.default_content()

    def _pickers(self) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, "[role=dialog] [data-testid=datetime-input]")

    def _find(self, by: str, what: str) -> WebElement:
        found: WebElement = self._wait(until.element_to_be_clickable((by, what)))
        return found

    def _click(self, by: str, what: str) -> None:
        self._find(by, what).click()

    def _wait(self, condition: Callable[[Chrome], Any]) -> Any:
        return WebDriverWait(self.driver, PATIENCE_SECONDS).until(condition)


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
