"""``tidegate.yaml`` and ``pipeline.yaml`` as frozen, strict models. Unknown keys are refused.

Durations are written as ``20 minutes`` and held in seconds. Nothing here reads a file: see
:mod:`tidegate.spec.pipeline`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from tidegate.core import storage
from tidegate.spec.faults import name_nearest
from tidegate.spec.model import (
    Between,
    Matching,
    Model,
    NotEmpty,
    ParsedFromText,
    TaggedByType,
    Wanted,
    models_by_type,
)

NAME_PATTERN = r"^[a-z][a-z0-9_]{2,62}$"
SOURCE_NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
_NAME_LETTERS = "lower-case letters, digits and _, starting with a letter"
_SourceName = Annotated[str, Matching(SOURCE_NAME_PATTERN, f"use {_NAME_LETTERS}")]

MergeMode = Literal["update", "complete"]
"""The output modes in which rows replace others."""

_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0, "millisecond": 0.001}
_LONGEST_WEEKS = 52_000
"""A thousand years: every date of today minus as much is still one."""
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour|day|week)s?\s*$")


def parse_duration(value: object) -> float:
    """Seconds from ``"20 minutes"``. Raises ValueError with the form that is wanted."""
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a duration; write it like "20 minutes" or "60 seconds"')
    seconds = float(match.group(1)) * _UNITS[match.group(2)]
    if seconds > _LONGEST_WEEKS * _UNITS["week"]:
        raise ValueError(f"{value!r} is not a duration; write at most {_LONGEST_WEEKS} weeks")
    return seconds


Seconds = Annotated[float, ParsedFromText("duration", parse_duration, _DURATION.pattern)]


_BYTE_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BYTES = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|KiB|MiB|GiB)\s*$")


def _parse_age(value: object) -> float:
    """Seconds from ``"7 days"``, or from a bare 0."""
    is_zero = value == "0" or (value == 0 and not isinstance(value, bool))
    return 0.0 if is_zero else parse_duration(value)


def _parse_bytes(value: object) -> int:
    """Bytes from ``"32 MiB"``, or from a bare 0. Raises ValueError with the form that is wanted."""
    if value == "0" or (value == 0 and not isinstance(value, bool)):
        return 0
    match = _BYTES.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a size; write it like "32 MiB"')
    size = float(match.group(1)) * _BYTE_UNITS[match.group(2)]
    if size >= 1 << 63:
        raise ValueError(f"{value!r} is not a size; write less than {1 << 33} GiB")
    return int(size)


Age = Annotated[float, ParsedFromText("duration", _parse_age, _DURATION.pattern, takes_zero=True)]
"""Seconds after which something goes; 0 is allowed, with or without a unit."""
Bytes = Annotated[int, ParsedFromText("size", _parse_bytes, _BYTES.pattern, takes_zero=True)]


Option = Annotated[str | int | float | bool, Wanted("write a text, a number, true or false")]
"""The value of an option of Spark, Kafka or a generator."""
_OFFSETS_WANTED = "write earliest, latest, an ISO time stamp, or {topic: {partition: offset}}"


LINE_FORMATS = ("json", "csv", "text")
"""Formats of files whose records are lines."""
SELF_DESCRIBING_FORMATS = ("parquet", "orc", "avro")
"""Formats of files that contain their own columns, in a footer or a header."""


class BaseSource(Model):
    """The properties of each kind of source, besides the keys of the spec."""

    takes_files: ClassVar[bool] = False
    """Whether a run takes it file by file, through the ledger and the intake, as it reads it."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The extras of the package, and with them the jars, that reading it needs besides Spark."""

    @property
    def place(self) -> str:
        """Where its records come from, as people call it."""
        return ""

    @property
    def folder(self) -> str | None:
        """The folder or pattern of files that it reads; None for one that reads none."""
        return None

    @property
    def topic_names(self) -> list[str]:
        """The topics that it names; none for one that reads none, or those that fit a pattern."""
        return []

    def identity(self) -> dict[str, object]:
        """What may not change under a living checkpoint, as JSON."""
        return {"type": getattr(self, "type", "")}


class Notifications(Model):
    """Where a store's event notifications arrive; one of ``topic`` and ``path``."""

    topic: str | None = None
    path: str | None = None

    @property
    def place(self) -> str:
        """The topic or the folder, as people call it."""
        return str(self.path) if self.topic is None else f"topic {self.topic}"


class FilesSource(BaseSource):
    """New files in a folder, or matching a glob."""

    takes_files: ClassVar[bool] = True

    type: Literal["files"]
    path: str
    format: Literal["json", "csv", "text", "xml", "parquet", "orc", "avro"]
    schema: str | None = None
    event_time: str | None = None
    watermark: Seconds | None = None
    settle: Seconds | None = None
    on_change: Literal["report", "fail", "reread_tail"] = "report"
    follow_links: list[str] = []
    start: str = "all"
    list_all_every: Seconds | None = None
    notifications: Notifications | None = None
    unknown_fields: Literal["report", "quarantine", "rescue"] = "report"
    values: Literal["exact"] = "exact"
    static: bool = False
    options: dict[str, Option] = {}

    @property
    def partitions(self) -> int | None:
        """Into how many partitions Spark is to divide what a run reads; None: as it likes."""
        return None

    @property
    def is_kept(self) -> bool:
        """Return whether its columns were inferred once."""
        return False

    @property
    def is_on_store(self) -> bool:
        """Return whether the files are objects of a store."""
        return storage.is_object(storage.parse_path(self.path))

    @property
    def is_recursive(self) -> bool:
        """Return whether all sub-folders are read, and not only ``k=v`` ones."""
        return str(self.options.get("recursiveFileLookup", "false")).lower() == "true"

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    @property
    def folder(self) -> str | None:
        """The path."""
        return self.path

    def identity(self) -> dict[str, object]:
        """Where the records come from, and how they are written."""
        return {"type": self.type, "path": self.path, "format": self.format}


class KafkaSource(BaseSource):
    """Records of Kafka topics; exactly one of ``topics``, ``topic_pattern`` and ``assign``."""

    needs: ClassVar[frozenset[str]] = frozenset({"kafka"})

    type: Literal["kafka"]
    topics: list[str] | None = None
    topic_pattern: str | None = None
    assign: dict[str, list[int]] | None = None
    starting_offsets: Annotated[str | dict[str, dict[str, int]], Wanted(_OFFSETS_WANTED)] = "earliest"
    format: Literal["json", "csv", "text", "raw"]
    schema: str | None = None
    metadata: bool = False
    event_time: str | None = None
    watermark: Seconds | None = None
    unknown_fields: Literal["report", "quarantine", "rescue"] = "report"
    values: Literal["exact"] = "exact"
    static: bool = False
    options: dict[str, Option] = {}

    @property
    def place(self) -> str:
        """The topics, or their pattern."""
        return ", ".join(self.topic_names) or f"topics like {self.topic_pattern}"

    @property
    def topic_names(self) -> list[str]:
        """The topics that the spec names."""
        return [*(self.topics or ()), *(self.assign or ())]

    def identity(self) -> dict[str, object]:
        """Where the records come from, and how they are written."""
        chosen = self.topics or self.topic_pattern or self.assign
        return {"type": self.type, "topics": json.loads(json.dumps(chosen)), "format": self.format}


class RateSource(BaseSource):
    """Made-up rows, for trying out: columns timestamp and value. Not replayable."""

    type: Literal["rate"]
    event_time: str | None = None
    watermark: Seconds | None = None
    options: dict[str, Option] = {}

    @property
    def place(self) -> str:
        """How many rows."""
        return f"{self.options.get('rowsPerSecond', 1)} rows a second"


class SocketSource(BaseSource):
    """Lines from a TCP socket, for trying out: column value. Not replayable."""

    type: Literal["socket"]
    options: dict[str, Option] = {}

    @property
    def place(self) -> str:
        """Host and port."""
        return f"{self.options.get('host', '')}:{self.options.get('port', '')}"


SourceSpec = Annotated[FilesSource | KafkaSource | RateSource | SocketSource, TaggedByType()]


class TableSpec(Model):
    """Where the table is, and how it is laid out. ``path`` is None for its own place in the warehouse."""

    path: str | None = None
    partition_by: list[str] = []
    keys: list[str] = []
    order_by: Annotated[str | list[str] | None, Wanted("write the name of a column, or a list: [a, b]")] = None
    cluster_by: list[str] = []
    readers: Literal["both", "delta"] = "both"

    @property
    def ordering(self) -> list[str]:
        """The columns of ``order_by``."""
        return [self.order_by] if isinstance(self.order_by, str) else list(self.order_by or ())


class QualitySpec(Model):
    """What a failed gate means."""

    on_critical: Literal["hold", "continue"] = "hold"
    max_quarantine_share: Annotated[float, Between(0.0, 1.0)] | None = None


class CloseWhen(Model):
    """Close what is open once nothing new has come for so long."""

    when: Seconds


class KafkaSink(Model):
    """A topic that gets each published row as a record; its headers carry run_id, table_version and row.

    Without ``topic`` (``value: columns`` only) each row names its own.
    """

    type: Literal["kafka"]
    topic: str | None = None
    key: str | None = None
    value: Literal["json", "columns"] = "json"

    @property
    def name(self) -> str:
        """What is fed: the sink's name in reports, and of its progress. No topic can be called ``*``."""
        return f"kafka:{self.topic or '*'}"


class ForeachBatchSink(Model):
    """A function that Spark calls with each published version: ``write(df, batch_id)``, or with ``replaces``."""

    type: Literal["foreach_batch"]
    function: str

    @property
    def name(self) -> str:
        """What is fed: the sink's name in reports, and of its progress."""
        return f"foreach_batch:{self.function}"


class ForeachSink(Model):
    """A Python class that gets each published row: open, begin_version, process, close."""

    type: Literal["foreach"]
    writer: str

    @property
    def name(self) -> str:
        """What is fed: the sink's name in reports, and of its progress."""
        return f"foreach:{self.writer}"


class ConsoleSink(Model):
    """The first rows of each published version on stderr, or in the task's log; for trying out."""

    type: Literal["console"]

    @property
    def name(self) -> str:
        """What is fed: the sink's name in reports, and of its progress."""
        return "console"


SinkSpec = Annotated[KafkaSink | ForeachBatchSink | ForeachSink | ConsoleSink, TaggedByType()]


class ExpireSpec(Model):
    """After how long things go."""

    reports: Age = 90 * 86400.0
    partitions: Age | None = None


class MaintenanceSpec(Model):
    """What is cleaned up, and when. Of a pipeline's spec the fields that are set are those that its own file sets."""

    schedule: str | None = None
    keep_versions: Age = 7 * 86400.0
    compact_below: Bytes = 32 << 20
    expire: ExpireSpec = ExpireSpec.construct()
    source: Literal["keep", "archive", "delete"] = "keep"

    def over(self, project: MaintenanceSpec) -> MaintenanceSpec:
        """What a pipeline says, key by key over what its project says."""
        return _over(self, project, expire=_over(self.expire, project.expire))


_S = TypeVar("_S", bound=Model)


def _over(own: _S, base: _S, **values: object) -> _S:
    chosen = {name: getattr(own if name in own.fields_set else base, name) for name in own.fields()}
    return own.replace(**{**chosen, **values})


class NotifierSpec(Model):
    """A way to notify people: a notifier of Airflow, or one of the project's own."""

    notifier: str
    arguments: dict[str, str | int | float | bool | list[str] | None] = {}


class AlertsSpec(Model):
    """Who is notified, and of what. In a pipeline's spec only the fields of its own file are set."""

    notify: list[NotifierSpec] = []
    held: bool = True
    failing: bool = True
    behind: Seconds | None = None
    quarantine_share: Annotated[float, Between(0.0, 1.0)] | None = None

    def over(self, project: AlertsSpec) -> AlertsSpec:
        """What a pipeline says, key by key over what its project says."""
        return _over(self, project)


class SparkSpec(Model):
    """Spark settings of one pipeline."""

    conf: dict[str, Option] = {}
    master: str | None = None


_SOURCES = models_by_type(SourceSpec)


def _takes(source: object, key: str) -> bool:
    """Return whether a source, as a file has it, can have a key."""
    word = str(source.get("type")) if isinstance(source, dict) else ""
    model = _SOURCES.get(word) or _SOURCES.get(name_nearest(word, _SOURCES) or "")
    return model is not None and key in model.fields()


class PipelineSpec(Model):
    """One pipeline: sources -> transform -> gate -> table."""

    stand_ins: ClassVar[Mapping[str, object]] = {
        "name": "unnamed",
        "sources": {"unreadable": RateSource.construct(type="rate")},
    }
    examples: ClassVar[Mapping[str, str]] = {
        "sources": "sources: {events: {type: files, path: data/inbox, format: json, schema: id STRING}}"
    }

    version: Literal[1]
    name: Annotated[str, Matching(NAME_PATTERN, f"use 3 to 63 {_NAME_LETTERS}")]
    description: str = ""
    owner: str | None = None
    tags: list[str] = []
    schedule: str | None = None
    sources: Annotated[dict[_SourceName, SourceSpec], NotEmpty()]
    transform: str | None = None
    on_row_error: Literal["fail", "quarantine"] = "fail"
    trigger: Literal["available_now", "once"] = "available_now"
    output_mode: Literal["append", "update", "complete"] = "append"
    watermark_policy: Literal["min", "max"] = "min"
    close_windows: Literal["at_end"] | CloseWhen | None = None
    table: TableSpec = TableSpec.construct()
    quality: QualitySpec = QualitySpec.construct()
    sinks: list[SinkSpec] = []
    maintenance: MaintenanceSpec = MaintenanceSpec.construct()
    alerts: AlertsSpec = AlertsSpec.construct()
    spark: SparkSpec = SparkSpec.construct()

    @classmethod
    def place_key(cls, data: Mapping[str, object], key: str) -> str | None:
        """Where a key belongs that is no key of a pipeline but one of its parts; None where it is of none."""
        if name_nearest(key, cls.find_lacking(data)) is not None:
            return None
        places = []
        if any(key in source.fields() for source in _SOURCES.values()):
            sources = data.get("sources")
            named = sources.items() if isinstance(sources, dict) else ()
            names = [f"sources.{name}" for name, source in named if _takes(source, key)]
            places.append(f"to a source: write it in {' or '.join(names) or 'sources.NAME'}")
        for name, field in cls.fields().items():
            kinds = get_args(field.kind) or (field.kind,)
            if any(isinstance(one, type) and issubclass(one, Model) and key in one.fields() for one in kinds):
                places.append(f"to {name}: write `{name}: {{{key}: ...}}`")
        return f"it belongs {'; or '.join(places)}" if places else None

    @property
    def streams(self) -> dict[str, FilesSource | KafkaSource | RateSource | SocketSource]:
        """The sources that are read on from where the last run ended."""
        return {name: source for name, source in self.sources.items() if not is_static(source)}

    @property
    def statics(self) -> dict[str, FilesSource | KafkaSource]:
        """The sources that are read whole in each run."""
        return {name: source for name, source in self.sources.items() if is_static(source)}  # type: ignore[misc]

    @property
    def file_sources(self) -> dict[str, FilesSource]:
        """The sources that are files, static ones included; of a spec as a run reads it, also what is received."""
        return {name: source for name, source in self.sources.items() if isinstance(source, FilesSource)}

    @property
    def file_streams(self) -> dict[str, FilesSource]:
        """The streams that a run takes file by file, through the ledger."""
        return {name: source for name, source in self.file_sources.items() if not source.static}

    @property
    def topic_sources(self) -> dict[str, KafkaSource]:
        """The sources that are topics, static ones included."""
        return {name: source for name, source in self.sources.items() if isinstance(source, KafkaSource)}

    @property
    def notification_topics(self) -> dict[str, str]:
        """The topics whose messages name new objects, by source."""
        found = {name: source.notifications for name, source in self.file_streams.items()}
        return {name: one.topic for name, one in found.items() if one is not None and one.topic is not None}

    @property
    def record_streams(self) -> dict[str, FilesSource | KafkaSource]:
        """The streams whose records have a format and columns; as a run reads a spec, all of them."""
        streams = self.streams.items()
        return {name: source for name, source in streams if isinstance(source, FilesSource | KafkaSource)}

    @property
    def needs(self) -> frozenset[str]:
        """The extras of the package that reading the sources needs besides Spark."""
        asked = frozenset({"kafka"}) if self.notification_topics else frozenset()
        return asked.union(*(source.needs for source in self.sources.values()))

    @property
    def event_times(self) -> dict[str, str]:
        """The column with the event time, by source."""
        found = {name: getattr(source, "event_time", None) for name, source in self.streams.items()}
        return {name: column for name, column in found.items() if column is not None}

    @property
    def watermarks(self) -> dict[str, float]:
        """Seconds by which event times may be late, by source."""
        found = {name: getattr(source, "watermark", None) for name, source in self.streams.items()}
        return {name: seconds for name, seconds in found.items() if seconds is not None}


def is_static(source: FilesSource | KafkaSource | RateSource | SocketSource) -> bool:
    """Return whether a source is read whole in each run, to be joined with what streams."""
    return bool(getattr(source, "static", False))


class PackageSpec(Model):
    """A jar that Spark is given: ``group:name:version``, and the checksum of the file."""

    jar: str
    sha256: str | None = None


class ProjectSparkSpec(Model):
    """How Spark is reached: DAGs use the connection, the command line the master."""

    connection: str = "spark_default"
    master: str = "local[*]"
    conf: dict[str, Option] = {}
    packages: list[PackageSpec] = []


class ProjectKafkaSpec(Model):
    """The brokers, and client settings by allow-list (security.protocol, sasl.*, ssl.*)."""

    hidden: ClassVar[frozenset[str]] = frozenset({"options"})  # may hold a password

    bootstrap_servers: str = "localhost:9092"
    options: dict[str, Option] = {}


class ProjectS3Spec(Model):
    """How buckets (``s3://``) are reached; without a line of it, those of Amazon with the environment's credentials."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = True
    ca_file: str | None = None
    connection: str = "aws_default"


class LeaseSpec(Model):
    """How long a silent lease holder is believed to live."""

    expires_after: Seconds = 60.0


class AirflowSpec(Model):
    """The pool of the tasks that may start a Spark driver."""

    pool: str | None = "tidegate"
    slots: int = 4


class UiSpec(Model):
    """What the pages in Airflow show."""

    show_data: bool = False
    spark_history: str | None = None


class ProjectSpec(Model):
    """``tidegate.yaml``."""

    version: Literal[1] = 1
    warehouse: str = "data/warehouse"
    state: str = "data/state"
    quarantine: str = "data/quarantine"
    spark: ProjectSparkSpec = ProjectSparkSpec.construct()
    kafka: ProjectKafkaSpec = ProjectKafkaSpec.construct()
    s3: ProjectS3Spec = ProjectS3Spec.construct()
    lease: LeaseSpec = LeaseSpec.construct()
    airflow: AirflowSpec = AirflowSpec.construct()
    ui: UiSpec = UiSpec.construct()
    maintenance: MaintenanceSpec = MaintenanceSpec.construct()
    alerts: AlertsSpec = AlertsSpec.construct()
