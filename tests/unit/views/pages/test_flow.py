"""The balance of rows as a flow: every figure is the report's, and nothing comes out of a node that did not go in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runs.reports.report import new_report
from tidegate.views.pages.flow import Flow, make_flow

_COUNT = st.integers(min_value=0, max_value=10**7)


def report(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = dict(new_report("orders", "r").to_json())
    rows = {**made["rows"], **more.pop("rows", {})}
    return {**made, "outcome": "published", **more, "rows": rows}


def links(flow: Flow) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for link in flow["links"]:
        place = (link["source"], link["target"])
        found[place] = found.get(place, 0) + link["rows"]
    return found


def check_adds_up(flow: Flow) -> None:
    """What goes into a node that goes on comes out of it; each node has the figure that its links have."""
    for node in flow["nodes"]:
        into = sum(link["rows"] for link in flow["links"] if link["target"] == node["name"])
        out = sum(link["rows"] for link in flow["links"] if link["source"] == node["name"])
        assert node["rows"] == max(into, out) > 0
        if node["kind"] == "step":
            assert into == out == node["rows"], node
        elif into and out:
            raise AssertionError(f"{node} is neither a source nor an end")


def check_lines(flow: Flow) -> None:
    """Each sum of the balance is what the lines above it make."""
    total = 0
    for line in flow["lines"]:
        if line["sign"] == "=":
            assert line["rows"] == total, line
        else:
            total += -line["rows"] if line["sign"] == "−" else line["rows"]


def test_a_plain_run() -> None:
    flow = make_flow(
        report(
            sources={"a": {"rows": 60, "files": 2}, "b": {"rows": 40, "offsets": {"t": {"0": [0, 40]}}}},
            rows={
                "read": 100, "malformed": 5, "entered": 95, "late": 3, "duplicates": 2,
                "transformed": 80, "rejected": 8, "staged": 72, "published": 70, "superseded": 2,
            },
            table={"version": 7},
        )
    )  # fmt: skip
    assert flow["faults"] == []
    assert links(flow) == {
        ("a", "Read"): 60,
        ("b", "Read"): 40,
        ("Read", "Quarantine"): 5,
        ("Read", "Into the transform"): 95,
        ("Into the transform", "Quarantine"): 3,
        ("Into the transform", "Duplicates"): 2,
        ("Into the transform", "Filtered or combined"): 10,
        ("Into the transform", "Out of the transform"): 80,
        ("Out of the transform", "Quarantine"): 8,
        ("Out of the transform", "Staged"): 72,
        ("Staged", "Superseded"): 2,
        ("Staged", "Table, version 7"): 70,
    }
    assert next(node["rows"] for node in flow["nodes"] if node["name"] == "Quarantine") == 16
    check_adds_up(flow)
    check_lines(flow)


def test_a_transform_that_makes_more_rows() -> None:
    rows = {"read": 10, "entered": 10, "transformed": 25, "staged": 25, "published": 25}
    flow = make_flow(report(sources={"a": {"rows": 10}}, rows=rows))
    assert links(flow)["Made by the transform", "Out of the transform"] == 15
    check_adds_up(flow)
    check_lines(flow)


def test_windows_that_only_close() -> None:
    rows = {"transformed": 4, "staged": 4, "published": 4}
    flow = make_flow(report(rows=rows, state={"rows": 3}))
    assert links(flow)["Made by the transform", "Out of the transform"] == 4
    check_adds_up(flow)


def test_what_a_query_keeps_open_is_said() -> None:
    rows = {"read": 10, "entered": 10, "transformed": 1, "staged": 1, "published": 1}
    assert ("Into the transform", "Combined or kept open") in links(make_flow(report(rows=rows, state={"rows": 3})))


@pytest.mark.parametrize(
    ("outcome", "more", "name"),
    [
        ("held", {}, "Held"),
        ("discarded", {}, "Discarded"),
        ("failed", {}, "Not published"),
        (None, {}, "Not published yet"),
        ("nothing_new", {"published_by": "other"}, "Published by another run"),
    ],
)
def test_rows_that_are_not_in_the_table(outcome: str | None, more: dict[str, Any], name: str) -> None:
    rows = {"read": 10, "entered": 10, "transformed": 10, "staged": 10}
    flow = make_flow(report(outcome=outcome, sources={"a": {"rows": 10}}, rows=rows, **more))
    assert links(flow)["Staged", name] == 10
    check_adds_up(flow)


def test_counts_that_contradict_each_other_are_told() -> None:
    rows = {"read": 10, "malformed": 1, "entered": 8, "transformed": 8, "staged": 8, "published": 8}
    [fault] = make_flow(report(rows=rows))["faults"]
    assert "read 10 != malformed 1 + entered 8" in fault


def test_an_idle_run_has_no_flow() -> None:
    flow = make_flow(report(outcome="nothing_new", sources={"a": {"rows": 0}}))
    assert flow["links"] == flow["nodes"] == flow["lines"] == []


@given(
    st.lists(_COUNT, max_size=3),
    st.fixed_dictionaries(dict.fromkeys(new_report("x", "r").rows, _COUNT)),
    st.sampled_from(["published", "held", "failed", None]),
    st.booleans(),
)
def test_whatever_a_report_says_the_picture_adds_up(
    sources: list[int], rows: dict[str, int], outcome: str | None, keeps_state: bool
) -> None:
    named = {f"s{number}": {"rows": count} for number, count in enumerate(sources)}
    state = {"rows": 1} if keeps_state else {}
    flow = make_flow(report(outcome=outcome, sources=named, rows=rows, state=state))
    for node in flow["nodes"]:
        assert node["rows"] > 0
    if not flow["faults"] and outcome == "published":
        check_adds_up(flow)
        check_lines(flow)


@given(
    st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.integers(0, 200),
    st.integers(0, 100), st.integers(0, 100),
)  # fmt: skip
def test_reports_that_balance_give_pictures_that_do(
    entered: int, malformed: int, late: int, duplicates: int, transformed: int, rejected: int, superseded: int
) -> None:
    rejected = min(rejected, transformed)
    staged = transformed - rejected
    superseded = min(superseded, staged)
    rows = {
        "read": entered + malformed, "malformed": malformed, "entered": entered, "late": late, "duplicates": duplicates,
        "transformed": transformed, "rejected": rejected, "staged": staged, "superseded": superseded,
        "published": staged - superseded,
    }  # fmt: skip
    flow = make_flow(report(sources={"a": {"rows": entered + malformed}}, rows=rows))
    assert flow["faults"] == []
    check_adds_up(flow)
    check_lines(flow)
    ends = {node["name"]: node["rows"] for node in flow["nodes"]}
    assert ends.get("Table", 0) == staged - superseded
    assert ends.get("Quarantine", 0) == malformed + min(late, entered) + rejected
