"""A file server carries out a request and its reply is lost: what is there already may be one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.streaming import make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("recognised", [True, False], ids=["by its file", "by its attempt"])
def test_a_batch_keeps_the_files_that_its_own_manifest_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recognised: bool
) -> None:
    flow = make_streaming(
        tmp_path, spark, "sources:\n" + source("orders", "id STRING"), "def transform(orders):\n    return orders\n"
    )
    flow.offer("orders", {"id": "a"}, {"id": "b"})
    link, lost = os.link, list[str]()

    def lose_reply(old: Any, new: Any, **more: Any) -> None:
        link(old, new, **more)
        if Path(new).is_relative_to(flow.state / "manifests"):
            lost.append(str(new))
            raise FileExistsError(17, "File exists", str(new))

    monkeypatch.setattr(os, "link", lose_reply)
    if not recognised:  # as on a file system whose inode numbers change
        monkeypatch.setattr("tidegate.storage._is_same_file", lambda beside, path: False)
    flow.run()
    assert len(lost) == 1
    flow.expect("id", [("a",), ("b",)])
