"""Writes the names of Spark SQL's settings, as the jars of pyspark have them: Spark takes a name that it does not know
without a word. Run ``python -m tools.spark_settings`` after a change of Spark's version.
"""

from __future__ import annotations

import re
import zipfile
from importlib.resources import files
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "src/tidegate/spec/spark_sql_settings.txt"
_CLASSES = re.compile(r"(SQLConf|StaticSQLConf|HiveUtils)\$?\.class$")
_NAME = re.compile(rb"spark\.sql\.[a-z][A-Za-z0-9_.\-]*[A-Za-z0-9]")
_JARS = ("spark-catalyst_*.jar", "spark-hive_*.jar", "spark-sql_*.jar")


def read_settings() -> list[str]:
    """The names, sorted."""
    folder = Path(str(files("pyspark"))) / "jars"
    found: set[str] = set()
    for jar in (jar for pattern in _JARS for jar in sorted(folder.glob(pattern))):
        with zipfile.ZipFile(jar) as archive:
            for name in filter(_CLASSES.search, archive.namelist()):
                found |= {match.decode() for match in _NAME.findall(archive.read(name))}
    return sorted(found)


if __name__ == "__main__":
    TARGET.write_text("\n".join(read_settings()) + "\n", encoding="utf-8")
