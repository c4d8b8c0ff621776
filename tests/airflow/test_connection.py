"""The project's Spark connection: what is missing or malformed is refused, never replaced by yarn."""

from __future__ import annotations

import json

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from tidegate.airflow.hook import DriverHook
from tidegate.core.errors import UsageError


def set_connection(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_GATE_TEST", text)


@pytest.mark.parametrize(
    ("value", "master"),
    [
        ({"conn_type": "spark", "host": "local[*]"}, "local[*]"),
        ({"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}, "local[2]"),
        ({"conn_type": "spark", "host": "spark://master-1", "port": 7077}, "spark://master-1:7077"),
        ({"conn_type": "spark", "host": "spark://m1:7077,m2:7077"}, "spark://m1:7077,m2:7077"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
        ("spark://master-1:7077", "spark://master-1:7077"),
    ],
)
def test_a_good_connection_gives_its_master(monkeypatch: pytest.MonkeyPatch, value: object, master: str) -> None:
    set_connection(monkeypatch, value)
    hook = DriverHook("spark_gate_test", "x")
    assert hook.master == hook._connection["master"] == master


def test_a_missing_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_GATE_TEST", raising=False)
    # No metadata database either: the environment is the only backend that is asked.
    with pytest.raises(UsageError) as caught:
        DriverHook("spark_gate_test", "x")
    assert caught.value.code == "CONNECTION_INVALID"
    assert "'spark_gate_test'" in caught.value.message
    assert "airflow connections add spark_gate_test" in str(caught.value.fix)


@pytest.mark.parametrize(
    "value",
    [
        "local[*]",
        "spark://local[*]",
        "yarn",
        "{not json",
        "[]",
        "spark://",
        {"conn_type": "spark"},
        {"conn_type": "spark", "host": ""},
        {"conn_type": "spark", "host": "local[0]"},
        {"conn_type": "spark", "host": "local[*] --conf x=y"},
        {"conn_type": "spark", "host": "locale"},
        {"conn_type": "http", "host": "example"},
        {"conn_type": "spark", "host": "local[*]", "extra": "not json"},
    ],
)
def test_a_malformed_connection_is_refused(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    set_connection(monkeypatch, value)
    with pytest.raises(UsageError) as caught:
        DriverHook("spark_gate_test", "x")
    assert caught.value.code == "CONNECTION_INVALID"


def test_deploy_mode_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, {"conn_type": "spark", "host": "spark://m:7077", "extra": {"deploy-mode": "cluster"}})
    with pytest.raises(UsageError) as caught:
        DriverHook("spark_gate_test", "x")
    assert caught.value.code == "CONNECTION_INVALID"


def test_no_password_of_a_connection_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "odd://user:canary-password@host:1")
    with pytest.raises(UsageError) as caught:
        DriverHook("spark_gate_test", "x")
    assert "canary" not in str(caught.value)
    set_connection(monkeypatch, {"conn_type": "spark", "host": "odd://user:canary-password@host"})
    with pytest.raises(UsageError) as caught:
        DriverHook("spark_gate_test", "x")
    assert "canary" not in str(caught.value)


def test_a_backend_that_gives_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment Airflow hides such an error; other backends pass it on, and it may quote a password."""

    def refuse(conn_id: str) -> None:
        raise ValueError("port: hunter2")

    monkeypatch.setattr(BaseHook, "get_connection", refuse)
    with pytest.raises(UsageError, match=r"CONNECTION_INVALID: .* cannot be parsed \(ValueError\)"):
        DriverHook("spark_gate_test", "x")


def test_a_master_that_the_provider_reads_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = DriverHook._resolve_connection
    monkeypatch.setattr(DriverHook, "_resolve_connection", lambda hook: {**resolve(hook), "master": "yarn"})
    set_connection(monkeypatch, {"conn_type": "spark", "host": "local[2]"})
    with pytest.raises(UsageError, match=r"is read as 'local\[2\]' here and as 'yarn' by the Spark provider"):
        DriverHook("spark_gate_test", "x")
