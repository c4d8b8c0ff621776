"""Lines of batch files, and the parts of files that they name, which workers expand to records in Python:
:mod:`tidegate.sources.readers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.sources.files.forms import form_of
from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.sources.readers.meter import ReportAddress
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource
from tidegate.state.batch_files import NAMES, BatchFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAMEWORK_COLUMNS = ("_raw", "_position", "_malformed", "_detail", "_unknown")
MAX_FILE_AGE = "365000d"
"""A file of any modification time is read: Spark skips what is older than the newest file it saw minus this."""

JSON_OF_ROWS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""The options for the raw text of a row that has no text: with its nulls, and with every digit of its times."""


def stream_batches(spark: SparkSession, name: str, files: BatchFiles, tasks: int) -> DataFrame:
    """The stream of the lines (value STRING) of batch files, one file for each micro-batch, in up to ``tasks`` tasks;
    the checkpoint knows it as ``name``."""
    reader = spark.readStream.name(name).options(maxFilesPerTrigger=1, maxFileAge=MAX_FILE_AGE, pathGlobFilter=NAMES)
    return _spread(reader.text(str(files.folder)), min(tasks, _most_parts(files)))


def read_lines(spark: SparkSession, lines: Sequence[str], tasks: int) -> DataFrame:
    """The ``lines`` of some parts, perhaps none, as a batch (value STRING), in up to ``tasks`` tasks."""
    frame = spark.createDataFrame([(line,) for line in lines], "value STRING")
    return _spread(frame, min(tasks, len(lines)))


def no_lines(spark: SparkSession, name: str) -> DataFrame:
    """An empty stream of lines; needs no source."""
    nothing = spark.readStream.name(name).format("rate").load().where("false")
    return nothing.selectExpr("CAST(NULL AS STRING) AS value")


def count_cores(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time."""
    return int(spark.sparkContext.defaultParallelism)


def count_tasks(spark: SparkSession) -> int:
    """The number of tasks that read files: as the run has set it by their number and size, else one for each core."""
    fewest = spark.conf.get("spark.sql.files.minPartitionNum", None)
    return int(fewest) if fewest else count_cores(spark)


def _spread(lines: DataFrame, tasks: int) -> DataFrame:
    """``lines`` in so many partitions: Spark reads a batch file as one."""
    return lines.repartition(tasks) if tasks > 1 else lines


def read_parts(
    lines: DataFrame,
    folder: Path,
    spec: FilesSource,
    in_folders: Sequence[str] = (),
    report_to: ReportAddress | None = None,
) -> DataFrame:
    """The records of the parts that ``lines`` (value STRING) name, of files below ``folder``, with the framework's
    columns. The values of the columns ``in_folders`` are in the names of folders."""
    from tidegate.sources.readers.worker import PartsReader  # pyarrow, which a driver loads after its session

    form = form_of(spec, in_folders)
    columns = parse_ddl(form.ddl)
    below = [column for column in columns if column.name in in_folders]
    own = [column for column in columns if column not in below]
    rescued = ["_rescued"] if spec.unknown_fields == "rescue" else []
    ddl = [show_columns(own), *([RESCUED_DDL] if rescued else []), show_columns(below), FRAMEWORK_DDL]
    reader = PartsReader(form, str(folder), report_to=report_to)
    found = lines.select("value").mapInArrow(reader, ", ".join(filter(None, ddl)))
    names = [F.col(quote_column(column.name)) for column in columns]
    # A record that has no text is kept as JSON, if it is kept.
    raw = F.coalesce("_raw", F.to_json(F.struct(*names), JSON_OF_ROWS)).alias("_raw")
    kept = raw if spec.format in SELF_DESCRIBING_FORMATS else F.col("_raw")
    return found.select(*names, *rescued, kept, *FRAMEWORK_COLUMNS[1:])


def parse_texts(texts: DataFrame, form: Form, kept: Sequence[str] = ()) -> DataFrame:
    """The records whose texts ``texts`` holds (_raw STRING or BINARY, _position, and the columns ``kept``): the columns
    of ``form``, those that are kept, and the framework's."""
    from tidegate.sources.readers.worker import TextsReader  # pyarrow, as above

    types = dict(texts.dtypes)
    behind = [Column(name, types[name], True) for name in kept]
    frame = texts.select("_raw", "_position", *(F.col(quote_column(name)) for name in kept))
    return frame.mapInArrow(
        TextsReader(form, kept), ", ".join(filter(None, [*_own(form), show_columns(behind), FRAMEWORK_DDL]))
    )


def _own(form: Form) -> list[str]:
    return [show_columns(parse_ddl(form.ddl)), *([RESCUED_DDL] if form.policy == "rescue" else [])]


def show_columns(columns: Sequence[Column]) -> str:
    """DDL, every column nullable: what is NOT NULL is demanded by the reader."""
    return ", ".join(f"{quote_column(column.name)} {column.type}" for column in columns)


def _most_parts(files: BatchFiles) -> int:
    """The largest number of parts of one file that Spark may read."""
    last = files.last_planned()  # perhaps of a batch in flight
    return max((len(files.read(number).parts) for number in files.numbers() if number >= last), default=1)
