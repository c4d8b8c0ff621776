"""A spec as a run reads it: every source that is not Kafka's is a folder of files with known columns.

What ``rate`` and ``socket`` send is received into files of the pipeline's state first, so that from there on it is
treated like any other file: taken once, accounted for, kept raw where it does not fit. Where a schema was inferred, the
columns are those that were found and kept.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from tidegate.spec.ddl import is_infer, parse_ddl, show_ddl
from tidegate.spec.models import (
    SELF_DESCRIBING_FORMATS,
    BaseSource,
    FilesSource,
    KafkaSource,
    PipelineSpec,
    RateSource,
    SocketSource,
    SourceSpec,
)
from tidegate.spec.trial_options import gives_timestamp, rate_options


class SpooledSource(FilesSource):
    """The files into which another source is received: ``origin``, the source as the spec declares it."""

    origin: RateSource | SocketSource

    @property
    def partitions(self) -> int | None:
        """Into how many partitions Spark is to divide what a run received; None: as it likes."""
        return rate_options(self.origin).partitions if isinstance(self.origin, RateSource) else None

    def identity(self) -> dict[str, object]:
        """The source that is received: where its files are does not matter."""
        return self.origin.identity()


class KeptSource(FilesSource):
    """Files whose columns were inferred once. Its schema is the one that was kept, or what the spec now says instead,
    which is the same or a change of the spec."""

    @property
    def is_kept(self) -> bool:
        """Return whether its columns were inferred once."""
        return True

    def identity(self) -> dict[str, object]:
        """That of its files, and the columns: other ones are a change of the spec."""
        return {**super().identity(), "schema": show_ddl(parse_ddl(self.schema or "value STRING"))}


TEXT_COLUMN, PLACE_COLUMN = "_tidegate_text", "_tidegate_place"
"""The columns of files of texts: the record as it came, or as a person has edited it; its position as JSON."""


class TextsSource(BaseSource):
    """Records of a stream as texts that are at hand, with their places, in parquet files: what a side job is
    given of quarantine. ``origin`` is the stream as runs read it, which says how a text becomes columns."""

    origin: FilesSource | KafkaSource
    event_time: str | None = None
    watermark: float | None = None

    def identity(self) -> dict[str, object]:
        """That of the stream."""
        return self.origin.identity()


def as_texts(spec: PipelineSpec) -> PipelineSpec:
    """``spec``, which is as a run reads it, with every stream as texts that are at hand."""
    sources = dict(spec.sources)
    for name, source in spec.record_streams.items():
        texts = TextsSource.construct(origin=source, event_time=source.event_time, watermark=source.watermark)
        sources[name] = cast(SourceSpec, texts)  # as the others of this module, a stream that no spec names
    return spec.replace(sources=sources)


def origin_of(source: BaseSource) -> FilesSource | KafkaSource | None:
    """The source that says how records become columns: ``source`` itself, or the stream that its texts are of."""
    found = source.origin if isinstance(source, TextsSource) else source
    return found if isinstance(found, FilesSource | KafkaSource) else None


def read_spec(spec: PipelineSpec, spool: Callable[[str], Path], kept: Mapping[str, str]) -> PipelineSpec:
    """``spec`` as a run reads it. ``spool`` gives the folder into which a source is received, ``kept`` the schemas that
    were inferred before."""

    def read(name: str, source: SourceSpec) -> SourceSpec:
        if isinstance(source, RateSource | SocketSource):
            return as_files(source, spool(name))
        if isinstance(source, FilesSource) and name in kept:
            schema = kept[name] if is_infer(source.schema) else source.schema
            return KeptSource.construct(**{**source.field_values(), "schema": schema})
        return source

    return spec.replace(sources={name: read(name, source) for name, source in spec.sources.items()})


def is_to_infer(source: SourceSpec) -> bool:
    """Return whether the columns of a source, as a run reads it, are still to be inferred."""
    return isinstance(source, FilesSource) and is_infer(source.schema)


def as_files(source: RateSource | SocketSource, folder: Path) -> SpooledSource:
    """``source`` as the files in ``folder`` that it is received into."""
    columns = ["value BIGINT" if isinstance(source, RateSource) else "value STRING"]
    if isinstance(source, RateSource):
        columns.insert(0, "timestamp TIMESTAMP")
    elif gives_timestamp(source):
        columns.append("timestamp TIMESTAMP")
    times = {"event_time": source.event_time, "watermark": source.watermark} if isinstance(source, RateSource) else {}
    return SpooledSource.construct(
        type="files", path=str(folder), format="json", schema=", ".join(columns), origin=source, **times
    )


def why_no_text(stream: FilesSource | KafkaSource, edited: str | None) -> str | None:
    """Why a record of ``stream`` cannot be made of its text, in words that follow a count; None when it can.
    ``edited`` is a text that a person wrote."""
    if isinstance(stream, FilesSource):
        return _why_not_files(stream)
    return _why_not_topics(stream, edited)


def _why_not_files(stream: FilesSource) -> str | None:
    if stream.format in SELF_DESCRIBING_FORMATS:
        return f"records of {stream.format} files have no text of their own"
    return None


def _why_not_topics(stream: KafkaSource, edited: str | None) -> str | None:
    if stream.metadata:
        return "their keys, times and headers are not in quarantine, and the transform is given them (metadata: true)"
    if stream.format == "raw" and edited is not None:
        try:
            base64.b64decode(edited, validate=True)
        except (binascii.Error, ValueError):
            return "values of format raw are in base64 here, and the edited text is not"
    return None
