"""Lines of text -> how often each word has come so far."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(lines: DataFrame) -> DataFrame:
    """A word is a run of letters, of any language, in lower case: ``ship's`` is ``ship`` and ``s``."""
    words = F.regexp_extract_all(F.lower("value"), F.lit(r"\p{L}+"), F.lit(0))
    return lines.select(F.explode(words).alias("word")).groupBy("word").count()
