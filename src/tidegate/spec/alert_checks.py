"""Checks of ``alerts:``: whom to tell, by what."""

from __future__ import annotations

import re

from tidegate.spec.faults import show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import AlertsSpec
from tidegate.spec.secrets import sounds_secret

SHORTEST_BEHIND_SECONDS = 60.0
_HERE = ("alerts",)
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


def check_alerts(alerts: AlertsSpec) -> list[Finding]:
    """What is wrong with ``alerts:`` of a project or a pipeline by itself."""
    found = []
    for index, notifier in enumerate(alerts.notify):
        here = (*_HERE, "notify", index)
        if not _IMPORT_PATH.fullmatch(notifier.notifier):
            message = f"{show_value(notifier.notifier)} is not the import path of a class"
            fix = "write module.Class, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier"
            found.append(Finding((*here, "notifier"), message, fix))
        for name in notifier.arguments:
            if sounds_secret(name):
                message = f"{name} sounds like a secret, and this file is read by everybody"
                fix = "put it into an Airflow connection, and name that connection"
                found.append(Finding((*here, "arguments", name), message, fix))
    if alerts.behind is not None and alerts.behind < SHORTEST_BEHIND_SECONDS:
        message = "no run of a pipeline is over so soon"
        found.append(Finding((*_HERE, "behind"), message, "write 1 minute or more"))
    return found


def find_unheard(alerts: AlertsSpec) -> list[Finding]:
    """The findings on ``alerts:`` of a pipeline that has no notifier. ``alerts`` has the project's part in it."""
    if alerts.notify:
        return []
    asked = [key for key in ("behind", "quarantine_share") if getattr(alerts, key) is not None]
    return [
        Finding(
            (*_HERE, key), "nobody is notified: alerts.notify is empty, here and in tidegate.yaml", "add notify: [...]"
        )
        for key in asked
        if key in alerts.fields_set
    ]
