"""The page of run reports: whatever a report holds, the browser gets text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tidegate.airflow.reports_app import _find_paths, render_page
from tidegate.reports.report import new_report

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> javascript:alert(3)"


class Tags(HTMLParser):
    """Collects what the browser would take for tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag."""
        self.seen.add(tag)
        for name, value in attrs:
            assert not name.startswith("on") and name != "src"
            if name == "href":
                self.links.append(value or "")


def test_hostile_values_stay_text() -> None:
    empty = new_report("orders", HOSTILE).to_json()
    report = {
        **empty,
        "started_at": HOSTILE,
        "outcome": HOSTILE,
        "quality": {"verdict": HOSTILE},
        "rows": {**empty["rows"], "read": 1234},
        "table": {"version": HOSTILE},
        "error": {"code": HOSTILE, "message": HOSTILE, "fix": HOSTILE},
    }
    page = render_page("orders", [report])
    tags = Tags()
    tags.feed(page)
    assert not tags.seen & {"script", "img"}
    assert len(tags.links) == 1 and tags.links[0].startswith("orders/runs/")
    assert not set("<>\"' ") & set(tags.links[0])
    assert "1,234" in page


def test_a_run_id_with_odd_signs_can_be_followed() -> None:
    tags = Tags()
    tags.feed(render_page("orders", [new_report("orders", "scheduled__2026-05-03T10:00:00+00:00/é").to_json()]))
    assert tags.links == ["orders/runs/scheduled__2026-05-03T10%3A00%3A00%2B00%3A00%2F%C3%A9"]


@pytest.mark.parametrize(("fix", "said"), [(None, "X: y</pre>"), ("do this", "X: y\nfix: do this</pre>")])
def test_an_error_without_a_remedy_names_none(fix: str | None, said: str) -> None:
    report = {**new_report("orders", "r").to_json(), "error": {"code": "X", "message": "y", "fix": fix}}
    assert said in render_page("orders", [report])


def test_no_reports_is_said() -> None:
    assert "No run of this DAG" in render_page("orders", [])


@pytest.mark.parametrize("dag_id", ["..", "../x", "a/b", "A", "", "x" * 100, "orders\x00"])
def test_what_is_no_pipeline_name_is_not_found(dag_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi import HTTPException

    with pytest.raises(HTTPException) as caught:
        _find_paths(dag_id)
    assert caught.value.status_code == 404
