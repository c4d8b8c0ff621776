"""A spec as a run reads it: every source that is not Kafka's is a folder of files with declared columns.

What ``rate`` and ``socket`` send is received into files of the pipeline's state first, so that from there on it is
treated like any other file: taken once, accounted for, kept raw where it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.spec.models import FilesSource, PipelineSpec, RateSource, SocketSource, SourceSpec
from tidegate.spec.trial_options import gives_timestamp


class SpooledSource(FilesSource):
    """The files into which another source is received: ``origin``, the source as it stands in the spec."""

    origin: RateSource | SocketSource


def read_spec(spec: PipelineSpec, spool: Callable[[str], Path]) -> PipelineSpec:
    """``spec`` as a run reads it; ``spool`` gives the folder into which a source is received."""
    sources = {name: _as_read(source, spool(name)) for name, source in spec.sources.items()}
    return spec.model_copy(update={"sources": sources})


def _as_read(source: SourceSpec, spool: Path) -> SourceSpec:
    if isinstance(source, RateSource | SocketSource):
        return as_files(source, spool)
    return source


def as_files(source: RateSource | SocketSource, folder: Path) -> SpooledSource:
    """``source`` as the files in ``folder`` that it is received into."""
    columns = ["value BIGINT" if isinstance(source, RateSource) else "value STRING"]
    if isinstance(source, RateSource):
        columns.insert(0, "timestamp TIMESTAMP")
    elif gives_timestamp(source):
        columns.append("timestamp TIMESTAMP")
    keys = {"type": "files", "path": str(folder), "format": "json", "schema": ", ".join(columns), "origin": source}
    files = SpooledSource.model_validate(keys)
    if isinstance(source, RateSource):  # both were checked as keys of the source that they stand on
        return files.model_copy(update={"event_time": source.event_time, "watermark": source.watermark})
    return files
