"""Finding the project from a DAG file or from the API server."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.airflow import errors
from tidegate.spec.project import PROJECT_FILE

PROJECT_VARIABLE = "TIDEGATE_PROJECT"


def find_project(caller: str, project_dir: str | os.PathLike[str] | None = None) -> Path:
    """The project's root: ``project_dir``, else at or above the file ``caller``, else ``TIDEGATE_PROJECT``.

    Raises :class:`UsageError` PROJECT_NOT_FOUND.
    """
    if project_dir is not None:
        return Path(project_dir).resolve()
    for folder in Path(caller).resolve().parents:
        if (folder / PROJECT_FILE).is_file():
            return folder
    if os.environ.get(PROJECT_VARIABLE):
        return Path(os.environ[PROJECT_VARIABLE]).resolve()
    raise errors.PROJECT_NOT_FOUND(where=caller, project_file=PROJECT_FILE, parent=Path(caller).parent)


def find_served_project() -> Path:
    """The project that this Airflow serves: around its DAG folder, around its plugins folder, or ``TIDEGATE_PROJECT``.

    Raises :class:`UsageError` PROJECT_NOT_FOUND.
    """
    from airflow.configuration import conf

    for option in ("dags_folder", "plugins_folder"):
        folder = Path(conf.get_mandatory_value("core", option)).resolve()
        for candidate in (folder, *folder.parents):
            if (candidate / PROJECT_FILE).is_file():
                return candidate
    return find_project(os.path.join(conf.get_mandatory_value("core", "dags_folder"), "-"))  # the variable, or an error
