"""Checks of the options of sources, and of the Kafka client's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tidegate.spec.document import Finding, KeyPath, names_variable
from tidegate.spec.encodings import ENCODINGS, encoding_of, find_encoding, is_decoded
from tidegate.spec.faults import describe_allowed, show_value, suggest
from tidegate.spec.kafka_options import CLIENT_SETTINGS, KAFKA_SECRETS, NUMBERS, REFUSED_SETTINGS, WORDS
from tidegate.spec.models import FilesSource, KafkaSource, RateSource, SocketSource
from tidegate.spec.notations import find_zone, read_pattern, unescape
from tidegate.spec.reader_options import (
    RATE_OPTIONS,
    REFUSED_TRIAL_OPTIONS,
    SOCKET_OPTIONS,
    Kind,
    find_refusal,
    has_documents,
    list_allowed,
    show_option,
)
from tidegate.spec.trial_options import PARTITIONS_AT_MOST, ROWS_AT_MOST, parse_short_duration

_VALUES: dict[str, tuple[str, ...]] = {
    "datetimeRebaseMode": ("EXCEPTION", "CORRECTED", "LEGACY"),
    "int96RebaseMode": ("EXCEPTION", "CORRECTED", "LEGACY"),
    "unescapedQuoteHandling": (
        "STOP_AT_CLOSING_QUOTE",
        "BACK_TO_DELIMITER",
        "STOP_AT_DELIMITER",
        "SKIP_VALUE",
        "RAISE_ERROR",
    ),
}
_WHOLE: dict[Kind, str] = {
    "count": "write a whole number from 1",
    "limit": "write a whole number from 1, or -1 for no limit",
    "bytes": "write a whole number of bytes, from 1",
}
_LARGEST = {"rowsPerSecond": ROWS_AT_MOST, "numPartitions": PARTITIONS_AT_MOST, "port": 65535}
_WIDE = "maxOffsetsPerTrigger"
_NEVER_EMPTY = {
    "lineSep": "write what ends a line, or remove it",
    "pathGlobFilter": "write a pattern of file names, such as *.csv, or remove it",
    "valueTag": "write the name of the column that holds the text of an element, such as _VALUE",
}
_LOCALE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?")
_ENDS = ("\n", "\r")
_OTHER = "write another character for one of the two"


def check_reader_options(path: KeyPath, source: FilesSource | KafkaSource) -> list[Finding]:
    """What is wrong with the options of ``source``; ``path`` is their place."""
    allowed = list_allowed(source)
    found: list[Finding] = []
    reader = f"{source.format} files" if isinstance(source, FilesSource) else f"Kafka records in {source.format}"
    for key, value in source.options.items():
        here = (*path, key)
        if (refusal := find_refusal(key, source)) is not None:
            found.append(_refuse(here, key, refusal))
        elif isinstance(source, KafkaSource) and key.startswith("kafka."):
            found += _check_kafka_option(here, key, value)
        else:
            found += _check_option(here, value, allowed, f"a reader option for {reader}")
    if source.format == "json" and has_documents(source) and "lineSep" in source.options:
        found.append(Finding((*path, "lineSep"), "with multiLine a line is not a record", "remove it"))
    found += _check_encoding(path, source)
    if source.format == "xml":
        found += _check_row_tag(path, source)
    if {"sep", "delimiter"} <= set(source.options) and source.format == "csv":
        found.append(Finding((*path, "delimiter"), "sep and delimiter are two names of one option", "keep sep"))
    elif source.format == "csv":
        refused = {finding.path for finding in found}
        clashes = _find_clashes({key: show_option(value) for key, value in source.options.items()})
        found += [Finding((*path, key), *texts) for key, *texts in clashes if (*path, key) not in refused]
    return found


def check_trial_options(path: KeyPath, source: RateSource | SocketSource) -> Iterator[Finding]:
    """Find what is wrong with the options of a generator; ``path`` is their place."""
    allowed = RATE_OPTIONS if isinstance(source, RateSource) else SOCKET_OPTIONS
    for key, value in source.options.items():
        if key in REFUSED_TRIAL_OPTIONS:
            yield _refuse((*path, key), key, REFUSED_TRIAL_OPTIONS[key])
        else:
            yield from _check_option((*path, key), value, allowed, f"an option of a source of type {source.type}")
    for key in ("host", "port"):
        if isinstance(source, SocketSource) and key not in source.options:
            yield Finding(path, f"socket needs the option {key}", "write options: {host: localhost, port: 9999}")


def _refuse(here: KeyPath, key: str, refusal: tuple[str, str]) -> Finding:
    reason, fix = refusal
    return Finding(here, f"the option {key} cannot be set: {reason}", fix)


def _check_option(here: KeyPath, value: object, allowed: Mapping[str, Kind], what: str) -> Iterator[Finding]:
    key = str(here[-1])
    if key not in allowed:
        yield Finding(here, f"{key!r} is not {what}", suggest(key, sorted(allowed)))
    elif isinstance(value, str) and names_variable(value):
        yield Finding(here, "the environment is filled in in tidegate.yaml only", "write the value out")
    elif wrong := _describe_wrong_value(key, value, allowed[key]):
        yield Finding(here, f"{show_value(value, key)} is not a value for {key}", wrong)


def _describe_wrong_value(key: str, value: object, kind: Kind) -> str | None:
    """What to write instead of ``value``; None when it can be used."""
    text = show_option(value)
    if key in _VALUES and text not in _VALUES[key]:
        return describe_allowed(text, _VALUES[key])
    if kind == "bool" and text not in ("true", "false"):
        return "write true or false"
    if kind in _WHOLE and not (kind == "limit" and text == "-1"):
        largest = _LARGEST.get(key, (1 << (31 if kind != "bytes" and key != _WIDE else 63)) - 1)
        whole = not isinstance(value, (bool, float)) and text.isascii() and text.isdigit()
        if not whole or not 1 <= int(text) <= largest:
            return _WHOLE[kind] + (f" to {largest}" if key in _LARGEST else "")
    if kind == "letter" and len(text) > 1:
        return "write one character"
    if kind == "duration":
        return _describe_wrong_duration(key, value)
    if key == "host" and not (isinstance(value, str) and text.strip()):
        return "write a name or an address: localhost"
    if key in _NEVER_EMPTY and not text:
        return _NEVER_EMPTY[key]
    return _describe_wrong_place(key, text)


def _describe_wrong_duration(key: str, value: object) -> str | None:
    try:
        seconds = parse_short_duration(value)
    except ValueError:
        return 'write it like "5 seconds"'
    if key == "timeout" and seconds <= 0:
        return "write a number greater than 0: otherwise no run would end"
    return None


def _describe_wrong_place(key: str, text: str) -> str | None:
    """As above, for the options that say how a place writes dates and numbers.

    Spark takes most of the wrong ones in silence and reads other values: with ``dd/mm/yyyy`` every date is in January
    (``mm`` are minutes), and a locale that it does not know is that of the United States.
    """
    if key in ("dateFormat", "timestampFormat", "timestampNTZFormat"):
        return _describe_wrong_pattern(text)
    if key == "locale":
        return _describe_wrong_locale(text)
    if key == "timeZone" and find_zone(text) is None:
        return "write a time zone such as Europe/Berlin, UTC or +02:00"
    return None


def _describe_wrong_locale(text: str) -> str | None:
    if not _LOCALE.fullmatch(text):
        language, _, region = text.replace("_", "-").partition("-")
        nearest = f"{language.lower()}-{region.upper()}" if region else language.lower()
        example = nearest if _LOCALE.fullmatch(nearest) else "de-DE"
        return f"write a language tag such as {example}"
    from babel import Locale, UnknownLocaleError  # 30 ms that most specs do without

    try:
        Locale.parse(text, sep="-")
    except UnknownLocaleError:
        return "write the tag of a known language, such as de-DE"
    return None


def _describe_wrong_pattern(text: str) -> str | None:
    if "%" in text:
        return "this is a pattern of Python's: write one such as dd.MM.yyyy HH:mm:ss"
    if not text:
        return "write a pattern such as yyyy-MM-dd, or remove it"
    try:
        letters = {token.text[0] for token in read_pattern(text) if token.kind == "letters"}
    except ValueError as error:
        return str(error)
    if not letters & set("yMLdD"):
        return None  # a time of day alone
    if "D" in letters and letters & set("ML"):
        return "D is the day of the year: days of the month are d"
    if letters & set("dm") and not letters & set("MLD"):
        return "it has no month: mm are minutes, months are MM" if "m" in letters else "it has no month: months are MM"
    if "y" not in letters:
        return "it has no year: years are yyyy"
    return None


def _check_row_tag(path: KeyPath, source: FilesSource | KafkaSource) -> Iterator[Finding]:
    fix = "name the element that is a record: options: {rowTag: order}"
    tag = str(source.options.get("rowTag", ""))
    value, prefix = (
        str(source.options.get(key, default)) for key, default in (("valueTag", "_VALUE"), ("attributePrefix", "_"))
    )
    if "rowTag" not in source.options:
        yield Finding(path, "xml needs the option rowTag", fix)
    elif not tag or any(letter.isspace() or letter in "<>/&='\"" for letter in tag):
        yield Finding((*path, "rowTag"), f"{show_value(tag)} is not the name of an element", fix)
    elif value and value == prefix:
        message = "valueTag and attributePrefix are the same"
        yield Finding((*path, "valueTag"), message, "write another name for one of the two")


def _check_encoding(path: KeyPath, source: FilesSource | KafkaSource) -> Iterator[Finding]:
    if not is_decoded(source) or "encoding" not in source.options:
        return
    encoding = str(source.options["encoding"])
    if find_encoding(encoding) is None:
        message = f"{show_value(encoding, 'encoding')} is not an encoding that {source.format} files are read in"
        fix = f"{describe_allowed(encoding, ENCODINGS)}; or convert the files to UTF-8"
        yield Finding((*path, "encoding"), message, fix)
    elif encoding_of(source) != "UTF-8" and not str(source.options.get("lineSep", "")).isascii():
        message = f"a lineSep beyond ASCII cannot be recognized in {encoding}"
        yield Finding((*path, "lineSep"), message, "write another lineSep, or convert the files to UTF-8")


def _find_clashes(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(key, what is wrong with it, what to write instead) for the marks among the options of a csv source."""
    key = "delimiter" if "delimiter" in options and "sep" not in options else "sep"
    separator = unescape(options.get(key, ","))
    if wrong := _describe_separator(separator):
        yield (key, *wrong)
        return
    defaults = {"quote": '"', "escape": "\\", "comment": "", "charToEscapeQuoteEscaping": ""}
    marks = {name: options.get(name, default) for name, default in defaults.items()}
    ended = [name for name, mark in marks.items() if mark in _ENDS]
    for name in ended:
        yield name, "a line end cannot be this mark", "write another character"
    for name, mark in marks.items():
        if mark and name not in ended and (mark == separator or (name in ("quote", "comment") and mark in separator)):
            yield (
                key if key in options else name,
                f"{key} and {name} are both {mark!r}, so a text may mean two things",
                _OTHER,
            )
    if marks["comment"] and marks["comment"] == marks["quote"]:
        yield "comment", "comment and quote are the same, so a record that begins with a quote is a comment", _OTHER
    ending = options.get("lineSep")
    if not ending:
        return
    if ending in separator:
        message = f"lineSep {ending!r} is within {key} {separator!r}, so a line ends within a separator"
        yield "lineSep", message, f"write another lineSep or another {key}"
    elif separator in ending and options.get("multiLine") == "true":
        message = f"{key} {separator!r} is within lineSep {ending!r}, so with multiLine no line ends"
        yield "lineSep", message, f"write another lineSep or another {key}, or remove multiLine"
    if marks["quote"] and marks["quote"] in ending:
        yield "lineSep", f"the quote {marks['quote']!r} is within lineSep {ending!r}", "write another lineSep or quote"


def _describe_separator(separator: str) -> tuple[str, str] | None:
    example = r"write what is between two fields, such as ';' or '\t'"
    if not separator:
        return "an empty text separates no fields", example
    if any(end in separator for end in _ENDS):
        return "a line end cannot separate fields", example
    if separator == "\\":
        return "a backslash alone cannot separate fields: it begins an escape", example
    return None


def _check_kafka_option(path: KeyPath, key: str, value: object) -> Iterable[Finding]:
    """Check one ``kafka.*`` option of a source in ``pipeline.yaml``."""
    name = key.removeprefix("kafka.")
    if name in KAFKA_SECRETS:
        message = "a secret does not belong in pipeline.yaml"
        return [Finding(path, message, f"write it in tidegate.yaml: kafka: {{options: {{{name}: ${{VAR}}}}}}")]
    if name in CLIENT_SETTINGS and isinstance(value, str) and names_variable(value):
        return [Finding(path, "the environment is filled in in tidegate.yaml only", "write it in tidegate.yaml")]
    return _check_client_setting(path, key, value, "kafka.")


def check_client_options(options: Mapping[str, object]) -> list[Finding]:
    """What is wrong with ``kafka.options`` of ``tidegate.yaml``."""
    checked = (_check_client_setting(("kafka", "options", key), key, value, "") for key, value in options.items())
    return [finding for found in checked for finding in found]


def _check_client_setting(path: KeyPath, key: str, value: object, prefix: str) -> Iterator[Finding]:
    name = key.removeprefix("kafka.")
    if name in REFUSED_SETTINGS:
        yield _refuse(path, key, REFUSED_SETTINGS[name])
    elif name not in CLIENT_SETTINGS:
        fix = suggest(prefix + name, [prefix + one for one in CLIENT_SETTINGS])
        yield Finding(path, f"{key!r} is not a setting of the Kafka client that may be made here", fix)
    elif name in WORDS and (value if name == "security.protocol" else str(value).upper()) not in WORDS[name]:
        what = "a security protocol" if name == "security.protocol" else f"a value for {key}"
        yield Finding(path, f"{show_value(value, name)} is not {what}", suggest(str(value), WORDS[name]))
    elif name in NUMBERS and not re.fullmatch("-?[0-9]+", str(value)):
        yield Finding(path, f"{show_value(value, name)} is not a value for {key}", "write a whole number")
