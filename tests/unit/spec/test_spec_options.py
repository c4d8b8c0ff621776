"""Reader options by allow-list, format by format."""

from __future__ import annotations

import pytest

from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.spec.option_checks import check_client_options, check_reader_options
from tidegate.spec.reader_options import (
    KAFKA_STREAM_OPTIONS,
    list_allowed,
    parser_options,
)
from tidegate.spec.source_checks import check_source


def files(format_: str, **options: object) -> FilesSource:
    return FilesSource.read({"type": "files", "path": "x", "format": format_, "options": options})


def kafka(options: dict[str, object], format_: str = "json") -> KafkaSource:
    return KafkaSource.read({"type": "kafka", "topics": ["t"], "format": format_, "options": options})


def check(source: FilesSource | KafkaSource) -> list[str]:
    return [f"{finding.message} | {finding.fix}" for finding in check_reader_options(("options",), source)]


GOOD = [
    files("json", allowComments=True, maxBytesPerTrigger=9, maxFilesPerTrigger=5, lineSep="\n"),
    files("json", dateFormat="dd MMM yyyy", timestampFormat="yyyy-MM-dd'T'HH:mm", timeZone="Europe/Berlin"),
    files("json", dateFormat="yyyyDDD", timestampNTZFormat="HH:mm:ss", timeZone="+02:00", locale="zh-Hant-TW"),
    files("json", dateFormat="'day' d LLLL yyyy", timeZone="CET", locale="es-419"),
    files("csv", header=True, sep=";", quote="'", maxBytesPerTrigger=1 << 40, multiLine=True, maxCharsPerColumn=-1),
    files("csv", sep=r"\t", quote="", escape="", comment="#", maxCharsPerColumn="100", lineSep="\n"),
    files("csv", sep=";", lineSep=";\n", escape='"'),
    files("csv", sep=r"\|", quote="'"),
    files("text", wholetext=True, pathGlobFilter="*.log", recursiveFileLookup="true"),
    files("parquet", datetimeRebaseMode="CORRECTED"),
    files("orc", maxFilesPerTrigger="5"),
    kafka({"maxOffsetsPerTrigger": 5_000_000_000, "kafka.security.protocol": "SASL_SSL", "allowSingleQuotes": False}),
]


@pytest.mark.parametrize("source", GOOD, ids=lambda source: source.format)
def test_good_options(source):
    assert check(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (files("json", maxFilesPertrigger=5), "is not a reader option for json files | write maxFilesPerTrigger"),
        (files("json", header=True), "'header' is not a reader option for json files | allowed: allowBackslash"),
        (files("orc", sep=","), "'sep' is not a reader option for orc files"),
        (files("json", maxFilesPerTrigger=0), "0 is not a value for maxFilesPerTrigger | write a whole number from 1"),
        (files("json", maxFilesPerTrigger=True), "true is not a value for maxFilesPerTrigger"),
        (files("json", maxFilesPerTrigger=1.5), "1.5 is not a value for maxFilesPerTrigger"),
        (files("json", maxFilesPerTrigger=1 << 31), "is not a value for maxFilesPerTrigger"),
        (files("json", maxBytesPerTrigger="10g"), "'10g' is not a value for maxBytesPerTrigger | write a whole"),
        (files("csv", header="yes"), "'yes' is not a value for header | write true or false"),
        (files("csv", quote="''"), "is not a value for quote | write one character"),
        (files("csv", sep=",", delimiter=","), "sep and delimiter are two names of one option"),
        (files("csv", enforceSchema=False), "where there is a header, it is always checked"),
        (files("csv", unescapedQuoteHandling="x"), "'x' is not a value for unescapedQuoteHandling | allowed: STOP_AT"),
        (files("csv", maxCharsPerColumn="abc"), "write a whole number from 1, or -1 for no limit"),
        (files("csv", maxCharsPerColumn=0), "0 is not a value for maxCharsPerColumn | write a whole number from 1, or"),
        (files("csv", maxCharsPerColumn=-2), "-2 is not a value for maxCharsPerColumn"),
        (files("csv", sep=""), "an empty text separates no fields | write what is between two fields, such as ';'"),
        (files("csv", delimiter=""), "an empty text separates no fields"),
        (files("csv", sep="\n"), "a line end cannot separate fields | write what is between two fields"),
        (files("csv", sep=r"\r", lineSep="\n"), "a line end cannot separate fields"),
        (files("csv", sep="\\"), "a backslash alone cannot separate fields: it begins an escape"),
        (files("csv", sep='"'), "sep and quote are both '\"', so a text may mean two things | write another character"),
        (files("csv", sep="|'|", quote="'"), "sep and quote are both \"'\""),
        (files("csv", quote=","), "sep and quote are both ','"),
        (files("csv", escape=","), "sep and escape are both ','"),
        (files("csv", sep="#", comment="#"), "sep and comment are both '#'"),
        (files("csv", sep="#", charToEscapeQuoteEscaping="#"), "sep and charToEscapeQuoteEscaping are both '#'"),
        (files("csv", comment='"'), "comment and quote are the same, so a record that begins with a quote is a comm"),
        (files("csv", quote="\n"), "a line end cannot be this mark | write another character"),
        (files("csv", sep="||", lineSep="|"), "lineSep '|' is within sep '||', so a line ends within a separator"),
        (files("csv", delimiter="|", lineSep="|"), "lineSep '|' is within delimiter '|'"),
        (files("csv", sep=";", lineSep=";\n", multiLine=True), "so with multiLine no line ends | write another"),
        (files("csv", lineSep='"'), "the quote '\"' is within lineSep '\"'"),
        (files("csv", lineSep=""), "'' is not a value for lineSep | write what ends a line, or remove it"),
        (files("json", lineSep=""), "'' is not a value for lineSep | write what ends a line, or remove it"),
        (files("text", lineSep=""), "'' is not a value for lineSep | write what ends a line, or remove it"),
        (files("text", pathGlobFilter=""), "'' is not a value for pathGlobFilter | write a pattern of file names"),
        (files("text", encoding=""), "'' is not an encoding that text files are read in"),
        (files("csv", dateFormat=""), "'' is not a value for dateFormat | write a pattern such as yyyy-MM-dd"),
        (files("xml", rowTag=""), "'' is not the name of an element | name the element that is a record"),
        (files("xml", rowTag="o", valueTag=""), "'' is not a value for valueTag | write the name of the column"),
        (files("xml", rowTag="o", valueTag="_"), "valueTag and attributePrefix are the same"),
        (kafka({"sep": ""}, "csv"), "an empty text separates no fields"),
        (kafka({"sep": ";", "quote": ";"}, "csv"), "sep and quote are both ';'"),
        (files("parquet", datetimeRebaseMode="corrected"), "write CORRECTED; allowed:"),
        (files("parquet", mergeSchema=True), "it steers how Spark guesses the schema"),
        (files("json", multiLine=True, lineSep="|"), "with multiLine a line is not a record"),
        (files("json", encoding="shift_jis"), "is not an encoding that json files are read in"),
        (files("text", encoding="windows-1252", lineSep="\u00a7"), "a lineSep beyond ASCII cannot be recognized"),
        (files("xml"), "xml needs the option rowTag | name the element that is a record"),
        (files("xml", rowTag="<o>"), "'<o>' is not the name of an element"),
        (files("xml", rowTag="o", rowtag="o"), "'rowtag' is not a reader option for xml files | write rowTag"),
        (files("csv", dateFormat="dd/mm/yyyy"), "it has no month: mm are minutes, months are MM"),
        (files("csv", dateFormat="DD/MM/YYYY"), "Y is the year of a week, which cannot be read: years are y"),
        (files("json", dateFormat="DD/MM/yyyy"), "D is the day of the year: days of the month are d"),
        (files("json", timestampFormat="dd.MM. HH:mm"), "it has no year: years are yyyy"),
        (files("json", timestampFormat="yyyy-mm-dd HH:mm"), "it has no month"),
        (files("csv", dateFormat="EEE, d MMM yyyy"), "E is the day of a week, which cannot be read"),
        (files("csv", dateFormat="yyyy-Q"), "Q is the quarter of a year, which cannot be read"),
        (files("csv", dateFormat="dd.MMMMM.yyyy"), "M may be there 1 to 4 times in a row, not 5 times"),
        (files("csv", timestampFormat="yyyy-MM-dd HH:mm aa"), "a may be there once in a row, not 2 times"),
        (files("csv", timestampFormat="yyyy-MM-dd VVV"), "V may be there 2 times in a row, not 3 times"),
        (files("csv", timestampFormat="yyyy-MM-dd OO"), "O may be there 1 or 4 times in a row, not 2 times"),
        (files("csv", timestampFormat="yyyy-MM-ddTHH:mm"), "T is not a letter of a pattern"),
        (files("csv", timestampFormat="yyyy-MM-dd HH]"), "it has ] without [ before it"),
        (files("csv", timestampFormat="yyyy-MM-dd'T HH:mm"), "it has ' without a second one"),
        (files("csv", dateFormat="yyyy#MM#dd"), "# is reserved: write '#'"),
        (files("csv", locale="xx"), "write the tag of a known language, such as de-DE"),
        (files("csv", timeZone="BST"), "'BST' is not a value for timeZone | write a time zone such as"),
        (files("csv", timeZone="+25:00"), "'+25:00' is not a value for timeZone | write a time zone such as"),
        (files("csv", timeZone=""), "'' is not a value for timeZone | write a time zone such as"),
        (files("csv", locale="de_DE"), "write a language tag such as de-DE"),
        (files("csv", locale="german"), "write a language tag such as de-DE"),
        (kafka({"timeZone": "Mars/X"}), "'Mars/X' is not a value for timeZone | write a time zone such as"),
        (files("json", mode="DROPMALFORMED"), "tidegate keeps every record that does not parse"),
        (files("json", MODE="DROPMALFORMED"), "tidegate keeps every record that does not parse"),
        (files("json", columnNameOfCorruptRecord="x"), "tidegate keeps every record that does not parse"),
        (files("json", badRecordsPath="x"), "Spark accepts and ignores it"),
        (files("json", rescuedDataColumn="x"), "write unknown_fields: rescue on the source"),
        (files("parquet", ignoreCorruptFiles=True), "it loses records in silence"),
        (files("json", ignoreMissingFiles=True), "it loses records in silence"),
        (files("json", maxFileAge="7d"), "it loses records in silence"),
        (files("json", latestFirst=True), "it loses records in silence"),
        (files("json", cleanSource="delete"), "tidegate never touches the files of a source"),
        (files("json", modifiedAfter="2026-01-01"), "the time stamps of files do not matter"),
        (files("json", dateFormat="${X}"), "the environment is filled in in tidegate.yaml only"),
        (kafka({"failOnDataLoss": False}), "tidegate run NAME --accept-loss"),
        (kafka({"startingOffsets": "latest"}), "write starting_offsets on the source"),
        (kafka({"subscribe": "t"}), "write topics on the source"),
        (kafka({"minOffsetsPerTrigger": 5}), "it leaves records behind though the gate is open"),
        (kafka({"kafka.bootstrap.servers": "x"}), "the brokers are the project's"),
        (kafka({"kafka.group.id": "x"}), "tidegate keeps the offsets itself"),
        (kafka({"kafka.isolation.level": "read_uncommitted"}), "only committed records of transactions count"),
        (kafka({"kafka.secruity.protocol": "SSL"}), "may be made here | write kafka.security.protocol"),
        (kafka({"kafka.security.protocol": "SALS_SSL"}), "'SALS_SSL' is not a security protocol | write SASL_SSL"),
        (kafka({"kafka.fetch.max.bytes": "4m"}), "'4m' is not a value for kafka.fetch.max.bytes | write a whole"),
        (kafka({"kafka.max.poll.records": 1.5}), "1.5 is not a value for kafka.max.poll.records | write a whole"),
        (kafka({"kafka.sasl.mechanism": "GSSAPI"}), "a value for kafka.sasl.mechanism | allowed: PLAIN, SCRAM-SHA-256"),
        (kafka({"kafka.sasl.mechanism": "SCRAM-SHA-255"}), "| write SCRAM-SHA-256"),
        (kafka({"kafka.ssl.truststore.type": "JKS"}), "a value for kafka.ssl.truststore.type | allowed: PEM"),
        (kafka({"kafka.sasl.jaas.config": "x"}), "a secret does not belong in pipeline.yaml | write it in"),
        (kafka({"header": True}, "csv"), "'header' is not a reader option for Kafka records in csv"),
        (kafka({"maxFilesPerTrigger": 1}), "'maxFilesPerTrigger' is not a reader option for Kafka records"),
    ],
)  # fmt: skip
def test_bad_options(source, expected):
    found = check(source)
    assert len(found) == 1, found
    assert expected in found[0]


FRACTIONS = [
    ("files", "csv", "id INT, price DOUBLE", "de-DE", "column price"),
    ("kafka", "csv", "price FLOAT, weight DOUBLE", "fr", "columns price, weight"),
    ("files", "xml", "id INT, lines ARRAY<STRUCT<sku: STRING, `net price`: DOUBLE>>", "de", "column lines"),
    ("files", "xml", "by MAP<STRING, FLOAT>", "pt-BR", "column by"),
    ("files", "csv", "price DOUBLE", "en-GB", None),
    ("files", "csv", "price DOUBLE", None, None),
    ("files", "csv", "price DECIMAL(12,2), note STRING", "de-DE", None),
    ("files", "json", "price DOUBLE", "de-DE", None),
]


@pytest.mark.parametrize(("type_", "format_", "schema", "locale", "named"), FRACTIONS)
def test_fractions_that_do_not_follow_the_locale(type_, format_, schema, locale, named):
    options = ({"rowTag": "o"} if format_ == "xml" else {}) | ({} if locale is None else {"locale": locale})
    place = {"path": "in"} if type_ == "files" else {"topics": ["t"]}
    source = {"type": type_, **place, "format": format_, "schema": schema, "options": options}
    spec = PipelineSpec.read({"version": 1, "name": "flow", "schedule": None, "sources": {"s": source}})
    found = check_source("s", spec.sources["s"], spec)
    if named is None:
        assert found == []
        return
    [fault] = found
    assert fault.path == ("sources", "s", "schema")
    assert fault.message == (
        f"{named}: DOUBLE and FLOAT are read with a decimal point, whatever the option locale ({locale}) says"
    )
    assert fault.fix == "declare DECIMAL, which follows the locale, such as DECIMAL(18,4); or remove the option locale"


def test_the_parser_takes_its_own_options():
    source = files("csv", header=True, maxFilesPerTrigger=5, pathGlobFilter="*.csv")
    assert parser_options(source) == {"header": "true"}
    source = kafka({"maxOffsetsPerTrigger": 9, "kafka.client.rack": "a", "locale": "de-DE"})
    assert parser_options(source) == {"locale": "de-DE"}


def test_what_a_kafka_source_may_set_is_what_its_reader_takes():
    for format_ in ("json", "csv", "text", "raw"):
        allowed = list_allowed(kafka({}, format_))
        source = kafka(dict.fromkeys(allowed, "1"), format_)
        assert {*KAFKA_STREAM_OPTIONS, *parser_options(source)} == set(allowed)


def test_client_options_of_the_project():
    assert check_client_options({"security.protocol": "SSL", "kafka.request.timeout.ms": 5}) == []
    found = [f"{finding.message} | {finding.fix}" for finding in check_client_options({"sasl.mechansim": "PLAIN"})]
    assert found == [
        "'sasl.mechansim' is not a setting of the Kafka client that may be made here | write sasl.mechanism"
    ]
    assert len(check_client_options({"group.id": "x", "nonsense": 1, "security.protocol": "x"})) == 3
    for name, words in (
        ("bootstrap.servers", "write kafka: bootstrap_servers in tidegate.yaml"),
        ("ssl.cipher.suites", "to Java's client alone | remove it"),
        ("sasl.login.callback.handler.class", "log in by sasl.mechanism PLAIN"),
        ("ssl.truststore.password", "a PEM trust store has none"),
    ):
        (finding,) = check_client_options({name: "x"})
        assert words in f"{finding.message} | {finding.fix}"
