"""Options of ``rate`` and ``socket``: what is refused, with what to write, and what the good ones mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.spec.as_read import SpooledSource, read_spec
from tidegate.spec.checks import check_pipeline
from tidegate.spec.models import PipelineSpec, RateSource, SocketSource
from tidegate.spec.source_checks import list_columns
from tidegate.spec.trial_options import RateOptions, SocketOptions, rate_options, socket_options


def _spec(source: dict[str, Any]) -> PipelineSpec:
    return PipelineSpec.read({"version": 1, "name": "trial", "sources": {"one": source}})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"rowsPerSecond": 0}, "0 is not a value for rowsPerSecond | write a whole number from 1 to 1000000"),
        ({"rowsPerSecond": True}, "true is not a value for rowsPerSecond | write a whole number"),
        ({"rowsPerSecond": 2000000}, "write a whole number from 1 to 1000000"),
        ({"rowspersecond": 5}, "'rowspersecond' is not an option of a source of type rate | write rowsPerSecond"),
        ({"rampUpTime": "soon"}, "'soon' is not a value for rampUpTime | write it like \"5 seconds\""),
        ({"numPartitions": 0}, "0 is not a value for numPartitions | write a whole number from 1 to 1000"),
        ({"numPartitions": "all"}, "'all' is not a value for numPartitions | write a whole number from 1 to 1000"),
        ({"rowsPerBatch": 4}, "rowsPerBatch cannot be set: rows follow from the time that has passed"),
    ],
)
def test_options_of_rate_that_are_refused(source: dict[str, Any], expected: str) -> None:
    assert expected in _told(_spec({"type": "rate", "options": source}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"port": 9999}, "socket needs the option host | write options: {host: localhost, port: 9999}"),
        ({"host": "localhost"}, "socket needs the option port"),
        ({"host": "", "port": 1}, "'' is not a value for host | write a name or an address"),
        ({"host": "a", "port": 70000}, "70000 is not a value for port | write a whole number from 1 to 65535"),
        ({"host": "a", "port": 1, "timeout": 0}, "0 is not a value for timeout | write a number greater than 0"),
        ({"host": "a", "port": 1, "includeTimestamp": "yes"}, "includeTimestamp | write true or false"),
        ({"host": "${HOST}", "port": 1}, "the environment is filled in in tidegate.yaml only"),
    ],
)
def test_options_of_socket_that_are_refused(options: dict[str, Any], expected: str) -> None:
    assert expected in _told(_spec({"type": "socket", "options": options}))


def _told(spec: PipelineSpec) -> str:
    return "\n".join(f"{finding.message} | {finding.fix}" for finding in check_pipeline(spec))


def test_good_options() -> None:
    rate = {"rowsPerSecond": "10", "rampUpTime": "5s"}
    assert rate_options(RateSource(type="rate", options=dict(rate))) == RateOptions(10, 5)
    assert rate_options(RateSource(type="rate", options={"rampUpTime": "1 minute"})) == RateOptions(1, 60)
    assert rate_options(RateSource(type="rate", options={"numPartitions": "4"})) == RateOptions(1, 0, partitions=4)
    assert rate_options(RateSource(type="rate", options={"rampUpTime": "3000000us"})) == RateOptions(1, 3)
    socket: dict[str, Any] = {"host": "localhost", "port": 9999}
    assert socket_options(SocketSource(type="socket", options=socket)) == SocketOptions("localhost", 9999, False, 5.0)
    socket |= {"includeTimestamp": True, "timeout": "500 milliseconds"}
    assert socket_options(SocketSource(type="socket", options=socket)) == SocketOptions("localhost", 9999, True, 0.5)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "rate", "event_time": "timestamp"},
        {"type": "socket", "options": {"host": "localhost", "port": 9999}},
        {"type": "socket", "options": {"host": "localhost", "port": 9999, "includeTimestamp": True}},
    ],
)
def test_a_run_reads_them_as_files_with_the_same_columns(source: dict[str, Any]) -> None:
    spec = _spec(source)
    assert check_pipeline(spec) == []
    (read,) = read_spec(spec, lambda name: Path("/state/spool") / name, {}).sources.values()
    assert isinstance(read, SpooledSource)
    assert (read.path, read.origin) == ("/state/spool/one", spec.sources["one"])
    assert list_columns(read) == list_columns(spec.sources["one"])
    assert read.event_time == source.get("event_time")
