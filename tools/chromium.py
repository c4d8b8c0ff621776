"""Headless Chromium (Debian: chromium, chromium-driver), for the tests of pages and for their pictures."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as until
from selenium.webdriver.support.wait import WebDriverWait

from tools.airflow_client import AirflowClient
from tools.console import ToolError

PATIENCE_SECONDS = 60
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1100"),
    # Nothing of what a browser does on its own: looking for updates, asking its maker's servers.
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextlib.contextmanager
def start_chromium(*arguments: str) -> Iterator[Chrome]:
    """Chromium without a window. Raises ToolError where there is none, or no driver of it."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise ToolError("Chromium and its driver are needed", "apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in (*_ARGUMENTS, *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def log_in(chrome: Chrome, client: AirflowClient) -> None:
    """At Airflow's own login page."""
    # While the page leads on to another one, a look at it fails; the next one does not.
    wait = WebDriverWait(chrome, PATIENCE_SECONDS, ignored_exceptions=[WebDriverException])
    chrome.get(client.url)
    wait.until(until.element_to_be_clickable((By.NAME, "username"))).send_keys(client.user)
    chrome.find_element(By.NAME, "password").send_keys(client.password)
    chrome.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    wait.until(until.element_to_be_clickable((By.LINK_TEXT, "Dags")))
