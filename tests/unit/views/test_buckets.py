"""`doctor` and `validate` say what keeps runs from using the buckets that a project names."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.exceptions import PermissionDeniedError

from tests.support.faulty_store import FaultyStore, use_store
from tidegate.core import storage
from tidegate.core.storage import ObjectPath
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views import buckets, doctor
from tidegate.views.buckets import list_places
from tidegate.views.validate import find_in_buckets

PROJECT = """version: 1
warehouse: s3://lake/tables
quarantine: s3://lake/quarantine
"""
PIPELINE = """version: 1
name: orders
schedule: null
sources:
  orders: {type: files, path: data/inbox, format: json, schema: id STRING}
table:
  path: s3://other/orders
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "tidegate.yaml").write_text(PROJECT)
    (tmp_path / "jobs/orders").mkdir(parents=True)
    (tmp_path / "jobs/orders/pipeline.yaml").write_text(PIPELINE)
    return load_project(tmp_path)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    store = FaultyStore()
    use_store(monkeypatch, store)
    return store


def may_not_delete_quarantine(store: FaultyStore) -> None:
    real = store.delete

    def delete(paths: str | list[str]) -> None:
        if str(paths).startswith("quarantine/"):
            raise PermissionDeniedError("403 Forbidden: <Code>AccessDenied</Code>")
        real(paths)

    store.delete = delete  # type: ignore[method-assign,assignment]


def test_each_prefix_is_asked_about_once(project: Project) -> None:
    specs = [load_pipeline(project, "orders")]
    assert [(place.name, str(place.path)) for place in list_places(project, specs)] == [
        ("warehouse", "s3://lake/tables"),
        ("quarantine", "s3://lake/quarantine"),
        ("table of orders", "s3://other/orders"),
    ]
    table = project.root / "jobs/orders/pipeline.yaml"
    table.write_text(PIPELINE.replace("other/orders", "lake/tables/orders_2"))
    places = list_places(project, [load_pipeline(project, "orders")])
    assert [place.name for place in places] == ["warehouse", "quarantine"], "what holds for the warehouse holds in it"


def test_validate_names_the_line_and_the_missing_right(project: Project, store: FaultyStore) -> None:
    assert find_in_buckets(project, None) == []
    may_not_delete_quarantine(store)
    [fault] = find_in_buckets(project, None)
    assert (fault.file, fault.line, fault.key, fault.code) == ("tidegate.yaml", 3, "quarantine", "STORE_REFUSED")
    assert "no right to delete there" in fault.message
    assert storage.list_tree(ObjectPath("s3://lake")) == []


def test_doctor_asks_about_buckets_and_the_local_disk_of_the_state(project: Project, store: FaultyStore) -> None:
    may_not_delete_quarantine(store)
    found = {one.check: one for one in doctor.examine(project)}
    assert found["warehouse"].ok and "written" in found["warehouse"].found
    assert not found["quarantine"].ok and "no right to delete there" in found["quarantine"].found
    assert found["table of orders"].ok
    assert found["state"].ok and found["disk"].ok
    assert "file system" not in found, "nothing else is on a disk"


def test_doctor_does_not_wait_for_a_store_that_is_away_in_each_pipeline(
    project: Project, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "PATIENCE_SECONDS", 0.1)
    store.choose = lambda name, number: "lost request"
    wrong = {one.check: one.found for one in doctor.examine(project) if not one.ok}
    assert {"warehouse", "quarantine", "table of orders"} <= set(wrong)
    assert not [check for check in wrong if check.startswith(("state of", "tables of"))]
    assert "STORAGE_FAILED" in wrong["warehouse"]


def test_a_project_without_buckets_asks_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "tidegate.yaml").write_text("version: 1\n")
    file = project.root / "jobs/orders/pipeline.yaml"
    file.write_text(PIPELINE.replace("s3://other/orders", "data/orders"))
    local = load_project(project.root)
    assert find_in_buckets(local, None) == []
