"""``validate`` names secrets that are written out in files; what only speaks of one is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.spec.faults import Fault
from tidegate.spec.project import load_project
from tidegate.views.validate import validate_pipelines

CANARY = "canary-77b1"
SPEC = """version: 1
name: flow
schedule: null
sources: {s: {type: files, path: in, format: text}}
"""


def validate(root: Path, settings: str, more: str = "") -> list[Fault]:
    (root / "jobs/flow").mkdir(parents=True)
    (root / "tidegate.yaml").write_text(settings)
    (root / "jobs/flow/pipeline.yaml").write_text(SPEC + more)
    return validate_pipelines(load_project(root, {"SECRET": CANARY}), None, with_spark=False)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("spark: {conf", "spark.hadoop.fs.s3a.secret.key"),
        ("spark: {conf", "spark.hadoop.fs.s3a.access.key"),
        ("spark: {conf", "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net"),
        ("spark: {conf", "spark.ssl.keyStorePassword"),
        ("spark: {conf", "spark.authenticate.secret"),
        ("spark: {conf", "spark.kubernetes.authenticate.submission.oauthToken"),
        ("kafka: {options", "sasl.password"),
        ("kafka: {options", "kafka.ssl.keystore.key"),
        ("kafka: {options", "sasl.jaas.config"),
    ],
)
def test_a_secret_in_the_settings(tmp_path: Path, section: str, key: str) -> None:
    [fault] = validate(tmp_path / "literal", f"version: 1\n{section}: {{{key}: {CANARY}}}}}\n")
    assert (fault.code, fault.where) == ("LITERAL_SECRET", "tidegate.yaml:2")
    assert key in fault.key and "${" in fault.fix and CANARY not in str(fault)
    assert validate(tmp_path / "variable", f'version: 1\n{section}: {{{key}: "${{SECRET}}"}}}}\n') == []


@pytest.mark.parametrize(
    "entry",
    [
        "spark.hadoop.fs.s3a.aws.credentials.provider: org.example.Provider",
        "spark.redaction.regex: (?i)secret|password|token",
        "spark.kubernetes.authenticate.submission.oauthTokenFile: /run/token",
        "spark.authenticate.secret: true",
        "spark.kubernetes.driver.secrets.spark-secret: /etc/secrets",
        "spark.kubernetes.executor.secretKeyRef.DB_PASSWORD: name",
    ],
)
def test_what_only_speaks_of_secrets(tmp_path: Path, entry: str) -> None:
    assert validate(tmp_path, f'version: 1\nspark: {{conf: {{"{entry.replace(": ", chr(34) + ": ", 1)}}}}}\n') == []


def test_a_secret_in_a_pipeline_is_sent_to_the_settings(tmp_path: Path) -> None:
    """Also as ``${VAR}``, which nobody would fill in there."""
    more = f'spark: {{conf: {{spark.hadoop.a.password: {CANARY}, spark.hadoop.b.password: "${{SECRET}}"}}}}\n'
    faults = validate(tmp_path, "version: 1\n", more)
    assert [(fault.code, fault.where) for fault in faults] == [("LITERAL_SECRET", "jobs/flow/pipeline.yaml:5")] * 2
    assert all("tidegate.yaml" in fault.fix and CANARY not in str(fault) for fault in faults)
