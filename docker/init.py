"""What has to be there before Airflow's services start: folders, the login, the database's tables.

The one-shot service airflow-init runs it at each `make up`; all of it may be done again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LOGIN = "admin"
FOLDERS = ("data/inbox", "data/static", "data/warehouse", "data/state", "data/quarantine")


def make_folders(root: Path) -> None:
    """The folders of the project's volume, which must be one file system: a publish renames, the intake links."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)


def write_login(path: Path, password: str) -> None:
    """The passwords file of Airflow's simple auth manager, readable by the services alone."""
    beside = path.with_suffix(".new")
    beside.touch(mode=0o600)
    beside.write_text(json.dumps({LOGIN: password}) + "\n")
    beside.replace(path)


def main() -> int:
    """Everything; an error says what it is and what fixes it."""
    root = Path(os.environ["TIDEGATE_PROJECT"])
    passwords = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    try:
        make_folders(root)
        write_login(passwords, os.environ["AIRFLOW_ADMIN_PASSWORD"])
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        print(
            f"  fix: user {os.getuid()} must be able to write there (chown -R {os.getuid()}), make up", file=sys.stderr
        )
        return 1
    return subprocess.run(["airflow", "db", "migrate"]).returncode


if __name__ == "__main__":
    sys.exit(main())
