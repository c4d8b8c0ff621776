"""``alerts:`` in both files: whom to tell, by what, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.errors import UsageError
from tidegate.spec.models import AlertsSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project

_SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: in, format: json, schema: id BIGINT}
"""
_PAGER = "notify: [{notifier: pager.Pager, arguments: {service: orders}}]"


def load(root: Path, pipeline: str, project: str = "") -> AlertsSpec:
    (root / "jobs" / "orders").mkdir(parents=True, exist_ok=True)
    (root / "tidegate.yaml").write_text(f"version: 1\n{project}")
    (root / "jobs" / "orders" / "pipeline.yaml").write_text(_SPEC + pipeline)
    return load_pipeline(load_project(root), "orders").alerts


def test_nobody_is_told_unless_somebody_is_named(tmp_path: Path) -> None:
    alerts = load(tmp_path, "")
    assert (alerts.notify, alerts.held, alerts.failing, alerts.behind) == ([], True, True, None)


def test_the_pipelines_word_goes_key_by_key_over_the_projects(tmp_path: Path) -> None:
    said = f"alerts:\n  {_PAGER}\n  behind: 2 hours\n  quarantine_share: 0.1\n"
    alerts = load(tmp_path, "alerts: {behind: null, held: false}\n", said)
    assert [one.notifier for one in alerts.notify] == ["pager.Pager"]
    assert (alerts.held, alerts.failing, alerts.behind, alerts.quarantine_share) == (False, True, None, 0.1)
    assert load(tmp_path, "alerts: {notify: []}\n", said).notify == []
    assert load(tmp_path, "alerts: {behind: 1 day}\n", said).behind == 86_400


@pytest.mark.parametrize(
    ("written", "line", "message"),
    [
        ("alerts:\n  notify: [{notifier: Pager}]\n", 6, "'Pager' is not the import path of a class"),
        ('alerts:\n  notify: [{notifier: "os.system; x"}]\n', 6, "is not the import path of a class"),
        (f"alerts:\n  {_PAGER[:-3]}, api_token: x}}}}]\n", 6, "api_token sounds like a secret"),
        (f"alerts:\n  {_PAGER}\n  behind: 10 seconds\n", 7, "no run of a pipeline is over so soon"),
        (f"alerts:\n  {_PAGER}\n  behind: 2\n", 7, "2 is not a duration"),
        (f"alerts:\n  {_PAGER}\n  quarantine_share: 5\n", 7, "quarantine_share"),
        (f"alerts:\n  {_PAGER}\n  fialing: true\n", 7, "unknown key 'fialing'"),
        ("alerts:\n  notify: [{notifer: pager.Pager}]\n", 6, "unknown key 'notifer'"),
        ("alerts:\n  behind: 2 hours\n", 6, "nobody is notified: alerts.notify is empty"),
    ],
)
def test_faults_have_their_line(tmp_path: Path, written: str, line: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, written)
    assert message in str(caught.value) and f"pipeline.yaml:{line}: alerts" in str(caught.value), str(caught.value)


def test_faults_of_the_project_are_told_as_its(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "", "alerts:\n  notify: [{notifier: Pager}]\n")
    assert caught.value.code == "BAD_PROJECT" and "tidegate.yaml:3: alerts.notify" in str(caught.value)
