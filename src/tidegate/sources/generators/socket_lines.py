"""Reads lines from a TCP socket, up to its end, a timeout, or the limit of one run."""

from __future__ import annotations

import json
import socket
import time
from datetime import UTC, datetime

from tidegate.core.errors import TryAgainError
from tidegate.sources import errors
from tidegate.spec.trial_options import SocketOptions

CHUNK_BYTES = 1 << 16
BYTES_AT_MOST = 64 << 20
_SECONDS_AT_MOST = 60.0


def listen(
    options: SocketOptions,
    where: str,
    *,
    bytes_at_most: int = BYTES_AT_MOST,
    seconds_at_most: float = _SECONDS_AT_MOST,
) -> tuple[list[bytes], list[str]]:
    """Receive lines from the peer: each as a JSON object, and notes on how it ended.

    Ends when the peer closes, when it sends nothing for ``options.timeout``, or at a limit. Text after the last line
    break is a line too, since it is not sent again. Bytes that are not UTF-8 are kept, for quarantine. Raises
    TryAgainError SOCKET_AWAY.
    """
    address = f"{options.host}:{options.port}"
    try:
        connection = socket.create_connection((options.host, options.port), timeout=options.timeout)
    except OSError as error:
        raise socket_away(options, where, error) from error
    lines: list[bytes] = []
    notes: list[str] = []
    rest, size, began = b"", 0, time.monotonic()
    with connection:
        while True:
            seconds = max(seconds_at_most, options.timeout) - (time.monotonic() - began)
            if size >= bytes_at_most or seconds <= 0:
                what = f"{size:,} bytes" if size >= bytes_at_most else f"{time.monotonic() - began:.0f} seconds"
                notes.append(f"stopped listening at {address} after {what}; what it sent later is lost")
                break
            connection.settimeout(min(seconds, options.timeout))
            try:
                chunk = connection.recv(CHUNK_BYTES)
            except TimeoutError:
                if seconds > options.timeout:
                    break
                continue
            except OSError as error:
                notes.append(
                    f"the connection to {address} broke: {error.strerror or error}; what was received before is kept"
                )
                break
            if not chunk:
                break
            size += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            lines += [make_record(line, options) for line in whole]
    if rest:
        lines.append(make_record(rest, options))
    return lines, notes


def socket_away(options: SocketOptions, where: str, error: OSError) -> TryAgainError:
    """Make the error of a run that cannot connect."""
    return errors.SOCKET_AWAY(where=where, host=options.host, port=options.port, error=error.strerror or error)


def make_record(line: bytes, options: SocketOptions) -> bytes:
    """Make the JSON object that stores a line."""
    row = {"value": line.removesuffix(b"\r").decode("utf-8", "surrogateescape")}
    if options.with_timestamp:
        row["timestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
