"""Numbers and times as people read them. The script formats them in the same way (``ui/src/formats.ts``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from tidegate.airflow.next_steps import for_airflow
from tidegate.airflow.ui.places import Places
from tidegate.core.outputs import BackfillPlan
from tidegate.rework.held import name_kind
from tidegate.runs.reports.report import RUN_STATES
from tidegate.views.pages.runs import RunRow

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
NOTHING = "–"

WORDS: dict[str, str] = {
    **{state: traits.text for state, traits in RUN_STATES.items()},
    "up_to_date": "up to date",
    "behind": "behind",
    "failing": "failing",
    "never_ran": "never ran",
    "broken": "cannot be read",
    "passed": "passed",
    "warned": "warned",
    "unchecked": "unchecked",
}
"""The texts for states and verdicts."""


def number(value: float | None) -> str:
    """``12,345``."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """``12.3 k``, ``4.56 M``; below 10,000 all digits."""
    if value is None:
        return NOTHING
    for size, unit in _SHORT:
        if abs(value) >= size:
            base = 1e3 if unit == "k" else size
            return f"{value / base:,.3g} {unit}" if abs(value) / base < 1000 else f"{value / base:,.0f} {unit}"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    """``1.23 MB``."""
    if value is None:
        return NOTHING
    unit = 0
    while abs(value) >= 999.5 and unit < len(_BYTES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.3g} {_BYTES[unit]}"


def span(seconds: float | None) -> str:
    """``3 d 4 h``, ``12 min``, ``4.2 s``: the two largest units."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for length, unit in _UNITS:
        count, left = divmod(left, int(length))
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def share(value: float | None) -> str:
    """``1.2%``; a value above 0 is never shown as 0%."""
    if value is None:
        return NOTHING
    if 0 < value < 0.0001:
        return "< 0.01%"
    return f"{value * 100:.3g}%" if value < 0.9995 or value == 1 else f"{min(value * 100, 99.99):.2f}%"


def moment(text: str | None) -> str:
    """``2026-05-03 10:00:00 UTC``; a text that is not a time is returned as it is."""
    parsed = _parse(text)
    if parsed is None:
        return text or NOTHING
    return f"{parsed:%Y-%m-%d %H:%M:%S} UTC"


def short_moment(text: str | None) -> str:
    """``May 3, 10:00``."""
    parsed = _parse(text)
    return (text or NOTHING) if parsed is None else f"{parsed:%b} {parsed.day}, {parsed:%H:%M}"


def age_of(text: str | None, now: datetime | None = None) -> float | None:
    """Seconds since a moment."""
    parsed = _parse(text)
    return None if parsed is None else max(((now or datetime.now(UTC)) - parsed).total_seconds(), 0.0)


def ago(text: str | None) -> str:
    """``12 min ago``."""
    seconds = age_of(text)
    return NOTHING if seconds is None else "just now" if seconds < 10 else f"{coarse(seconds)} ago"


def coarse(seconds: float | None) -> str:
    """``12 min``: only the largest unit, which is easier to compare in a column."""
    if seconds is None:
        return NOTHING
    for length, unit in _UNITS:
        if seconds >= length * (2 if unit == "d" else 1):
            return f"{seconds / length:.0f} {unit}"
    return "0 s"


def word(state: str | None) -> str:
    """The text for a state or verdict."""
    return NOTHING if state is None else WORDS.get(state, state)


def _parse(text: str | None) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return parsed if parsed is None or parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def until(text: str | None) -> float:
    """Seconds until a moment; 0 when it is past."""
    parsed = _parse(text)
    return 0.0 if parsed is None else max((parsed - datetime.now(UTC)).total_seconds(), 0.0)


def describe_states(runs: Sequence[RunRow]) -> str:
    """``18 published, 2 nothing new; the last: published``: a strip as text."""
    counts = Counter(run.state for run in runs)
    text = ", ".join(f"{count} {word(state)}" for state, count in counts.most_common())
    return f"{text}; the last: {word(runs[0].state)}" if runs else "none"


def strip(runs: Sequence[RunRow]) -> Markup:
    """The bars of a strip, oldest first: the colour is the state, the height (h2 to h8) the duration compared with the
    other runs. It contains no text of a report, so nothing has to be escaped."""
    longest = max((run.seconds or 0.0 for run in runs), default=0.0)
    bars = []
    for run in reversed(runs):
        took = run.seconds
        high = 8 if not longest or took is None else 2 + round(6 * min(took / longest, 1.0))
        bars.append(f'<i class="t is-{run.state} h{high}"></i>')
    return Markup("".join(bars))


def chart_rows(runs: Iterable[RunRow], places: Places, dag_id: str) -> list[dict[str, object]]:
    """The data of the chart of rows by run."""
    return [
        {
            "id": run.run_id,
            "at": run.started_at,
            "state": word(run.state),
            "read": run.rows["read"],
            "published": run.rows["published"],
            "malformed": run.rows["malformed"],
            "late": run.rows["late"],
            "rejected": run.rows["rejected"],
            "waiting": run.rows["staged"] if run.state in ("held", "running", "failed", "died") else 0,
            **_links(run, places, dag_id),
        }
        for run in runs
    ]


def chart_steps(runs: Iterable[RunRow], places: Places, dag_id: str) -> list[dict[str, object]]:
    """The data of the chart of durations by step."""
    return [{"id": run.run_id, "at": run.started_at, "steps": run.steps, **_links(run, places, dag_id)} for run in runs]


def _links(run: RunRow, places: Places, dag_id: str) -> dict[str, object]:
    return {"href": places.run(dag_id, run.run_id), "goto": places.airflow_run_report(dag_id, run.run_id)}


def empty_intervals(plan: BackfillPlan) -> list[str]:
    """The parts of a plan with nothing to do: no rows now, and no records that belong there."""
    figures = ("rows_now", "files_now", "files", "offsets")
    return [
        one["partitions"]
        for one in plan["intervals"]
        if one["hindrance"] is None and not any(one[key] for key in figures)  # type: ignore[literal-required]
    ]


def breakable(text: str) -> Markup:
    """A path or a name that may wrap after each slash and underscore."""
    return Markup(re.sub("([/_])", r"\1<wbr>", str(escape(text))))


FILTERS: dict[str, Callable[..., object]] = {
    "number": number,
    "short": short,
    "size": size,
    "span": span,
    "share": share,
    "moment": moment,
    "short_moment": short_moment,
    "age_of": age_of,
    "ago": ago,
    "coarse": coarse,
    "word": word,
    "until": until,
    "strip": strip,
    "describe_states": describe_states,
    "chart_rows": chart_rows,
    "chart_steps": chart_steps,
    "breakable": breakable,
    "empty_intervals": empty_intervals,
    "name_kind": name_kind,
    "for_airflow": for_airflow,
}
"""Filters of the templates, by name."""
