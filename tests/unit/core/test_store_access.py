"""How S3 is reached: settings of the project, in this process and in those that it starts, and its certificates."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.submits import plan_project
from tidegate.core import storage
from tidegate.core.storage import ObjectPath, access, stores
from tidegate.core.storage.faults import StoreError
from tidegate.spec.faults import SpecError
from tidegate.spec.project import Project, load_project

SETTINGS = """
s3:
  endpoint: http://minio.example:9000/
  region: eu-central-1
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace of the developer's own stores, and the process as it was afterwards."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("_settings", "_connection", "_find_login", "_needs_login"):
        monkeypatch.setattr(access, name, getattr(access, name))
    access.use_settings({}, "")
    monkeypatch.setattr(access, "_find_login", None)
    monkeypatch.setattr(access, "_needs_login", False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each client was made with; the library does not return that."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(stores, "S3Store", lambda bucket, **more: made.append({"bucket": bucket, **more}))
    stores._open.cache_clear()
    return made


def load(root: Path, text: str) -> Project:
    (root / "tidegate.yaml").write_text(f"version: 1\n{text}")
    return load_project(root)


def test_settings_go_to_clients_and_to_processes_that_are_started(tmp_path: Path, opened: list[dict[str, Any]]) -> None:
    project = load(tmp_path, SETTINGS)
    stores.open_store("s3", "orders")
    wanted = {
        "AWS_ENDPOINT_URL": "http://minio.example:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-central-1",
    }
    assert {name.lower(): value for name, value in wanted.items()}.items() <= opened[0]["config"].items()
    assert wanted.items() <= plan_project(project).env_vars.items()
    assert not set(wanted) & set(os.environ), "this process may be Airflow's"
    on_cluster = plan_project(project.on_master("spark://a:7077")).conf
    assert on_cluster["spark.executorEnv.AWS_ENDPOINT_URL"] == "http://minio.example:9000"


def test_the_project_that_was_loaded_last_counts(tmp_path: Path, opened: list[dict[str, Any]]) -> None:
    load(tmp_path, SETTINGS)
    stores.open_store("s3", "orders")
    load(tmp_path, "")
    stores.open_store("s3", "orders")
    assert "aws_endpoint_url" not in opened[1]["config"]
    assert access.child_environment() == {}


@pytest.mark.parametrize("given", ["settings", "environment"])
def test_the_bucket_can_be_in_the_name_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[dict[str, Any]], given: str
) -> None:
    if given == "settings":
        load(tmp_path, "s3: {endpoint: 'https://oss.example', path_style: false}")
    else:  # as a driver finds it
        monkeypatch.setenv("AWS_ENDPOINT_URL", "https://oss.example")
        monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    stores.open_store("s3", "orders")
    assert opened[0]["config"]["aws_endpoint_url"] == "https://orders.oss.example"


def test_credentials_of_a_connection_reach_clients_and_drivers_and_no_setting(
    tmp_path: Path, opened: list[dict[str, Any]]
) -> None:
    asked: list[str] = []

    def find(connection: str) -> dict[str, str]:
        asked.append(connection)
        return {"AWS_SECRET_ACCESS_KEY": "of the connection"}

    access.use_login(find)
    project = load(tmp_path, "s3: {connection: lake}").on_master("spark://a:7077")
    assert "AWS_SECRET_ACCESS_KEY" not in plan_project(project).env_vars
    assert asked == [], "a project without buckets asks for no connection"
    stores.open_store("s3", "orders")
    assert opened[0]["config"]["aws_secret_access_key"] == "of the connection"
    plan = plan_project(project)
    assert plan.env_vars["AWS_SECRET_ACCESS_KEY"] == "of the connection"
    assert "of the connection" not in f"{plan.conf} {plan.application_args}"
    assert set(asked) == {"lake"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("s3: {endpoint: 'minio:9000'}", "s3.endpoint: 'minio:9000' is not the address of a server"),
        ("s3: {endpoint: 'https://user:secret@minio'}", "is not the address of a server"),
        ("s3: {endpoint: 'https://minio:9000/lake'}", "is not the address of a server"),
        (
            "s3: {endpoint: 'http://10.0.0.1:9000', path_style: false}",
            "s3.path_style: false would have the name of the bucket before an IP address",
        ),
        ("s3: {ca_file: none.pem}", "s3.ca_file: 'none.pem' is not a file"),
        ("s3: {region: ''}", "is empty"),
        ("s3: {secret_access_key: abc}", "unknown key"),
    ],
)
def test_faults_of_settings(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert fault in str(caught.value)


class Absent(BaseHTTPRequestHandler):
    """A server with a bucket that has no objects."""

    def do_GET(self) -> None:
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        if "list-type" in self.path:
            body = b"<ListBucketResult><Name>orders</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
        self.send_response(200 if "list-type" in self.path else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server, and the file of the certificate that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = tmp_path / "ca.pem", tmp_path / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Absent)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", pem
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_server_with_a_certificate_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, https: tuple[str, Path], trusted: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    endpoint, pem = https
    load(tmp_path, f"s3: {{endpoint: '{endpoint}'{', ca_file: ' + pem.name if trusted else ''}}}")
    if trusted:
        assert not storage.exists(ObjectPath("s3://orders/a"))
        return
    with pytest.raises(StoreError) as caught:
        storage.exists(ObjectPath("s3://orders/a"))
    assert (caught.value.named.code, caught.value.named.exit_code) == ("STORE_REFUSED", 64)
    assert "its certificate is not trusted" in caught.value.named.message
    assert "ca_file" in str(caught.value.named.fix)


def test_a_file_of_certificates_that_is_missing_is_not_an_absent_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/none.pem")
    stores._open.cache_clear()
    with pytest.raises(StoreError, match=r"none\.pem"):
        storage.read(ObjectPath("s3://orders/a"))
