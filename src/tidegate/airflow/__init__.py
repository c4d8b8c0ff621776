"""Pipelines as Airflow DAGs: ``from tidegate.airflow import build_dag; dag = build_dag("orders")``.

Names are imported on first access: the API server's plugin is in this package too and needs no operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.core import storage

if TYPE_CHECKING:
    from tidegate.airflow.dag import build_dag, build_maintenance_dag, table_asset
    from tidegate.airflow.operators import AuditOperator, IngestOperator, MaintainOperator, PublishOperator

__all__ = [
    "AuditOperator",
    "IngestOperator",
    "MaintainOperator",
    "PublishOperator",
    "build_dag",
    "build_maintenance_dag",
    "table_asset",
]


def _find_store_login(conn_id: str) -> dict[str, str]:
    from tidegate.airflow.store_login import find_login

    return find_login(conn_id)


storage.use_login(_find_store_login)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "operators" if name.endswith("Operator") else "dag"
    return getattr(import_module(f"{__name__}.{home}"), name)
