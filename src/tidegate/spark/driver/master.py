"""A cluster's master, seen from where the driver is started: whether it answers, and why it ended a run."""

from __future__ import annotations

import os
import re
import socket
from importlib.metadata import version
from pathlib import Path

from tidegate.core.errors import TidegateError
from tidegate.spark import errors
from tidegate.spec.master import parse_master

_ANSWER_SECONDS = 3.0
_REASON = re.compile(r"Application has been killed\. Reason: (.*)")


def check_master(url: str, name: str) -> None:
    """Raise TryAgainError MASTER_AWAY when no address of a standalone master takes connections, UsageError
    YARN_CONF_MISSING when nothing says where YARN is.

    Spark itself would try for a minute, in a JVM.
    """
    master = parse_master(url)
    if master.kind == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise errors.YARN_CONF_MISSING(where="spark.master in tidegate.yaml, or the DAG's Spark connection")
    if not master.addresses:
        return
    failures = []
    for host, port in master.addresses:
        try:
            socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
            return
        except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
            failures.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    raise errors.MASTER_AWAY(where=_master_setting(url), failures="; ".join(failures), name=name)


def explain_end(error: TidegateError, log_path: Path, url: str, name: str) -> TidegateError:
    """Add the cluster's reason, which only the driver's log has, to APPLICATION_ENDED; other errors are unchanged."""
    if error.code != "APPLICATION_ENDED":
        return error
    try:
        found = _REASON.findall(log_path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = []
    reason = found[-1].strip() if found else ""
    if "All masters are unresponsive" in reason:
        failure = f"{url} takes connections, but is not a master of Spark {version('pyspark')}, or hangs"
        return errors.MASTER_AWAY(where=_master_setting(url), failures=failure, name=name)
    if "FAILED" in reason:
        return errors.EXECUTORS_FAILED(
            where=f"log: {log_path}; what the executors said is in the workers' own logs (work/app-*/*/stderr)",
            url=url,
            reason=reason,
        )
    return errors.APPLICATION_ENDED(
        where=f"log: {log_path}", master=url, reason=": " + reason if reason else "", name=name
    )


def _master_setting(url: str) -> str:
    return f"{url} (spark.master in tidegate.yaml, or the DAG's Spark connection)"
