"""``spec.md``: every key of ``tidegate.yaml``, ``pipeline.yaml`` and the suites, from the models and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.quality.gx_types import EXPECTATION_TYPES, QUARANTINE_TYPES, UNUSABLE_TYPES
from tidegate.spec import reader_options
from tidegate.spec.ddl import read_type
from tidegate.spec.environment import PREFIX, list_variables
from tidegate.spec.json_schema import build_schemas
from tidegate.spec.kafka_options import REFUSED_SETTINGS, SECURITY_SETTINGS, TUNING_SETTINGS
from tidegate.spec.source_checks import KAFKA_METADATA
from tools.docs.markdown import MADE, code, table

_SECTIONS = {
    "FilesSource": "sources.NAME, type: files",
    "Notifications": "sources.NAME.notifications",
    "KafkaSource": "sources.NAME, type: kafka",
    "RateSource": "sources.NAME, type: rate",
    "SocketSource": "sources.NAME, type: socket",
    "CloseWhen": "close_windows",
    "TableSpec": "table",
    "QualitySpec": "quality",
    "KafkaSink": "sinks[], type: kafka",
    "ForeachBatchSink": "sinks[], type: foreach_batch",
    "ForeachSink": "sinks[], type: foreach",
    "ConsoleSink": "sinks[], type: console",
    "SparkSpec": "spark",
    "ProjectSparkSpec": "spark",
    "PackageSpec": "spark.packages[]",
    "ProjectKafkaSpec": "kafka",
    "ProjectS3Spec": "s3",
    "LeaseSpec": "lease",
    "MaintenanceSpec": "maintenance",
    "ExpireSpec": "maintenance.expire",
    "AirflowSpec": "airflow",
    "UiSpec": "ui",
    "AlertsSpec": "alerts",
    "NotifierSpec": "alerts.notify[]",
}
_VARIABLES = {tuple(map(str, path)): variable for variable, path in list_variables().items()}
_SCALAR = "text, number, or true/false"
_KINDS = {
    "text": "text",
    "letter": "one character",
    "bool": "true or false",
    "count": "whole number",
    "limit": "whole number, or -1",
    "bytes": "bytes",
    "duration": "duration",
}


def render_spec() -> str:
    """The page."""
    schemas = build_schemas()
    parts = [
        MADE,
        "# Specs\n",
        "Keys that are not listed are refused, with the nearest allowed name. All faults of a file are reported at "
        "once, each with its line and what to write: `tidegate validate`. JSON Schemas for editors are in the "
        "package: `tidegate/spec/schemas/pipeline.schema.json` and `tidegate.schema.json`. A number, true or "
        'false may be written as text: `"0.2"` is `0.2`.\n',
        "A name of a pipeline matches `^[a-z][a-z0-9_]{2,62}$`. It is the folder under `jobs/`, the key `name`, the "
        "DAG id, the suite, the checkpoint folder and the table folder.\n",
        "# tidegate.yaml\n",
        "The folder that holds it is the project. Relative paths are relative to it. `${VAR}` and `${VAR:-default}` "
        "are filled in from the environment, in this file only.\n",
        "Each setting can also be made by a variable of its own, which goes over the file: text as it is, numbers and "
        "durations as in the file, mappings as a JSON object, whose entries go over the file's one by one, lists as a "
        "JSON array. An empty variable counts as not set; `null` is nothing where that is allowed. A variable that "
        f"begins with `{PREFIX}` and sets nothing is refused, like an unknown key.\n",
        *_model(schemas["tidegate.schema.json"], _VARIABLES),
        "# jobs/PIPELINE/pipeline.yaml\n",
        "What a transform may do in each `output_mode`: [streaming.md](streaming.md).\n"
        "Its rows have columns of different names, in any case, with types; names that begin with\n"
        "`_tidegate` are tidegate's own. What each type holds: [values.md](values.md).\n",
        *_model(schemas["pipeline.schema.json"]),
        "## Reader options\n",
        "`options` of a source has the names and meanings of Spark's reader options. A name that is not listed is an "
        "error.\n",
        table(["for", "options"], _options()),
        "Refused, with the reason:\n",
        table(["option", "reason", "instead"], _refused()),
        "## Settings of the Kafka client\n",
        "In `kafka.options` of tidegate.yaml, with or without `kafka.` in front; on a source with `kafka.` in front, "
        "except secrets.\n",
        "They have the names of Java's client, and are translated for librdkafka, which asks brokers without a JVM. "
        "Numbers beyond its bounds become the nearest that it takes.\n",
        table(["setting", "for librdkafka"], _client_settings()),
        "Refused, with the reason:\n",
        table(
            ["setting", "reason", "instead"],
            [[code(name), reason, fix] for name, (reason, fix) in REFUSED_SETTINGS.items()],
        ),
        "## Columns of metadata: true\n",
        table(
            ["column", "type"], [[code(column.name), code(read_type(column.type).shown)] for column in KAFKA_METADATA]
        ),
        "# expectations/PIPELINE.yaml\n",
        "A Great Expectations suite in its own field names: `name`, `expectations`, and per expectation `type`, "
        "`kwargs`, `severity` (`critical`, `warning`, `info`; default `critical`) and `meta`. In `meta`, `rule` is the "
        "rule's name, and `on_failure: quarantine` quarantines offending rows. `unexpected_rows_query` is one SELECT "
        "in DuckDB's SQL; `{batch}` is the increment, and `{table}` the table after the publish.\n",
        table(["type", "judges", "quarantine", "kwargs (required in bold)"], _expectations()),
        "Known to Great Expectations, and refused:\n",
        table(["type", "why", "instead"], [[code(name), *why] for name, why in UNUSABLE_TYPES.items()]),
    ]
    return "\n".join(parts)


def _model(schema: Mapping[str, Any], variables: Mapping[tuple[str, ...], str] | None = None) -> list[str]:
    """The tables of a model and of those in it; with ``variables`` {setting: variable} these have a column."""
    definitions = schema.get("$defs", {})
    head = ["key", "type", "default", *(["variable"] if variables else []), "meaning"]
    parts = [table(head, _properties(schema, definitions, (), variables))]
    unknown = set(definitions) - set(_SECTIONS)
    if unknown:
        raise KeyError(f"models without a heading: {sorted(unknown)}: correct tools/docs/spec.py")
    for name, title in _SECTIONS.items():
        if name in definitions:
            parts += [f"## {title}\n", f"{definitions[name]['description']}\n"]
            parts.append(table(head, _properties(definitions[name], definitions, (title,), variables)))
    return parts


def _properties(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: tuple[str, ...],
    variables: Mapping[tuple[str, ...], str] | None,
) -> list[list[str]]:
    required = set(schema.get("required", ()))
    rows = []
    for name, part in schema["properties"].items():
        default = "required" if name in required else _default(part)
        variable = (variables or {}).get((*path, name))
        cells = [code(name), _type(part, definitions), default]
        cells += [code(variable) if variable else ""] if variables else []
        rows.append([*cells, part.get("description", "")])
    return rows


def _default(part: Mapping[str, Any]) -> str:
    if "default" not in part:
        return ""
    value = part["default"]
    if _is_duration(part) and isinstance(value, int | float):
        return code(f"{value:g} seconds")
    if value is None:
        return ""
    if isinstance(value, dict):
        return "" if any(not isinstance(inner, str) for inner in value.values()) or "$ref" in part else code("{}")
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(str(value)) if value not in ("", []) else (code("[]") if value == [] else "")


def _is_duration(part: Mapping[str, Any]) -> bool:
    return "millisecond" in str(part.get("pattern", "")) or any(_is_duration(one) for one in part.get("anyOf", ()))


def _type(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in part:
        return "mapping, see below"
    if "const" in part:
        return code(str(part["const"]))
    if "enum" in part:
        return ", ".join(dict.fromkeys(code(str(value)) for value in part["enum"]))
    if _is_duration(part) and "anyOf" not in part:
        return "duration (`20 minutes`)"
    if "anyOf" in part or "oneOf" in part:
        every = [
            _type(one, definitions) for one in part.get("anyOf", part.get("oneOf", ())) if one.get("type") != "null"
        ]
        return _SCALAR if len(set(every)) == 4 else " or ".join(dict.fromkeys(every))
    kind = part.get("type")
    if kind == "array":
        return f"list of {_type(part['items'], definitions)}" if "items" in part else "list"
    if kind == "object":
        inner = part.get("additionalProperties")
        if isinstance(inner, dict):
            return f"mapping to {_type(inner, definitions)}"
        return "mapping"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return words[kind[0] if isinstance(kind, list) else str(kind)]


def _options() -> list[list[str]]:
    rows = [
        ["files: which files count", _show(reader_options.LISTING_OPTIONS)],
        ["files: how much one batch takes", _show(reader_options.FILE_STREAM_OPTIONS)],
        ["kafka: the stream", _show(reader_options.KAFKA_STREAM_OPTIONS)],
    ]
    rows += [
        [f"type: {name}", _show(options)]
        for name, options in (("rate", reader_options.RATE_OPTIONS), ("socket", reader_options.SOCKET_OPTIONS))
    ]
    rows += [[f"format: {name}", _show(options) or "none"] for name, options in reader_options.PARSER_OPTIONS.items()]
    return rows


def _show(options: Mapping[str, str]) -> str:
    return ", ".join(f"{code(name)} ({_KINDS[kind]})" for name, kind in options.items())


def _client_settings() -> list[list[str]]:
    rows = [[code(name), meaning] for name, meaning in SECURITY_SETTINGS.items()]
    for name, number in TUNING_SETTINGS.items():
        meaning = "the same" if name.startswith("client.") else "nothing: it is for Java's client alone"
        if number is not None:
            meaning = f"{code(number[0])}, from {number[1]:,} to {number[2]:,}"
        rows.append([code(name), meaning])
    return rows


def _refused() -> list[list[str]]:
    tables: list[tuple[str, Mapping[str, tuple[str, str]]]] = [
        ("", reader_options._REFUSED_EVERYWHERE),
        (" (files)", reader_options._REFUSED_FILES),
        (" (kafka)", reader_options._REFUSED_KAFKA),
        (" (rate)", reader_options.REFUSED_TRIAL_OPTIONS),
        *((f" ({name})", refused) for name, refused in reader_options._REFUSED_BY_FORMAT.items()),
    ]
    return [[code(name) + where, reason, instead] for where, part in tables for name, (reason, instead) in part.items()]


def _expectations() -> list[list[str]]:
    return [
        [
            code(name),
            {"row": "rows", "column": "a column", "table": "the increment"}[kind.level],
            "yes" if name in QUARANTINE_TYPES else "",
            ", ".join(f"**{key}**" if key in kind.required_kwargs else key for key in kind.kwargs),
        ]
        for name, kind in EXPECTATION_TYPES.items()
        if name not in UNUSABLE_TYPES
    ]
