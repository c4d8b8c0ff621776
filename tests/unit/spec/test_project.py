"""tidegate.yaml: found, filled in from the environment, and refused with every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.no_rights import not_writable
from tidegate.core.errors import UsageError
from tidegate.spec.faults import SpecError
from tidegate.spec.project import Project, load_project


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tidegate.yaml").write_text(text, encoding="utf-8")
    return folder


def load(tmp_path: Path, text: str, **environment: str) -> Project:
    return load_project(write(tmp_path, text), environment)


def faults_of(tmp_path: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, **environment)
    return [f"{fault.line}: {fault.key}: {fault.message} | {fault.fix}" for fault in caught.value.faults]


def test_everything_is_optional(tmp_path):
    project = load(tmp_path, "")
    assert project.warehouse == tmp_path / "data/warehouse"
    assert project.state == tmp_path / "data/state"
    assert project.spec.lease.expires_after == 60.0
    assert project.spec.kafka.bootstrap_servers == "localhost:9092"


def test_found_from_a_folder_below(tmp_path, monkeypatch):
    write(tmp_path, "version: 1\n")
    below = tmp_path / "jobs" / "orders"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert load_project().root == tmp_path
    with pytest.raises(UsageError, match=r"there is no tidegate\.yaml in .*orders\n") as caught:
        load_project(below)
    assert caught.value.code == "NO_PROJECT"


def test_no_project_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="nor in any folder above it") as caught:
        load_project()
    assert "tidegate init DIR" in (caught.value.fix or "")


def test_a_relative_folder_becomes_absolute(tmp_path, monkeypatch):
    write(tmp_path / "project", "")
    monkeypatch.chdir(tmp_path)
    assert load_project("project").root == tmp_path / "project"


def test_absolute_and_relative_paths(tmp_path):
    project = load(tmp_path, f"warehouse: {tmp_path}/elsewhere/tables\nstate: ../state\n")
    assert project.warehouse == tmp_path / "elsewhere/tables"
    assert project.state == tmp_path / "../state"


def test_the_environment_fills_in(tmp_path):
    text = 'warehouse: "${TABLES}/wh"\nkafka: {bootstrap_servers: "${BROKERS:-a:1},${MORE:-b:2}"}\n'
    text += 'lease: {expires_after: "${LEASE:-30 seconds}"}\nspark: {master: "local${MASTER:-}"}\n'
    project = load(tmp_path, text, TABLES="/srv", MORE="c:3", BROKERS="")
    assert project.warehouse == Path("/srv/wh")
    assert project.spec.kafka.bootstrap_servers == "a:1,c:3"
    assert project.spec.lease.expires_after == 30.0
    assert project.spec.spark.master == "local"


def test_the_process_environment_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGATE_TEST_TABLES", "from_environment")
    write(tmp_path, "warehouse: ${TIDEGATE_TEST_TABLES}\n")
    assert load_project(tmp_path).warehouse == tmp_path / "from_environment"


def test_a_variable_cannot_add_keys(tmp_path):
    project = load(tmp_path, "warehouse: ${X}\n", X="a, state: b")
    assert project.warehouse == tmp_path / "a, state: b"
    assert project.state == tmp_path / "data/state"


def test_golden_error_text(tmp_path):
    text = """\
version: 1
warehose: data/tables
state: s3a://bucket/state
quarantine: ${NOT_SET}
spark: {conection: x, conf: {spark.master: y}}
kafka: {options: {security.protocol: SALS_SSL, gruop.id: x}}
lease: {expires_after: 1 minut}
"""
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert str(caught.value) == (
        """\
BAD_SPEC: 8 faults in tidegate.yaml
  tidegate.yaml:2: warehose: unknown key 'warehose'
      fix: write warehouse; allowed: version, warehouse, state, quarantine, spark, kafka, s3, lease, airflow, ui, \
maintenance, alerts
  tidegate.yaml:3: state: the path is a URI, and only s3://, gs://, az:// and local paths are supported: 's3a://bucket/state'
      fix: write s3://bucket/prefix
  tidegate.yaml:4: quarantine: the environment variable NOT_SET is not set
      fix: export NOT_SET=..., or write ${NOT_SET:-default}
  tidegate.yaml:5: spark.conection: unknown key 'conection'
      fix: write connection; allowed: connection, master, conf, packages
  tidegate.yaml:5: spark.conf.spark.master: tidegate sets this itself, and it cannot \
be overridden: the master comes from tidegate.yaml \
(spark.master) or the Airflow connection
      fix: remove it
  tidegate.yaml:6: kafka.options.security.protocol: 'SALS_SSL' is not a security protocol
      fix: write SASL_SSL
  tidegate.yaml:6: kafka.options.gruop.id: 'gruop.id' is not a setting of the Kafka client that may be made here
      fix: ALLOWED
  tidegate.yaml:7: lease.expires_after: '1 minut' is not a duration
      fix: write it like "20 minutes" or "60 seconds"
  where: tidegate.yaml:2
  next run: fails again until this is fixed; nothing was read or written
  fix: correct the lines above, then: tidegate validate"""
    ).replace("ALLOWED", _allowed_client_settings()).replace("BAD_SPEC", "BAD_PROJECT")
    assert caught.value.exit_code == 64


def _allowed_client_settings() -> str:
    from tidegate.spec.kafka_options import CLIENT_SETTINGS

    return "allowed: " + ", ".join(CLIENT_SETTINGS)


@pytest.mark.parametrize("key", ["warehouse", "state", "quarantine"])
@pytest.mark.parametrize("uri", ["s3a://b/x", "hdfs://n/x", "file:/x", "abfss://c@a/x"])
def test_other_storage_is_refused_by_key(tmp_path, key, uri):
    with pytest.raises(SpecError) as caught:
        load(tmp_path, f"version: 1\n{key}: {uri}\n")
    assert caught.value.code == "STORAGE_NOT_SUPPORTED"
    assert [(fault.key, fault.line) for fault in caught.value.faults] == [(key, 2)]


def test_a_uri_from_the_environment_is_not_shown(tmp_path):
    (fault,) = faults_of(tmp_path, "warehouse: ${W}\n", W="s3a://user:canary-77@bucket/x")
    assert fault.startswith(
        "1: warehouse: the path is a URI, and only s3://, gs://, az:// and local paths are supported: '${W}'"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("warehouse: 'data/[x]'\n", "1: warehouse: the path has [ ] in it, which Spark takes as a pattern"),
        ("warehouse: ''\n", "1: warehouse: the path is empty"),
        ("warehouse: ~/x\n", "1: warehouse: the path starts with ~"),
        ('state: "a\\nb"\n', "1: state: the path has a line break or another control character in it"),
        ("state: data/warehouse/state\n", "data/warehouse) are inside of one another"),
        ("quarantine: data/state\n", "data/state) are inside of one another"),
        ("warehouse: .\n", "are inside of one another"),
        ("state: s3://lake\nquarantine: s3://lake/q\n", "(s3://lake) are inside of one another"),
        ("state: s3://lake\nquarantine: s3://lake/q\n", "such as quarantine: s3://lake/quarantine"),
        ("warehouse: null\n", "1: warehouse: nothing (null) is not valid here"),
        ("version: 3\n", "1: version: 3 is not allowed | allowed: 1"),
        ("lease: {expires_after: 1 second}\n", "'1 second' is too short for a heartbeat | write at least 5 seconds"),
        ("kafka: {bootstrap_servers: ' '}\n", "the list of brokers is empty"),
        ("ui: {spark_history: 'javascript:alert(1)'}\n", "is not the address of a web page"),
        ("ui: {spark_history: 'https://me:secret@history'}\n", "is not the address of a web page"),
        ("airflow: {slots: 0}\n", "1: airflow.slots: 0 is not allowed: at least one slot is needed | write 1 or more"),
        ("airflow: {pool: ' '}\n", "1: airflow.pool: ' ' cannot be the name of a pool | write a name, or null"),
        ("airflow: {slots: few}\n", "1: airflow.slots: 'few' is not valid here | write a whole number"),
        ("warehouse: a${x\n", "'a${x' has a ${ that names no variable"),
        ("version: 1\nversion: 1\n", "2: version: the key is written twice, first in line 1"),
    ],
)
def test_faults(tmp_path, text, expected):
    assert any(expected in fault for fault in faults_of(tmp_path, text))


@pytest.mark.parametrize("name", ["a[b]", "a{b}", "a*", "a?", "a\\b", "a\nb"])
def test_roots_that_spark_cannot_take(tmp_path, name):
    write(tmp_path / name, "version: 1\n")
    with pytest.raises(UsageError) as caught:
        load_project(tmp_path / name)
    assert caught.value.code == "BAD_PROJECT_PATH"
    assert "\n" not in caught.value.message + (caught.value.where or "")


@pytest.mark.parametrize("name", ["with space", "ünïcode", "per%cent", "a=b", "_x", ".hidden"])
def test_roots_with_odd_but_good_names(tmp_path, name):
    assert load(tmp_path / name, "version: 1\n").root == tmp_path / name


def test_a_secret_is_never_shown(tmp_path):
    text = 'kafka: {options: {sasl.password: [canary-91], sasl.username: "${U}", ssl.key.passwrd: canary-91}}\n'
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, U="canary-91")
    assert "canary" not in str(caught.value) + str(caught.value.to_dict())


def test_a_secret_is_not_in_the_repr(tmp_path):
    project = load(tmp_path, 'kafka: {options: {sasl.password: "${P}"}}\n', P="canary-13")
    assert project.spec.kafka.options == {"sasl.password": "canary-13"}
    assert "canary" not in repr(project) + str(project.spec)


def test_a_project_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").touch(0o000)
    with not_writable(tmp_path), pytest.raises(UsageError, match=r"BAD_PROJECT: tidegate\.yaml cannot be read: Perm"):
        load_project(tmp_path)


def test_tables_and_quarantine_may_be_on_an_object_store(tmp_path):
    project = load(tmp_path, "version: 1\nwarehouse: s3://lake/tables/\nquarantine: az://lake/quarantine\n")
    assert str(project.paths("orders").table) == "s3://lake/tables/orders"
    assert str(project.paths("orders").quarantine) == "az://lake/quarantine/orders"
    assert str(project.table_at("gs://other/x")) == "gs://other/x"
    assert project.table_at("../x") == tmp_path.parent / "x"


def test_the_state_may_be_on_an_object_store(tmp_path, monkeypatch):
    """Each machine has a working copy, apart from those of other projects; the lease is in the store itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = load(tmp_path, "version: 1\nstate: s3://lake/state\n").paths("orders")
    other = load(tmp_path, "version: 1\nstate: s3://lake/other\n").paths("orders")
    assert paths.state.is_relative_to(tmp_path / "cache") and other.state.is_relative_to(tmp_path / "cache")
    assert paths.state != other.state
    assert str(paths.lease) == "s3://lake/state/orders/lease"
    assert paths.beside("backfills/b").lease == paths.lease
    assert paths.state_name == "s3://lake/state/orders"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("warehouse: s3://", "1: warehouse: the path names no bucket: 's3://'"),
        ("warehouse: s3://b/a/../c", "1: warehouse: the path has `..` in it, which a store takes for a name"),
        (
            "warehouse: s3://b/x\nquarantine: s3://b/x/q",
            "2: quarantine: quarantine (s3://b/x/q) and warehouse (s3://b/x) are",
        ),
    ],
)
def test_a_path_of_a_store_that_cannot_be_used_is_refused(tmp_path, lines, fault):
    assert faults_of(tmp_path, lines)[0].startswith(fault)
