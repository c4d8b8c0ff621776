"""tidegate's pages on a port of their own, without Airflow around them: whoever asks may see everything.

python -m tests.support.ui_server PROJECT [PORT]
"""

# No `from __future__ import annotations`: FastAPI resolves the annotations of dependencies at run time.
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request

from tidegate.views.pages.runs import Scheduled


def make_app(
    project: Path,
    *,
    readable: Callable[[str], bool] = lambda _: True,
    paused: Collection[str] = (),
    runs: Mapping[str, Mapping[str, str | None]] = MappingProxyType({}),
    scheduled: Mapping[str, Sequence[Scheduled]] = MappingProxyType({}),
    patch: pytest.MonkeyPatch | None = None,
) -> FastAPI:
    """The app, mounted as Airflow mounts it. ``readable`` says which DAGs may be read, ``paused`` which are; ``runs``
    are those that Airflow has, by id (:class:`tidegate.airflow.ui.access.RunInAirflow`), ``scheduled`` those of each
    DAG that wait, go on, or have failed."""
    from airflow.api_fastapi.core_api.security import get_user

    from tidegate.airflow.ui import access, app, served

    def may_read(request: Request) -> None:
        if not readable(request.path_params["dag_id"]):
            raise HTTPException(403, "Forbidden")

    patch = patch or pytest.MonkeyPatch()
    rights = {"trigger": True, "edit": True, "decide": True}
    may = (access.may_read_dag, access.may_trigger, access.may_edit, access.may_decide)
    overrides = {get_user: lambda: "somebody", **dict.fromkeys(may, may_read)}
    patch.setattr(app.app, "dependency_overrides", overrides)
    patch.setattr(access, "list_readable", lambda user, dag_ids: [one for one in dag_ids if readable(one)])
    patch.setattr(access, "list_rights", lambda user, dag_id: rights)
    patch.setattr(access, "find_run", lambda dag_id, run_id: runs.get(run_id))
    patch.setattr(access, "list_scheduled", lambda dag_ids: {one: list(scheduled.get(one, ())) for one in dag_ids})
    patch.setattr(access, "list_import_errors", lambda dag_ids: {})
    patch.setattr(access, "is_paused", lambda dag_id: dag_id in paused)
    patch.setattr(access, "list_paused", lambda dag_ids: set(dag_ids) & set(paused))
    patch.setattr(served, "find_served_project", lambda: project)
    outer = FastAPI()
    outer.mount("/tidegate", app.app)
    return outer


def main(arguments: list[str]) -> None:
    """The command line; see the module's docstring."""
    import uvicorn

    options: dict[str, Any] = {"port": int(arguments[1]) if len(arguments) > 1 else 8123, "log_level": "warning"}
    uvicorn.run(make_app(Path(arguments[0]).resolve()), host="127.0.0.1", **options)


if __name__ == "__main__":
    main(sys.argv[1:])
