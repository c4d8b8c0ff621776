"""Options of the test sources: ``rate`` and ``socket``, by allow-list like those of any reader."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.spec.document import KeyPath, names_variable
from tidegate.spec.faults import describe_allowed, name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import RateSource, SocketSource, parse_duration

ROWS_AT_MOST = 1_000_000
"""Made-up rows of one run: more would only be a slow start."""

PARTITIONS_AT_MOST = 1000
"""Each is a task, and a file of the table, in every run."""

RATE_OPTIONS = {"rowsPerSecond": "whole number", "rampUpTime": "duration", "numPartitions": "whole number"}
SOCKET_OPTIONS = {"host": "text", "port": "whole number", "includeTimestamp": "true or false", "timeout": "duration"}

REFUSED_TRIAL_OPTIONS = {
    "rowsPerBatch": ("rows follow from the time that has passed", "write rowsPerSecond"),
}

_DEFAULT_TIMEOUT = "5 seconds"
_SHORT = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_SECONDS = {"us": 0.000_001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class RateOptions:
    """``ramp_up``: whole seconds until ``rows_per_second`` is reached. ``partitions``: into how many Spark divides the
    rows of a run; None leaves that to Spark."""

    rows_per_second: int
    ramp_up: int
    partitions: int | None = None


@dataclass(frozen=True)
class SocketOptions:
    """``timeout``: seconds of silence after which a run stops listening."""

    host: str
    port: int
    with_timestamp: bool
    timeout: float


def rate_options(source: RateSource) -> RateOptions:
    """The options of a source that was checked."""
    options = source.options
    return RateOptions(
        rows_per_second=int(options.get("rowsPerSecond", 1)),
        ramp_up=int(_duration(options.get("rampUpTime", 0))),
        partitions=int(options["numPartitions"]) if "numPartitions" in options else None,
    )


def socket_options(source: SocketSource) -> SocketOptions:
    """The options of a source that was checked."""
    options = source.options
    return SocketOptions(
        host=str(options["host"]),
        port=int(options["port"]),
        with_timestamp=gives_timestamp(source),
        timeout=_duration(options.get("timeout", _DEFAULT_TIMEOUT)),
    )


def gives_timestamp(source: SocketSource) -> bool:
    """Whether each line comes with the time at which it was received."""
    return str(source.options.get("includeTimestamp", False)).lower() == "true"


def check_trial_options(path: KeyPath, source: RateSource | SocketSource) -> list[Finding]:
    """What is wrong with the options of ``source``; ``path`` is where they stand."""
    allowed = RATE_OPTIONS if isinstance(source, RateSource) else SOCKET_OPTIONS
    found = []
    for key, value in source.options.items():
        here = (*path, key)
        if key in REFUSED_TRIAL_OPTIONS:
            reason, fix = REFUSED_TRIAL_OPTIONS[key]
            found.append(Finding(here, f"the option {key} has no meaning here: {reason}", fix))
        elif key not in allowed:
            nearest = name_nearest(key, allowed)
            fix = f"write {nearest}" if nearest else describe_allowed(key, sorted(allowed))
            found.append(Finding(here, f"{key!r} is not an option of a source of type {source.type}", fix))
        elif isinstance(value, str) and names_variable(value):
            found.append(Finding(here, "the environment is filled in in tidegate.yaml only", "write the value out"))
        elif wanted := _wanted(key, value):
            found.append(Finding(here, f"{show_value(value, key)} is not a value for {key}", wanted))
    if isinstance(source, SocketSource):
        found += [
            Finding(path, f"socket needs the option {key}", "write options: {host: localhost, port: 9999}")
            for key in ("host", "port")
            if key not in source.options
        ]
    return found


def _wanted(key: str, value: object) -> str | None:
    """What to write instead of ``value``; None when it can be used."""
    if key == "rowsPerSecond" and not _is_whole(value, 1, ROWS_AT_MOST):
        return f"write a whole number from 1 to {ROWS_AT_MOST}"
    if key == "numPartitions" and not _is_whole(value, 1, PARTITIONS_AT_MOST):
        return f"write a whole number from 1 to {PARTITIONS_AT_MOST}"
    if key == "port" and not _is_whole(value, 1, 65535):
        return "write a whole number from 1 to 65535"
    if key == "host" and not (isinstance(value, str) and value.strip()):
        return "write a name or an address: localhost"
    if key == "includeTimestamp" and str(value).lower() not in ("true", "false"):
        return "write true or false"
    if key in ("rampUpTime", "timeout"):
        try:
            seconds = _duration(value)
        except ValueError:
            return 'write it like "5 seconds"'
        if key == "timeout" and seconds <= 0:
            return "write a number greater than 0: otherwise no run would end"
    return None


def _is_whole(value: object, least: int, most: int) -> bool:
    text = str(value)
    return not isinstance(value, bool | float) and text.isascii() and text.isdigit() and least <= int(text) <= most


def _duration(value: object) -> float:
    """Seconds from ``5 seconds``, or as Spark writes it: ``5s``, ``1m``, ``5``."""
    match = _SHORT.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    return int(match[1]) * _SECONDS[match[2] or "s"] if match else parse_duration(value)
