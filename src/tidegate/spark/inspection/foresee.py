"""Check pending files against an inferred schema, for ``tidegate validate --spark``, which takes none of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import SourceLostError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.content import NotTaken
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.intake import link_file
from tidegate.sources.files.ledger import open_ledger, shown_path
from tidegate.sources.files.partition_values import partition_folder
from tidegate.sources.files.scan import scan_files
from tidegate.spark import errors
from tidegate.spark.ingest.infer import infer_schema
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, PipelineSpec
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED_AT_MOST = 5


def foresee_schemas(
    spark: SparkSession, project: Project, paths: PipelinePaths, spec: PipelineSpec, folder: Path
) -> PipelineSpec | None:
    """``spec`` with the columns that a first run would infer now; None when there is no file to infer from.

    ``folder`` is an empty one, for links. Raises UsageError SCHEMA_NOT_INFERRED as that run would, and SCHEMA_DRIFT
    when files that wait do not fit the columns that are kept.
    """
    sources = dict(spec.sources)
    for name, source in spec.file_sources.items():
        if not is_to_infer(source) and not source.is_kept:
            continue
        here = folder / name
        links = _link_waiting(project, paths, name, source, here)
        if source.is_kept:
            _refuse_drift(paths, name, source, here, links)
        elif not links:
            return None
        else:
            schema = infer_schema(spark, paths, spec, name, here, links)
            sources[name] = source.replace(schema=schema)
    return spec.replace(sources=sources)


def _link_waiting(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource, folder: Path
) -> dict[str, str]:
    """Links in ``folder`` to the files that were not taken yet, as the intake would have them: {link: path}."""
    try:
        with open_ledger(paths, read_only=True) as ledger:
            entries = scan_files(project, paths, name, source, ledger).new
    except SourceLostError:
        return {}
    links = {}
    for number, entry in enumerate(entries):
        suffix = os.path.splitext(shown_path(entry.path))[1].lower()
        link = os.path.join(partition_folder(entry.partition), f"{number:010d}{suffix}")
        (folder / link).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError, NotTaken):
            link_file(entry, folder / link)
            links[link] = shown_path(entry.path)
    return links


def _refuse_drift(paths: PipelinePaths, name: str, source: FilesSource, folder: Path, links: dict[str, str]) -> None:
    if source.format not in SELF_DESCRIBING_FORMATS:
        return
    faults = [
        f"{path}: {fault}" for link, path in links.items() if (fault := find_fault(folder / link, source)) is not None
    ]
    if not faults:
        return
    more = f"; and {len(faults) - _NAMED_AT_MOST} more" if len(faults) > _NAMED_AT_MOST else ""
    raise errors.SCHEMA_DRIFT(
        where=str(paths.spec),
        files=count_of(len(faults), "file"),
        source=name,
        do="does" if len(faults) == 1 else "do",
        differences="; ".join(faults[:_NAMED_AT_MOST]),
        more=more,
        pipeline=paths.name,
    )
