"""Writes ``.env``, from which docker-compose.yaml takes its secrets and sizes: what `make compose-env` calls.

    python -m tools.compose_env

Each secret is newly generated. A file that is there keeps every line it has; only names that it lacks are added, as
after an upgrade. Nobody but its owner may read it.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main

ENV_PATH = REPO_ROOT / ".env"
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)$")


def draw_secret() -> str:
    """A secret of 256 bits that needs no quoting: not in a file of settings, not in a URL."""
    return secrets.token_urlsafe(32)


def draw_fernet_key() -> str:
    """A key in the form that Airflow's encryption of connections wants."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True)
class Setting:
    """One line of ``.env``: its name, what it is for, and its value or how a secret one is drawn."""

    name: str
    purpose: str
    value: str | Callable[[], str]


SETTINGS = (
    Setting("TIDEGATE_IMAGE", "the image: a name with a slash is pulled, any other is built here", "tidegate:local"),
    Setting("COMPOSE_PROFILES", "what `make up` starts: core, kafka, cluster, s3", "core,kafka"),
    Setting("AIRFLOW_BIND", "the address of this machine on which Airflow's UI is offered", "127.0.0.1"),
    Setting("AIRFLOW_PORT", "and its port", "8080"),
    Setting("AIRFLOW_URL", "where a browser finds the UI; another one behind a proxy", "http://localhost:8080"),
    Setting("AIRFLOW_SCHEDULERS", "how many schedulers share the database and the work", "1"),
    Setting("AIRFLOW_PARALLELISM", "tasks at the same time on each scheduler", "8"),
    Setting("SCHEDULER_CPUS", "limits of each scheduler, in which the Spark drivers run", "2"),
    Setting("SCHEDULER_MEMORY", "about 1.5 GB a driver, and 1 GB", "8g"),
    Setting("SPARK_MASTER", "local[2], or with profile cluster spark://spark-master:7077", "local[2]"),
    Setting("SPARK_WORKERS", "profile cluster: how many workers", "2"),
    Setting("SPARK_WORKER_CORES", "and what each of them has to give", "1"),
    Setting("SPARK_WORKER_MEMORY", "to executors", "2g"),
    Setting("SPARK_WORKER_LIMIT", "the container's limit: that, the executors' Python, the worker itself", "4g"),
    Setting("KAFKA_BOOTSTRAP_SERVERS", "the broker of profile kafka, or your own", "kafka:9092"),
    Setting("POSTGRES_PASSWORD", "of Airflow's database; a change needs ALTER USER there, too", draw_secret),
    Setting("AIRFLOW_ADMIN_PASSWORD", "the login `admin` of the UI", draw_secret),
    Setting("OBJECT_STORE_SECRET_KEY", "of the user `tidegate` of profile s3", draw_secret),
    Setting(
        "AIRFLOW_FERNET_KEY", "encrypts connections in the database: lost with it, they cannot be read", draw_fernet_key
    ),
    Setting("AIRFLOW_JWT_SECRET", "signs the tokens of tasks and logins", draw_secret),
    Setting("AIRFLOW_SECRET_KEY", "signs what the UI keeps in a browser", draw_secret),
)


def write_env(path: Path) -> list[str]:
    """Make ``path``, or add what it lacks; the names of the lines written. Raises ToolError when it cannot be used."""
    there = read_env(path) if path.exists() else {}
    missing = [setting for setting in SETTINGS if setting.name not in there]
    if not missing:
        return []
    if not there:
        text = "# Settings and secrets of docker-compose.yaml, made by `make compose-env`. Not for a repository.\n"
    else:
        kept = path.read_text(encoding="utf-8")
        text = kept if kept.endswith("\n") else kept + "\n"
    for setting in missing:
        value = setting.value if isinstance(setting.value, str) else setting.value()
        text += f"# {setting.purpose}\n{setting.name}={value}\n"
    _write_private(path, text)
    return [setting.name for setting in missing]


def read_env(path: Path) -> dict[str, str]:
    """The names and values of an env file. Raises ToolError when others may read it, or a line is not a setting."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ToolError(f"{path.name} holds secrets and others may read it (mode {mode:04o})", f"chmod 600 {path.name}")
    try:
        text = path.read_text(encoding="utf-8")
    except PermissionError:
        raise ToolError(f"{path.name} belongs to another user", f"sudo chown $(id -un) {path.name}") from None
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path.name} is not UTF-8 ({error.reason} at byte {error.start})", "save it as UTF-8"
        ) from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            # Not the line itself: half a secret is one as well.
            raise ToolError(
                f"{path.name}:{number} is not NAME=value", f"correct that line, or put # before it: {path.name}"
            )
        values[match[1]] = _unquote(match[2].strip())
    return values


def _unquote(text: str) -> str:
    """A value without its quotes, or without the comment behind it, as Compose reads it."""
    if text[:1] in ("'", '"'):
        return text[1:].partition(text[0])[0]
    return re.sub(r"\s+#.*$", "", text)


def list_empty(values: Mapping[str, str]) -> list[str]:
    """The secrets that ``values`` lacks or leaves empty."""
    return [setting.name for setting in SETTINGS if callable(setting.value) and not values.get(setting.name)]


def _write_private(path: Path, text: str) -> None:
    """In one step, and never readable by others, not even before it is whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror}", "make sure that this user may write there") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    if arguments:
        raise ToolError(f"unknown arguments: {' '.join(arguments)}", "make compose-env")
    was_there = ENV_PATH.exists()
    written = write_env(ENV_PATH)
    if not was_there:
        print(f"wrote {ENV_PATH.name} (mode 0600): {len(written)} settings, its secrets drawn at random")
        print("the login is admin, its password stands there as AIRFLOW_ADMIN_PASSWORD; next: make up")
    elif written:
        print(f"added to {ENV_PATH.name}: {', '.join(written)}; what was there is as it was")
    else:
        print(f"{ENV_PATH.name} has everything; nothing was changed")
    return 0


if __name__ == "__main__":
    run_main(main)
