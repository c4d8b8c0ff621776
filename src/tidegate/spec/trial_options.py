"""The values of the options of the test sources ``rate`` and ``socket``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.spec.models import RateSource, SocketSource, parse_duration

ROWS_AT_MOST = 1_000_000
"""Made-up rows of one run: more would only be a slow start."""

PARTITIONS_AT_MOST = 1000
"""Each is a task, and a file of the table, in every run."""

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
        ramp_up=int(parse_short_duration(options.get("rampUpTime", 0))),
        partitions=int(options["numPartitions"]) if "numPartitions" in options else None,
    )


def socket_options(source: SocketSource) -> SocketOptions:
    """The options of a source that was checked."""
    options = source.options
    return SocketOptions(
        host=str(options["host"]),
        port=int(options["port"]),
        with_timestamp=gives_timestamp(source),
        timeout=parse_short_duration(options.get("timeout", _DEFAULT_TIMEOUT)),
    )


def gives_timestamp(source: SocketSource) -> bool:
    """Return whether each line comes with the time at which it was received."""
    return str(source.options.get("includeTimestamp", False)).lower() == "true"


def parse_short_duration(value: object) -> float:
    """Seconds from ``5 seconds``, or as Spark writes it: ``5s``, ``1m``, ``5``."""
    match = _SHORT.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    return int(match[1]) * _SECONDS[match[2] or "s"] if match else parse_duration(value)
