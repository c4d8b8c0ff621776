"""The provider's spark-submit hook with four differences: the driver cannot outlive the task, a kill ends the whole
process tree, settings are not passed as arguments, and marker lines are logged as text.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from tidegate.airflow import errors
from tidegate.core.errors import UsageError
from tidegate.core.process.tree import bind_to_parent, end_tree
from tidegate.core.words import escape_controls, shorten
from tidegate.spark.driver.progress import describe_event, parse_marker
from tidegate.spark.driver.submit import find_spark_submit, format_properties
from tidegate.spec.faults import sounds_secret
from tidegate.spec.spark_settings import MASTER_FORMS, parse_master

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from tidegate.spark.driver.submit import SubmitPlan


_ONLY_CLIENT = (
    "only client is possible, because a driver on another machine would continue after its task is killed (and a "
    "standalone cluster does not support Python drivers in cluster mode)"
)


class DriverHook(SparkSubmitHook):
    """Runs a :class:`~tidegate.spark.driver.submit.SubmitPlan` with spark-submit and returns its exit code.

    Raises :class:`UsageError` on construction when the connection ``conn_id`` is missing or is not a Spark master.
    """

    def __init__(self, conn_id: str, name: str) -> None:
        self.master = resolve_master(load_connection(conn_id))
        try:
            super().__init__(conn_id=conn_id, name=name)
        except (RuntimeError, NameError):  # the provider leaves a name out when the import fails
            if not self.master.startswith("k8s://"):
                raise
            raise errors.SPARK_KUBERNETES_MISSING(
                where="the environment of Airflow", conn_id=conn_id, master=self.master
            ) from None
        if self._connection["master"] != self.master:
            theirs = self._connection["master"]
            fault = f"is read as {self.master!r} here and as {theirs!r} by the Spark provider: write it as JSON, with "
            raise _refuse(conn_id, f"{fault}the whole master in host")
        self._settings_fd: int | None = None
        self._driver_log: TextIO | None = None
        self._killed = False

    def run(self, plan: SubmitPlan) -> int:
        """Run the driver to its end, with its output in the task log, and return spark-submit's exit code.

        Raises :class:`tidegate.core.errors.TryAgainError` when :meth:`on_kill` ended it. No process of the driver is
        left running.
        """
        self._connection["master"] = plan.master  # the connection's, but for a driver that does without executors
        self._application_args = [str(arg) for arg in plan.application_args]
        self._jars = ",".join(plan.jars) or None
        self._driver_memory = plan.driver_memory or None
        self._env = driver_environment(plan.env_vars)
        hide_in_logs(plan.conf)
        hide_in_logs(plan.env_vars)
        # Settings are passed in an anonymous file: arguments can be read by everyone (ps), and a file on disk would
        # remain after a crash. The launcher and the driver both open /proc/self/fd/N.
        self._settings_fd = os.memfd_create("tidegate-spark-settings", 0)
        try:
            os.write(self._settings_fd, format_properties(plan.conf).encode())
            self._properties_file = f"/proc/self/fd/{self._settings_fd}"
            with open(plan.log_path or os.devnull, "w", encoding="utf-8") as self._driver_log:
                return self._run_bound(plan.application)
        finally:
            os.close(self._settings_fd)
            self._settings_fd = None

    def _run_bound(self, application: str) -> int:
        self._submit_sp: subprocess.Popen[str] | None = None
        try:
            self.submit(
                application,
                start_new_session=True,
                preexec_fn=bind_to_parent(os.getpid()),
                pass_fds=(self._settings_fd,),
                encoding="utf-8",
                errors="replace",
            )
        except AirflowException:
            # If spark-submit has ended, the driver has recorded the error. Otherwise this error is ours.
            if self._read_exit_code() is None:
                raise
        finally:
            self._end_driver()
        if self._killed:
            raise errors.TASK_KILLED(driver=", and its driver was ended")
        code = self._read_exit_code()
        assert code is not None, "submit() returns only after spark-submit has ended"
        return code

    def _read_exit_code(self) -> int | None:
        return None if self._submit_sp is None else self._submit_sp.poll()

    @property
    def is_running(self) -> bool:
        """Return whether a driver is running, which a kill must end."""
        return self._submit_sp is not None and self._submit_sp.returncode is None

    def on_kill(self) -> None:
        """End the driver's process tree within 4 s: SIGTERM, then SIGKILL after 2 s."""
        self._killed = True
        self._end_driver()

    def _end_driver(self) -> None:
        if self._submit_sp is None:
            return
        left = end_tree(self._submit_sp.pid)
        if left:
            self.log.error("still alive after SIGKILL: %s", ", ".join(str(mark.pid) for mark in left))

    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"] or "spark-submit"
        if binary == "spark-submit":
            return [find_spark_submit()]
        found = shutil.which(binary)
        if found is None:
            raise errors.SPARK_BINARY_MISSING(where="the Airflow worker", binary=binary, conn_id=self._conn_id)
        return [found]

    def _build_spark_common_args(self) -> list[str]:
        # --properties-file alone would switch conf/spark-defaults.conf off.
        return [*super()._build_spark_common_args(), "--load-spark-defaults"]

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        for line in itr:
            # The task log is for people; the file is for the step's errors and for `tidegate status`.
            if self._driver_log is not None:
                self._driver_log.write(line)
            event = parse_marker(line.strip())
            if event is not None:
                self.log.info("%s", describe_event(event))
            elif self._is_kubernetes:
                super()._process_spark_submit_log(iter([escape_controls(line)]))
            else:
                # The provider looks for ids of cluster mode here, and strips the indentation of tracebacks.
                self.log.info("%s", escape_controls(line.rstrip()))


def driver_environment(env_vars: Mapping[str, str]) -> dict[str, str]:
    """The driver's additions to the task's environment: the plan's variables, and this interpreter first on PATH."""
    # find_spark_home.py of a pip-installed Spark asks the first python3 on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, **{key: str(value) for key, value in env_vars.items()}}


def hide_in_logs(values: Mapping[str, object]) -> None:
    """Have Airflow mask the values in logs whose keys sound secret."""
    from airflow.sdk.log import mask_secret

    for key, value in values.items():
        # A switch such as token.enabled=false is not secret, and would mask every "false" in the log.
        if sounds_secret(key) and _text(value) not in ("true", "false", ""):
            mask_secret(str(value))


def _text(value: object) -> str:
    return str(value).lower().strip()


def load_connection(conn_id: str) -> Connection:
    """Load the connection. Raises :class:`UsageError`, which says how to add it; an unreachable secrets backend raises
    its own error."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ:
            # Airflow ignores a variable that it cannot parse. The error does not quote it: it may hold a password.
            fault = f"cannot be read: AIRFLOW_CONN_{conn_id.upper()} is neither a JSON connection nor a URI"
            raise _refuse(conn_id, fault) from None
        fault = "does not exist in Airflow; the provider would use `yarn` instead, tidegate does not"
        raise _refuse(conn_id, fault) from None
    except (ValueError, TypeError) as exc:
        raise _refuse(conn_id, f"cannot be parsed ({type(exc).__name__})") from None


def resolve_master(connection: Connection) -> str:
    """The master URL that the provider's hook builds from ``connection``.

    Raises :class:`UsageError` when the connection is not a Spark master, and for deploy mode ``cluster``: its driver
    runs on another machine and could outlive the task. (A standalone master refuses Python in that mode anyway.)
    """
    conn_id = connection.conn_id
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    if connection.port:
        master = f"{master}:{connection.port}"
    try:
        parse_master(master)
    except ValueError:
        fault = f"(type {connection.conn_type!r}) gives the master {_without_login(master)!r}, which is not one of "
        raise _refuse(conn_id, f"{fault}{MASTER_FORMS}") from None
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise _refuse(conn_id, "has an extra that is not a JSON object")
    if extra.get("deploy-mode") not in (None, "", "client"):
        raise _refuse(conn_id, f"asks for deploy-mode {_without_login(str(extra['deploy-mode']))!r}; {_ONLY_CLIENT}")
    return master


def _refuse(conn_id: str, fault: str) -> UsageError:
    where = "spark.connection in tidegate.yaml"
    arguments = "--conn-type spark --conn-host 'local[*]'"
    return errors.CONNECTION_INVALID(where=where, conn_id=conn_id, fault=fault, arguments=arguments)


def _without_login(text: str) -> str:
    """The text, shortened, without what is before an @: that may be a login."""
    return shorten(text.rpartition("@")[2], 60)
