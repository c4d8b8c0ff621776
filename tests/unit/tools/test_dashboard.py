"""The Grafana dashboard: what it asks for is sent, and what is sent is in it."""

from __future__ import annotations

import json
import re
from typing import Any

from tidegate.views.signals.metrics import METRICS
from tools.docs.dashboard import name_in_prometheus, render_dashboard

_NAME = re.compile(r'__name__=~?"\$\{prefix\}_(\w+?)(?:\(_total\)\?)?"')


def read_dashboard() -> dict[str, Any]:
    return json.loads(render_dashboard())  # type: ignore[no-any-return]


def test_every_metric_in_it_exists_and_every_metric_is_in_it() -> None:
    expressions = [target["expr"] for panel in read_dashboard()["panels"] for target in panel.get("targets", [])]
    named = [name for expression in expressions for name in _NAME.findall(expression)]
    assert len(named) == len(expressions)
    assert set(named) == {name_in_prometheus(metric) for metric in METRICS}


def test_only_tags_that_a_metric_has_are_asked_for() -> None:
    tags = {name_in_prometheus(metric): {*metric.tags} for metric in METRICS}
    for panel in read_dashboard()["panels"]:
        for target in panel.get("targets", []):
            (name,) = _NAME.findall(target["expr"])
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            asked = {tag.strip() for group in grouped for tag in group.split(",")}
            asked |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            asked |= set(re.findall(r'[{,](\w+)=~?"', target["expr"])) - {"__name__"}
            assert asked <= tags[name], target["expr"]


def test_panels_have_a_place_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    panels = read_dashboard()["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells
