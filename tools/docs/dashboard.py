"""``grafana-dashboard.json``: a dashboard for Grafana on a Prometheus data source, from the list of metrics.

Prometheus gets the metrics from a StatsD exporter or an OpenTelemetry collector. Both spell a name with ``_`` for each
dot; the second adds ``_total`` to counters, so a query takes either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidegate.views.signals import metrics
from tidegate.views.signals.metrics import Metric

UID = "tidegate"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_UNITS = {"seconds": "s", "bytes": "bytes", "share": "percentunit"}
"""Grafana's names of the units that it has."""


@dataclass(frozen=True)
class _Query:
    """What a line of a panel shows."""

    expression: str
    legend: str


def name_in_prometheus(metric: Metric) -> str:
    """The name that Prometheus knows a metric by, without Airflow's prefix."""
    return metric.name.replace(".", "_")


def render_dashboard() -> str:
    """The file."""
    layout = _Layout()
    layout.row("What needs a person")
    layout.panel(
        "Waits for a decision",
        metrics.UNDECIDED,
        [_Query(f"sum(max by (pipeline) ({_of(metrics.UNDECIDED)}))", "decisions")],
        kind="stat",
        width=4,
        red_from=1,
    )
    layout.panel(
        "Held in the last 24 hours",
        metrics.RUNS,
        [_ended_as("held")],
        kind="stat",
        width=4,
        red_from=1,
    )
    layout.panel(
        "Failed in the last 24 hours",
        metrics.RUNS,
        [_ended_as("failed")],
        kind="stat",
        width=4,
        red_from=1,
    )
    layout.panel(
        "Time since the last publish",
        metrics.PUBLISHED_AT,
        [_Query(f"time() - max by (pipeline) ({_of(metrics.PUBLISHED_AT)})", "{{pipeline}}")],
        kind="bargauge",
        width=12,
    )
    layout.row("How far behind")
    layout.panel("Age of the oldest pending file or record", metrics.LAG_OLDEST, [_gauge(metrics.LAG_OLDEST, "source")])
    layout.panel("Pending files", metrics.LAG_FILES, [_gauge(metrics.LAG_FILES, "source")])
    layout.panel("Pending bytes", metrics.LAG_BYTES, [_gauge(metrics.LAG_BYTES, "source")])
    layout.panel("Pending Kafka offsets", metrics.LAG_OFFSETS, [_gauge(metrics.LAG_OFFSETS, "source")])
    layout.panel("Watermark behind the clock", metrics.LAG_WATERMARK, [_gauge(metrics.LAG_WATERMARK)])
    layout.panel("Versions that sinks lack", metrics.SINK_BEHIND, [_gauge(metrics.SINK_BEHIND, "sink")])
    layout.row("Rows")
    kinds = (metrics.ROWS["read"], metrics.ROWS["published"], metrics.ROWS["superseded"], metrics.ROWS["duplicates"])
    layout.panel("Rows by what became of them", metrics.ROWS["read"], [_counter(one, total=True) for one in kinds])
    layout.panel("Rows published", metrics.ROWS["published"], [_counter(metrics.ROWS["published"])])
    aside = (metrics.ROWS["malformed"], metrics.ROWS["late"], metrics.ROWS["rejected"], metrics.ROWS_QUARANTINED)
    layout.panel("Quarantined, by cause", metrics.ROWS_QUARANTINED, [_counter(one, total=True) for one in aside])
    layout.panel("Share in quarantine", metrics.QUARANTINE_SHARE, [_gauge(metrics.QUARANTINE_SHARE)])
    layout.panel("Records by source", metrics.SOURCE_ROWS, [_counter(metrics.SOURCE_ROWS, "source")])
    layout.panel("Files by source", metrics.SOURCE_FILES, [_counter(metrics.SOURCE_FILES, "source")])
    layout.panel("Bytes by source", metrics.SOURCE_BYTES, [_counter(metrics.SOURCE_BYTES, "source")])
    layout.row("Runs and the gate")
    layout.panel("Runs by outcome", metrics.RUNS, [_counter(metrics.RUNS, "outcome")])
    layout.panel("Verdicts", metrics.VERDICTS, [_counter(metrics.VERDICTS, "verdict")])
    layout.panel("Rules that did not hold", metrics.RULES_FAILED, [_counter(metrics.RULES_FAILED, "rule")])
    layout.panel("Seconds by step, last run", metrics.STEP_SECONDS, [_gauge(metrics.STEP_SECONDS, "step")])
    layout.panel("Seconds of a run", metrics.RUN_SECONDS, [_gauge(metrics.RUN_SECONDS)])
    layout.row("Tables")
    layout.panel("Version", metrics.TABLE_VERSION, [_gauge(metrics.TABLE_VERSION)], width=8)
    layout.panel("Files", metrics.TABLE_FILES, [_gauge(metrics.TABLE_FILES)], width=8)
    layout.panel("Bytes", metrics.TABLE_BYTES, [_gauge(metrics.TABLE_BYTES)], width=8)
    return json.dumps(_dashboard(layout.panels), indent=1) + "\n"


class _Layout:
    """Panels from left to right, a row of them below the other."""

    def __init__(self) -> None:
        self.panels: list[dict[str, Any]] = []
        self._x = self._y = self._height = 0

    def row(self, title: str) -> None:
        """A heading."""
        self._break()
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": self._y}
        panel = {"type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
        self._add(panel)
        self._y += 1

    def panel(
        self,
        title: str,
        metric: Metric,
        queries: list[_Query],
        *,
        kind: str = "timeseries",
        width: int = 12,
        red_from: float | None = None,
    ) -> None:
        """A panel; ``metric`` gives the unit and the explanation."""
        if self._x + width > _WIDTH:
            self._break()
        height = 8 if kind == "timeseries" else 5
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if red_from is not None:
            steps.append({"color": "red", "value": red_from})
        defaults: dict[str, Any] = {"unit": _UNITS.get(metric.unit, "short"), "min": 0}
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        if kind == "timeseries":
            defaults["custom"] = {"drawStyle": "line", "fillOpacity": 10, "showPoints": "auto", "spanNulls": True}
        self._add(
            {
                "type": kind,
                "title": title,
                "description": f"{metric.name}: {metric.meaning}",
                "datasource": _SOURCE,
                "gridPos": {"h": height, "w": width, "x": self._x, "y": self._y},
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "options": _OPTIONS[kind],
                "targets": [
                    {
                        "refId": chr(ord("A") + number),
                        "datasource": _SOURCE,
                        "expr": query.expression,
                        "legendFormat": query.legend,
                        "range": kind == "timeseries",
                        "instant": kind != "timeseries",
                    }
                    for number, query in enumerate(queries)
                ],
            }
        )
        self._x += width
        self._height = max(self._height, height)

    def _add(self, panel: dict[str, Any]) -> None:
        self.panels.append({"id": len(self.panels) + 1, **panel})

    def _break(self) -> None:
        self._y += self._height
        self._x = self._height = 0


_REDUCED = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": _REDUCED, "colorMode": "background", "graphMode": "none", "textMode": "value"},
    "bargauge": {"reduceOptions": _REDUCED, "displayMode": "basic", "orientation": "horizontal"},
}


def _of(metric: Metric, *conditions: str) -> str:
    """The series of a metric, of the pipelines that are chosen; the name of a counter may end in ``_total``."""
    name = f"${{prefix}}_{name_in_prometheus(metric)}"
    matched = f'__name__=~"{name}(_total)?"' if metric.kind == "counter" else f'__name__="{name}"'
    every = (matched, 'pipeline=~"$pipeline"', *conditions)
    return "{" + ",".join(every) + "}"


def _ended_as(outcome: str) -> _Query:
    """How many runs of a day ended so."""
    runs = _of(metrics.RUNS, f'outcome="{outcome}"')
    return _Query(f"sum(increase({runs}[24h]))", outcome)


def _gauge(metric: Metric, tag: str | None = None) -> _Query:
    by = ("pipeline", tag) if tag else ("pipeline",)
    return _Query(f"max by ({', '.join(by)}) ({_of(metric)})", " ".join(f"{{{{{one}}}}}" for one in by))


def _counter(metric: Metric, tag: str | None = None, *, total: bool = False) -> _Query:
    """How much was added in each interval; ``total``: of all pipelines together, named by the metric."""
    rise = f"increase({_of(metric)}[$__rate_interval])"
    if total:
        return _Query(f"sum({rise})", metric.key)
    by = ("pipeline", tag) if tag else ("pipeline",)
    return _Query(f"sum by ({', '.join(by)}) ({rise})", " ".join(f"{{{{{one}}}}}" for one in by))


def _dashboard(panels: list[dict[str, Any]]) -> dict[str, Any]:
    runs = name_in_prometheus(metrics.RUNS)
    series = f'{{__name__=~"${{prefix}}_{runs}(_total)?"}}'
    return {
        "uid": UID,
        "title": "tidegate",
        "description": "Pipelines of tidegate: what needs a person, how far behind, rows, runs, tables. Made by "
        "`python -m tools.docs`.",
        "tags": ["tidegate", "airflow"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                    "hide": 0,
                },
                {
                    "name": "prefix",
                    "label": "Prefix of Airflow's metrics",
                    "type": "textbox",
                    "query": "airflow",
                    "current": {"text": "airflow", "value": "airflow"},
                    "hide": 0,
                },
                {
                    "name": "pipeline",
                    "label": "Pipeline",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": {"query": f"label_values({series}, pipeline)", "refId": "pipelines"},
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "allValue": ".*",
                    "current": {"text": ["All"], "value": ["$__all"]},
                    "sort": 1,
                    "hide": 0,
                },
            ]
        },
        "panels": panels,
    }
