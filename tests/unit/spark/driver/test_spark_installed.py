"""What is wrong with the Spark that is installed, said before it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core import extras
from tidegate.core.errors import UsageError
from tidegate.core.extras import check_spark, explain_missing
from tidegate.spark.driver.jvm_archive import why_no_archive
from tidegate.spec.models import ProjectSpec
from tidegate.spec.project import Project
from tidegate.views import doctor


def test_two_versions_of_spark_s_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip takes the newest of each, and not every pyspark has a pyspark-client."""
    check_spark()
    monkeypatch.setattr(extras, "version", {"pyspark": "4.2.1", "pyspark-client": "4.2.0"}.__getitem__)
    with pytest.raises(UsageError, match=r"pyspark 4\.2\.1 and pyspark-client 4\.2\.0 overwrite") as caught:
        check_spark()
    assert caught.value.code == "SPARK_VERSIONS_DIFFER"
    assert '"pyspark==4.2.0" "pyspark-client==4.2.0"' in str(caught.value.fix)


@pytest.mark.parametrize("has_script", [True, False])
def test_a_spark_home_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_script: bool
) -> None:
    """spark-submit would say "bin/spark-class: not found", in the log of a driver that had died."""
    home, missing = tmp_path / "spark", "jars" if has_script else "bin/spark-submit"
    (home / "bin").mkdir(parents=True)
    if has_script:
        (home / "bin/spark-submit").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(UsageError, match=f"SPARK_HOME is {home}.* no {missing}") as caught:
        check_spark()
    assert caught.value.code == "SPARK_HOME_INVALID" and "unset SPARK_HOME" in str(caught.value.fix)
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    project = Project(tmp_path, ProjectSpec())
    [finding] = [one for one in doctor.examine(project) if one.check == "packages"]
    assert not finding.ok and "SPARK_HOME_INVALID" in finding.found
    assert why_no_archive() is None, "doctor asks for it too"


def test_an_error_behind_which_an_extra_is_missing() -> None:
    known = explain_missing(ModuleNotFoundError("no", name="confluent_kafka.admin"))
    assert known is not None and known.fix == 'pip install "tidegate[kafka]"'
    behind = RuntimeError("the driver")
    behind.__cause__ = ModuleNotFoundError("no", name="pyspark")
    assert explain_missing(behind) is not None
    assert explain_missing(ModuleNotFoundError("no", name="shop_rules")) is None, "a module of the user's own"
