"""The spark-submit of one ingest, as a value that the command line and Airflow share, and how the command line runs
it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import locale
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidegate.core import storage
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.extras import check_spark
from tidegate.core.process.tree import bind_to_parent, end_tree
from tidegate.spark import errors
from tidegate.spark.driver.cluster import choose_cores, cluster_conf
from tidegate.spark.driver.java import check_java
from tidegate.spark.driver.jvm import LAUNCHER_ENV, WORKER_CONF, driver_conf, jvm_options, own_settings
from tidegate.spark.driver.jvm_archive import ensure_archive
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.driver.packages import find_packages
from tidegate.spark.driver.progress import Event, parse_marker
from tidegate.spec.project import Project
from tidegate.spec.spark_settings import parse_master
from tidegate.state.batch_files import Given
from tidegate.state.topics import offsets_to_json

_DRIVER_MEMORY = "1g"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_END_BYTES = 64 << 10
_PACKAGE = Path(__file__).resolve().parents[1]


class Load(NamedTuple):
    """How much a driver is to read: by it its settings are chosen."""

    bytes: int
    files: int


@dataclass(frozen=True)
class SubmitPlan:
    """The arguments of spark-submit."""

    application: str
    application_args: list[str]
    conf: dict[str, str]
    jars: list[str] = field(default_factory=list)
    env_vars: dict[str, str] = field(default_factory=dict)
    driver_memory: str = _DRIVER_MEMORY
    master: str = "local[*]"
    log_path: str | None = None
    pending_bytes: int = 0


def plan_submit(
    project: Project,
    *,
    order_path: Path,
    log_path: Path,
    pipeline_conf: Mapping[str, object],
    load: Load,
    settings: Mapping[str, str],
) -> SubmitPlan:
    """Driver settings for this run: chosen by what is pending, then the project's, the pipeline's, and ``settings``,
    which the checkpoint keeps from its birth."""
    check_spark()
    own = own_settings(project, pipeline_conf)
    master = parse_master(project.spec.spark.master)
    if master.is_cluster:
        cores = choose_cores(master, load.bytes, own)
        chosen = driver_conf(load.bytes, load.files, cores)
        chosen |= cluster_conf(master, load.bytes, cores, sys.executable)
        chosen |= {f"spark.executorEnv.{name}": value for name, value in storage.store_settings().items()}
        pythons = {}
    else:
        chosen = driver_conf(load.bytes, load.files, master.local_cores or len(os.sched_getaffinity(0)))
        chosen |= WORKER_CONF
        pythons = {"PYSPARK_PYTHON": sys.executable}
    conf = {**chosen, **own, **settings}
    options = " ".join([*jvm_options(load.bytes, _class_archive()), own.get(_JAVA_OPTIONS, "")]).strip()
    conf[_JAVA_OPTIONS] = options
    return SubmitPlan(
        application=str(find_application(project)),
        application_args=[str(order_path)],
        conf=conf,
        jars=[str(path) for path in find_packages(project)],
        env_vars={
            **pythons,
            **utf8_locale(),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            **LAUNCHER_ENV,
            **storage.child_environment(),
        },
        driver_memory=conf.get("spark.driver.memory", _DRIVER_MEMORY),
        master=master.url,
        log_path=str(log_path),
        pending_bytes=load.bytes,
    )


def utf8_locale() -> dict[str, str]:
    """The environment for a JVM that can write file names that are not ASCII, if this process's locale cannot.

    Java takes their encoding from it. With ``LC_ALL=C``, as cron has it, or with a ``LANG`` that is not installed, as
    ssh hands it on, it cannot make a folder ``city=Troms\u00f8``.
    """
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        is_utf8 = locale.nl_langinfo(locale.CODESET) == "UTF-8"
    except locale.Error:
        is_utf8 = False
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return {} if is_utf8 else {"LC_ALL": "C.UTF-8"}


def _class_archive() -> Path | None:
    """The JVM's class archive, made by the first run on a machine; it only saves time, so it may be missing."""

    return ensure_archive(say=_say)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def run_spark_submit(plan: SubmitPlan, on_event: Callable[[Event], None] | None = None) -> int:
    """Run the driver to its end and return its exit code; its log goes to ``plan.log_path``.

    The driver dies with this process, also when this process is killed. A signal that stops this process (it must raise
    from its handler) ends the whole tree first.
    """
    command = [find_spark_submit(), "--master", plan.master, "--driver-memory", plan.driver_memory]
    if plan.jars:
        command += ["--jars", ",".join(plan.jars)]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(plan.log_path or os.devnull, "wb", buffering=0))
        # Settings go through a file without a name: arguments can be read by everyone on the machine.
        settings = stack.enter_context(os.fdopen(os.memfd_create("tidegate-spark-settings", 0), "wb", buffering=0))
        settings.write(format_properties(plan.conf).encode())
        command += ["--properties-file", f"/proc/self/fd/{settings.fileno()}", "--load-spark-defaults"]
        process = subprocess.Popen(
            [*command, plan.application, *plan.application_args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **plan.env_vars},
            start_new_session=True,
            preexec_fn=bind_to_parent(os.getpid()),
            pass_fds=(settings.fileno(),),
        )
        try:
            assert process.stdout is not None
            for raw in process.stdout:
                event = parse_marker(raw.decode("utf-8", "replace").rstrip("\n"))
                if event is None:
                    with contextlib.suppress(OSError):  # a full disk: the driver itself says so
                        log.write(raw)
                elif on_event is not None:
                    on_event(event)
            return process.wait()
        finally:
            end_tree(process.pid)
            process.wait()


def format_properties(conf: Mapping[str, str]) -> str:
    """Spark's properties file; what Java's reader would take for syntax is escaped."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in sorted(conf.items()))


def _escape(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join("\\" + char if char in "=:#! " else char for char in plain)


def find_spark_submit() -> str:
    """The spark-submit next to this interpreter, else the one on PATH."""
    installed = Path(sys.executable).parent / "spark-submit"
    found = str(installed) if installed.exists() else shutil.which("spark-submit")
    if found is None:
        raise errors.SPARK_SUBMIT_MISSING(executable=sys.executable)
    check_java()
    return found


def find_application(project: Project) -> Path:
    """``jobs/tidegate_job.py`` of the project if it has one, else that of the package. Raises DisagreementError
    APPLICATION_OUTDATED."""
    own = project.jobs / "tidegate_job.py"
    if own.is_file():
        with contextlib.suppress(SyntaxError):  # the driver's log has it
            if (missing := _find_missing(own)) is not None:
                raise errors.APPLICATION_OUTDATED(where=str(own), path=own, missing=missing)
        return own
    return _PACKAGE / "launch" / "tidegate_job.py"


def _find_missing(application: Path) -> str | None:
    """The first of the imports from tidegate in ``application`` that this version does not have."""
    imports = [node for node in ast.walk(ast.parse(application.read_bytes())) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        module = node.module or ""
        if module.partition(".")[0] != "tidegate" or node.level:
            continue
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            return module
        if lost := [one.name for one in node.names if not hasattr(found, one.name)]:
            return f"{lost[0]} from {module}"
    return None


def driver_died(name: str, exit_code: int, log_path: Path) -> TidegateError:
    """The error when the driver ended without an answer."""
    log = _read_log(log_path)
    signal_number = exit_code - 128 if exit_code > 128 else -exit_code
    how = f"was ended by signal {signal_number}" if signal_number > 0 else f"ended with code {exit_code}"
    fix = "`tidegate doctor` looks at Java, Spark and the disk; the log has what the driver said last"
    if signal_number == signal.SIGKILL:
        how = "was killed (SIGKILL, most often by the kernel's out-of-memory killer)"
        fix = (
            "if memory ran out (`dmesg -T | grep -i oom` on the machine), give the machine or container more memory, "
            "or run fewer drivers at once (`airflow: {slots: ...}` in tidegate.yaml)"
        )
    return errors.DRIVER_DIED(where=str(log_path), how=how, tail=_tail(log), fix=fix, name=name)


def _read_log(path: Path) -> str:
    """The end of a driver's log; "" when it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_END_BYTES))
        return log.read().decode("utf-8", "replace").strip()
    return ""


def _tail(log: str, lines: int = 5) -> str:
    text = [line for line in log.splitlines() if not line.lstrip().startswith(("at ", "... "))]  # frames of Java
    return "; its log ends: " + " | ".join(line.strip()[:200] for line in text[-lines:]) if text else ""


OUT_OF_MEMORY_EXIT = 52
"""Spark's own, for an OutOfMemoryError that nothing caught; in a local session a task's error ends the driver."""

_SIZE = re.compile(r"(\d+)([a-z]*)", re.IGNORECASE)


def ran_out(exit_code: int, error: TidegateError | None, *, on_cluster: bool) -> bool:
    """Return whether the driver ran out of memory: by its exit code, or by its answer ``error``, which on a cluster may
    be about an executor's memory."""
    return exit_code == OUT_OF_MEMORY_EXIT if error is None else error.code == "OUT_OF_MEMORY" and not on_cluster


def out_of_memory(name: str, memory: str, in_hand: str, log_path: Path) -> UsageError:
    """The error when ``memory`` (as ``spark.driver.memory`` has it) was too little for the work ``in_hand``."""
    fault = f"the driver had {memory}, and was reading {in_hand}"
    fix = (
        f"`spark: {{conf: {{spark.driver.memory: {_double(memory)}}}}}` in jobs/{name}/pipeline.yaml, or smaller "
        "batches (options: maxFilesPerTrigger, maxOffsetsPerTrigger; a batch that has already started keeps its size)"
    )
    return errors.OUT_OF_MEMORY(where=f"log: {log_path}", fault=fault, fix=fix, name=name)


def describe_batch(order: IngestOrder, batch: int | None, given: Mapping[str, Given]) -> str:
    """Describe the input of a batch by source, with the largest file; before the first batch, of the whole order."""
    links = {name: one.links for name, one in given.items()} if batch is not None else order.links
    inputs = [_describe_files(name, list(taken), order) for name, taken in links.items() if taken]
    for name, one in given.items():
        begins, ends = offsets_to_json(one.begins), offsets_to_json(one.ends)
        for topic, numbers in ends.items():
            begin = begins.get(topic, {})
            ranges = ", ".join(f"{number}: {begin.get(number)} to {end}" for number, end in sorted(numbers.items()))
            inputs.append(f"{name}: topic {topic}, partitions and offsets {ranges}"[:400])
    what = "no batch yet" if batch is None else f"batch {batch}"
    return f"{what} ({'; '.join(inputs)})" if inputs else what


def _describe_files(name: str, links: list[str], order: IngestOrder) -> str:
    pending = order.links.get(name, {})
    sizes = {link: pending[link]["size"] if link in pending else 0 for link in links}
    largest = max(sizes, key=sizes.__getitem__)
    size = sizes[largest]
    number = "1 file" if len(links) == 1 else f"{len(links):,} files, the largest"
    return f"{name}: {number} {order.original(largest)} of {size:,} bytes"


def _double(memory: str) -> str:
    match = _SIZE.fullmatch(memory.strip())
    return f"{int(match[1]) * 2}{match[2]}" if match else "4g"
