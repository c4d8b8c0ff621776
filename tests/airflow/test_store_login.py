"""Credentials of buckets from an Airflow connection, as Airflow's own hooks for AWS take them."""

from __future__ import annotations

import json

import pytest

from tidegate.airflow import store_login
from tidegate.airflow.store_login import find_login
from tidegate.core.errors import UsageError

KEYS = {"conn_type": "aws", "login": "AKIATEST", "password": "sesame street"}


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    store_login._find_login.cache_clear()
    monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT", raising=False)
    monkeypatch.delenv("AIRFLOW_CONN_LAKE", raising=False)


def test_keys_address_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"endpoint_url": "http://minio:9000", "region_name": "eu-west-1"}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps({**KEYS, "extra": extra}))
    assert find_login("aws_default") == {
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "sesame street",
        "AWS_SESSION_TOKEN": "",  # that of the environment does not belong to the key
    }


def test_the_address_of_s3_alone_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"endpoint_url": "http://other", "service_config": {"s3": {"endpoint_url": "http://minio:9000"}}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps({"conn_type": "aws", "extra": extra}))
    assert find_login("aws_default") == {"AWS_ENDPOINT_URL": "http://minio:9000"}


def test_the_default_connection_need_not_exist_or_hold_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_login("aws_default") == {}
    store_login._find_login.cache_clear()
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", "aws://")
    assert find_login("aws_default") == {}


def test_a_connection_is_looked_at_again_after_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(store_login.time, "monotonic", lambda: clock[0])
    assert find_login("aws_default") == {}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(KEYS))
    assert find_login("aws_default") == {}
    clock[0] = 301.0
    assert find_login("aws_default")["AWS_ACCESS_KEY_ID"] == "AKIATEST"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "does not exist in Airflow"),
        ({"conn_type": "aws", "login": "AKIATEST"}, "it needs both"),
        ({**KEYS, "extra": "[1]"}, "an extra that is not a JSON object"),
        ({**KEYS, "extra": "{"}, "an extra that is not a JSON object"),
        ({"conn_type": "aws", "extra": {"role_arn": "arn:aws:iam::1:role/r"}}, "apache-airflow-providers-amazon"),
    ],
)
def test_what_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch, value: object, fault: str) -> None:
    if value is not None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
    with pytest.raises(UsageError) as caught:
        find_login("lake")
    assert caught.value.code == "CONNECTION_INVALID"
    assert fault in caught.value.message
    assert "airflow connections add lake --conn-type aws" in str(caught.value.fix)
    assert "sesame street" not in str(caught.value)
