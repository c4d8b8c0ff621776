"""Settings of tidegate.yaml by variables of their own: over the file, named in faults, never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.spec.environment import list_variables
from tidegate.spec.faults import SpecError, sounds_secret
from tidegate.spec.project import Project, load_project

CANARY = "canary-5d2e"


def load(tmp_path: Path, text: str, **environment: str) -> Project:
    (tmp_path / "tidegate.yaml").write_text(text)
    return load_project(tmp_path, environment)


def refuse(tmp_path: Path, text: str, **environment: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, **environment)
    return caught.value


VALUES = {
    "TIDEGATE__WAREHOUSE": ("/srv/tables", "/srv/tables"),
    "TIDEGATE__STATE": ("/srv/state", "/srv/state"),
    "TIDEGATE__QUARANTINE": ("/srv/aside", "/srv/aside"),
    "TIDEGATE__SPARK__CONNECTION": ("spark_team", "spark_team"),
    "TIDEGATE__SPARK__MASTER": ("spark://m:7077", "spark://m:7077"),
    "TIDEGATE__SPARK__CONF": ('{"spark.executor.memory": "2g"}', {"spark.executor.memory": "2g"}),
    "TIDEGATE__SPARK__PACKAGES": ('[{"jar": "a.b:c:1"}]', [{"jar": "a.b:c:1", "sha256": None}]),
    "TIDEGATE__KAFKA__BOOTSTRAP_SERVERS": ("k:9092", "k:9092"),
    "TIDEGATE__KAFKA__OPTIONS": ('{"client.rack": "r"}', {"client.rack": "r"}),
    "TIDEGATE__S3__ENDPOINT": ("https://minio:9000", "https://minio:9000"),
    "TIDEGATE__S3__REGION": ("eu-west-1", "eu-west-1"),
    "TIDEGATE__S3__PATH_STYLE": ("false", False),
    "TIDEGATE__S3__CA_FILE": ("tidegate.yaml", "tidegate.yaml"),
    "TIDEGATE__S3__CONNECTION": ("lake", "lake"),
    "TIDEGATE__LEASE__EXPIRES_AFTER": ("2 minutes", 120.0),
    "TIDEGATE__AIRFLOW__POOL": ("heavy", "heavy"),
    "TIDEGATE__AIRFLOW__SLOTS": ("7", 7),
    "TIDEGATE__UI__SHOW_DATA": ("true", True),
    "TIDEGATE__UI__SPARK_HISTORY": ("http://history:18080", "http://history:18080"),
    "TIDEGATE__MAINTENANCE__SCHEDULE": ("0 3 * * *", "0 3 * * *"),
    "TIDEGATE__MAINTENANCE__KEEP_VERSIONS": ("1 hour", 3600.0),
    "TIDEGATE__MAINTENANCE__COMPACT_BELOW": ("8 MiB", 8 << 20),
    "TIDEGATE__MAINTENANCE__EXPIRE__REPORTS": ("0", 0.0),
    "TIDEGATE__MAINTENANCE__EXPIRE__PARTITIONS": ("400 days", 400 * 86_400.0),
    "TIDEGATE__MAINTENANCE__SOURCE": ("archive", "archive"),
    "TIDEGATE__ALERTS__NOTIFY": ('[{"notifier": "pager.Pager"}]', [{"notifier": "pager.Pager", "arguments": {}}]),
    "TIDEGATE__ALERTS__HELD": ("false", False),
    "TIDEGATE__ALERTS__FAILING": ("false", False),
    "TIDEGATE__ALERTS__BEHIND": ("2 hours", 7200.0),
    "TIDEGATE__ALERTS__QUARANTINE_SHARE": ("0.1", 0.1),
}


def test_every_setting_has_a_variable_and_it_works(tmp_path: Path) -> None:
    assert list(VALUES) == list(list_variables()), "a new setting needs a value here"
    project = load(tmp_path, "version: 1\n", **{name: text for name, (text, _) in VALUES.items()})
    made = project.spec.to_json()
    for name, path in list_variables().items():
        value = made
        for part in path:
            value = value[part]
        assert value == VALUES[name][1], name
    assert made["version"] == 1


@pytest.mark.parametrize("value", ["sqlite-jdbc", '{"jar": "a.b:c:1"}'])
def test_a_list_is_written_as_a_json_array(tmp_path: Path, value: str) -> None:
    told = refuse(tmp_path, "version: 1\n", TIDEGATE__SPARK__PACKAGES=value)
    [fault] = told.faults
    assert fault.key == "spark.packages" and fault.message == "the value is not a JSON array" and value not in str(told)


def test_the_environment_goes_over_the_file_key_by_key(tmp_path: Path) -> None:
    text = "warehouse: ${NOT_SET}\nstate: kept\nspark: {master: local, conf: {spark.a: file, spark.b: file}}\nlease:\n"
    project = load(
        tmp_path,
        text,
        TIDEGATE__WAREHOUSE="tables",
        TIDEGATE__SPARK__CONF=json.dumps({"spark.b": "variable", "spark.c": 3}),
        TIDEGATE__LEASE__EXPIRES_AFTER="9 seconds",
    )
    assert (project.spec.warehouse, project.spec.state, project.spec.spark.master) == ("tables", "kept", "local")
    assert project.spec.spark.conf == {"spark.a": "file", "spark.b": "variable", "spark.c": 3}
    assert project.spec.lease.expires_after == 9.0


def test_an_empty_variable_counts_as_not_set_and_null_is_nothing_where_that_is_allowed(tmp_path: Path) -> None:
    project = load(tmp_path, "warehouse: mine\n", TIDEGATE__WAREHOUSE="", TIDEGATE__AIRFLOW__POOL="null")
    assert (project.spec.warehouse, project.spec.airflow.pool) == ("mine", None)
    assert load(tmp_path, "", TIDEGATE__STATE="null").spec.state == "null"


def test_a_value_is_text_and_nothing_in_it_is_filled_in(tmp_path: Path) -> None:
    project = load(tmp_path, "", TIDEGATE__SPARK__CONNECTION="a, b: {c}", TIDEGATE__STATE="s", HOME="/root")
    assert project.spec.spark.connection == "a, b: {c}"
    project = load(tmp_path, "", TIDEGATE__KAFKA__BOOTSTRAP_SERVERS="${HOME}", HOME="/root")
    assert project.spec.kafka.bootstrap_servers == "${HOME}"


def test_faults_name_the_variable_and_the_nearest_one(tmp_path: Path) -> None:
    error = refuse(
        tmp_path,
        "version: 1\nwarehose: x\n",
        TIDEGATE__SPAKR__MASTER=CANARY,
        TIDEGATE__VERSION="1",
        TIDEGATE__SPARK__CONF__SPARK_EXECUTOR_MEMORY=CANARY,
        TIDEGATE__KAFKA__OPTIONS=f'"{CANARY}"',
        TIDEGATE__LEASE__EXPIRES_AFTER="ten minutes",
        TIDEGATE__STATE="s3a://bucket/state",
        TIDEGATE__AIRFLOW__SLOTS="four",
        TIDEGATE__UI__SPARK_HISTORY=f"http://me:{CANARY}@host",
    )
    assert CANARY not in str(error) + json.dumps(error.to_dict())
    told = {fault.where: (fault.key, fault.message, fault.fix) for fault in error.faults}
    assert told.pop("tidegate.yaml:2")[0] == "warehose"
    known = ", ".join(list_variables())
    assert told == {
        "environment variable TIDEGATE__SPAKR__MASTER": (
            "",
            "it sets nothing that tidegate.yaml knows",
            f"write TIDEGATE__SPARK__MASTER; allowed: {known}",
        ),
        "environment variable TIDEGATE__VERSION": (
            "",
            "it sets nothing that tidegate.yaml knows",
            told["environment variable TIDEGATE__VERSION"][2],
        ),
        "environment variable TIDEGATE__SPARK__CONF__SPARK_EXECUTOR_MEMORY": (
            "",
            "it sets nothing that tidegate.yaml knows",
            'write the entry as JSON: TIDEGATE__SPARK__CONF=\'{"name": "value"}\'',
        ),
        "environment variable TIDEGATE__KAFKA__OPTIONS": (
            "kafka.options",
            "the value is not a JSON object",
            'write it like TIDEGATE__KAFKA__OPTIONS=\'{"name": "value"}\'',
        ),
        "environment variable TIDEGATE__LEASE__EXPIRES_AFTER": (
            "lease.expires_after",
            "'${TIDEGATE__LEASE__EXPIRES_AFTER}' is not a duration; ${TIDEGATE__LEASE__EXPIRES_AFTER} is 'ten minutes'",
            'write it like "20 minutes" or "60 seconds"',
        ),
        "environment variable TIDEGATE__STATE": (
            "state",
            "the path is a URI, and only s3://, gs://, az:// and local paths are supported: '${TIDEGATE__STATE}'; "
            "${TIDEGATE__STATE} is 's3a://bucket/state'",
            "write s3://bucket/prefix",
        ),
        "environment variable TIDEGATE__AIRFLOW__SLOTS": (
            "airflow.slots",
            "'${TIDEGATE__AIRFLOW__SLOTS}' is not valid here; ${TIDEGATE__AIRFLOW__SLOTS} is 'four'",
            "write a whole number",
        ),
        "environment variable TIDEGATE__UI__SPARK_HISTORY": (
            "ui.spark_history",
            "'${TIDEGATE__UI__SPARK_HISTORY}' is not the address of a web page",
            "write http://host:port, without a user or a query",
        ),
    }


def test_a_variable_with_a_wrong_value_is_shown_unless_it_may_be_a_secret(tmp_path: Path) -> None:
    text = (
        "version: 1\nlease: {expires_after: '${EXPIRY}'}\nspark: {master: '${MASTER:-lokal}', connection: '${CONN}'}\n"
    )
    error = refuse(tmp_path, text + "warehouse: ${DB_TOKEN}\n", EXPIRY="soon", CONN="local", DB_TOKEN=f"s3a://{CANARY}")
    assert [fault.message for fault in error.faults] == [
        "'${EXPIRY}' is not a duration; ${EXPIRY} is 'soon'",
        "the master '${MASTER:-lokal}' is none of local[N], spark://HOST:PORT, k8s://URL or yarn; "
        "${MASTER:-lokal} is 'lokal'",
        "the path is a URI, and only s3://, gs://, az:// and local paths are supported: '${DB_TOKEN}'",
    ]
    assert CANARY not in json.dumps(error.to_dict())


def test_entries_of_a_mapping_are_checked_like_those_of_the_file(tmp_path: Path) -> None:
    options = {"sasl.pasword": CANARY, "security.protocol": CANARY, "sasl.password": [CANARY]}
    error = refuse(
        tmp_path,
        "",
        TIDEGATE__KAFKA__OPTIONS=json.dumps(options),
        TIDEGATE__SPARK__CONF=json.dumps({"spark.master": CANARY, "spark.x": {"a": CANARY}}),
    )
    assert CANARY not in str(error) + json.dumps(error.to_dict())
    assert {(fault.where, fault.key) for fault in error.faults} == {
        ("environment variable TIDEGATE__KAFKA__OPTIONS", "kafka.options.sasl.pasword"),
        ("environment variable TIDEGATE__KAFKA__OPTIONS", "kafka.options.security.protocol"),
        ("environment variable TIDEGATE__KAFKA__OPTIONS", "kafka.options.sasl.password"),
        ("environment variable TIDEGATE__SPARK__CONF", "spark.conf.spark.master"),
        ("environment variable TIDEGATE__SPARK__CONF", "spark.conf.spark.x"),
    }


def test_a_secret_by_variable_is_in_use_and_in_no_repr(tmp_path: Path) -> None:
    project = load(tmp_path, "", TIDEGATE__KAFKA__OPTIONS=json.dumps({"sasl.password": CANARY}))
    assert project.spec.kafka.options == {"sasl.password": CANARY}
    assert CANARY not in repr(project) + str(project.spec)


@pytest.mark.parametrize("text", ["spark: text\n", "spark: [a]\n", "- a\n", "spark: {master: [}\n"])
def test_a_file_that_is_wrong_around_the_key_is_told_as_such(tmp_path: Path, text: str) -> None:
    error = refuse(tmp_path, text, TIDEGATE__SPARK__MASTER="local[2]", TIDEGATE__NO="1")
    assert any(fault.file == "tidegate.yaml" for fault in error.faults)
    assert any(fault.where == "environment variable TIDEGATE__NO" for fault in error.faults)


def test_a_plain_word_of_the_environment_is_left_in_a_sentence(tmp_path: Path) -> None:
    """`local` is a master, and a word of what is said about a folder."""
    text = "version: 1\nspark: {master: '${MASTER}'}\nwarehouse: s3a://bucket/tables\n"
    told = str(refuse(tmp_path, text, MASTER="local"))
    assert "and local paths are supported" in told
    secret = str(refuse(tmp_path, "version: 1\nkafka: {options: {sasl.pasword: '${WORD}'}}\n", WORD="canary"))
    assert "canary" not in secret


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.secret.key",
        "AWS_ACCESS_KEY_ID",
        "API-KEY",
        "ssl.keystore.passwd",
    ],
)
def test_settings_that_hold_a_secret(name: str) -> None:
    assert sounds_secret(name)


@pytest.mark.parametrize("name", ["spark.executor.memory", "table.keys", "key", "spark.sql.shuffle.partitions"])
def test_settings_that_do_not(name: str) -> None:
    assert not sounds_secret(name)
