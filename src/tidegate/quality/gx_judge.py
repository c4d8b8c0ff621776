"""Great Expectations: imported late and without what an audit never uses, asked once per batch, and not trusted.

Its silent failures are errors here: a rule it drops, a result that is missing, an exception it counts as a failed rule.
The import costs about 2.5 CPU-seconds, a third of it for drawing charts (altair) and for the statistics of three rules
(scipy.stats). Those two are imported only when a name of theirs is used; no use is refused.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from tidegate.quality import errors
from tidegate.quality.engine import EngineName, RuleResult, hide_values, tidy_observed
from tidegate.quality.suite import RuleSpec

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.data_context import EphemeralDataContext

_RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
_INDEX = "tidegate_rule_index"
_LISTS_OF_ROW_VALUES = (
    "expect_column_distinct_values_to_be_in_set",
    "expect_column_distinct_values_to_contain_set",
    "expect_column_distinct_values_to_equal_set",
    "expect_column_most_common_value_to_be_in_set",
)


@functools.cache
def open_gx_context() -> EphemeralDataContext:
    """The one ephemeral context of this process: no files, no analytics, no progress bars."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    gx = import_gx()
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # sets its own level
    context = gx.get_context(mode="ephemeral")
    _skip_fingerprints()
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    return context


@functools.cache
def open_gx_frames(engine: EngineName) -> BatchDefinition:
    """Great Expectations' batch definition for frames of one engine, made once: each time it costs a YAML document."""
    sources = open_gx_context().data_sources
    source = (
        sources.add_pandas("tidegate_pandas")
        if engine == "pandas"
        else sources.add_spark("tidegate_spark", persist=False)  # the default caches, and never lets go
    )
    return source.add_dataframe_asset("increment").add_batch_definition_whole_dataframe("whole")


def _skip_fingerprints() -> None:
    """Skip the hash over every value of a frame: it labels a batch, is never read, and costs more than the rules."""
    module = import_gx().execution_engine.pandas_execution_engine
    if hasattr(module, "HASH_THRESHOLD"):
        module.HASH_THRESHOLD = 0


def judge_frame(frame: object, rules: Sequence[RuleSpec], engine: EngineName) -> list[RuleResult]:
    """Ask Great Expectations about a pandas or Spark DataFrame: one result per rule, in the order of ``rules``, whose
    kwargs are those for this frame and engine.

    Raises UsageError when a rule cannot be built or evaluated, naming it, and DefectError when an answer is missing.
    """
    gx = import_gx()
    expectations = [build_expectation(rule, index) for index, rule in enumerate(rules)]
    suite = gx.ExpectationSuite(name="increment", expectations=expectations)
    if len(suite.expectations) != len(rules):
        raise errors.GX_LEFT_OUT_RESULTS(fault=f"kept {len(suite.expectations)} of {len(rules)} rules")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = open_gx_frames(engine).get_batch({"dataframe": frame}).validate(suite, result_format=_RESULT_FORMAT)
    answers = {answer.expectation_config.meta.get(_INDEX): answer for answer in report.results}
    if len(report.results) != len(rules) or set(answers) != set(range(len(rules))):
        raise errors.GX_LEFT_OUT_RESULTS(fault=f"gave {len(report.results)} results for {len(rules)} rules")
    return [_read_answer(rule, answers[index]) for index, rule in enumerate(rules)]


def build_expectation(rule: RuleSpec, index: int) -> object:
    """Great Expectations' own object for a rule. Raises UsageError with its complaint when the kwargs do not suit."""
    gx = import_gx()
    try:
        implementation = gx.expectations.registry.get_expectation_impl(rule.type)
        return implementation(**rule.kwargs, severity=rule.severity, meta={_INDEX: index})
    except Exception as error:  # noqa: BLE001 - GX and what it imports raise any class for kwargs that do not suit
        raise rule.to_error(f"is refused by Great Expectations: {' '.join(str(error).split())}") from None


def _read_answer(rule: RuleSpec, answer: ExpectationValidationResult) -> RuleResult:
    info = answer.exception_info or {}
    if info.get("raised_exception") or (info and "raised_exception" not in info):
        raise rule.to_error(f"could not be evaluated: {_find_complaint(info)}")
    figures = answer.result or {}
    count = figures.get("unexpected_count") if rule.level == "row" else None
    if rule.level == "row" and count is None:
        raise errors.GX_LEFT_OUT_RESULTS(fault=f"gave no count of offending rows for rule {rule.rule!r}")
    observed = None if rule.type in _LISTS_OF_ROW_VALUES or rule.level == "row" else figures.get("observed_value")
    return RuleResult(
        rule=rule.rule,
        type=rule.type,
        severity=rule.severity,
        success=bool(answer.success),
        unexpected_count=None if count is None else int(count),
        observed_value=_tidy_names(rule.type, observed),
    )


def _tidy_names(type_: str, observed: object) -> object:
    """Column names, which are not values of a row, are kept as they are; anything else as figures."""
    if type_.startswith("expect_table_columns_") and isinstance(observed, (list, set, tuple)):
        return [str(name) for name in observed]
    return tidy_observed(observed)


def _find_complaint(info: Mapping[str, object]) -> str:
    """The first exception's message, on one line, without quoted texts: they may be a row's values."""
    details = info if "raised_exception" in info else next(iter(info.values()))
    message = (
        details.get("exception_message") if isinstance(details, dict) else getattr(details, "exception_message", None)
    )
    return hide_values(" ".join(str(message).split()))[:300]


_PUT_OFF = ("altair", "scipy.stats")

AHEAD_AT_MOST_BYTES = 512 << 20
"""Input up to which a run imports the library while Spark still reads: above it Spark's own process judges the rows
(:func:`tidegate.quality.engine.choose_engine`), and the import would be for nothing."""


def import_gx() -> ModuleType:
    """The library, with analytics switched off before it looks. Seconds of CPU the first time, nothing later."""
    if "great_expectations" not in sys.modules:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it logs 250 lines while it is imported
        for name in _PUT_OFF:
            _put_off(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("great_expectations")


def import_gx_ahead() -> None:
    """Begin the import in a thread: while Spark reads, this process only waits, so that a small run ends 1.7 s earlier.

    Not before Spark's process was started: a fork while a thread imports may never come back. A failure shows when the
    library is needed.
    """

    def load() -> None:
        with contextlib.suppress(Exception):
            import_gx()

    threading.Thread(target=load, name="import-gx", daemon=True).start()


class _PutOffModule(ModuleType):
    """A placeholder for a module until one of its names is used; then the real one's proxy."""

    def __getattr__(self, name: str) -> object:
        real = sys.modules.get(self.__name__)
        if real is self or real is None:
            sys.modules.pop(self.__name__, None)
            real = importlib.import_module(self.__name__)
        return getattr(real, name)


def _put_off(name: str) -> None:
    """Let ``name`` be imported on its first use. Does nothing when it is imported already, or not installed.

    Python's own ``LazyLoader`` does not do here: on 3.11 a second import statement already wakes it.
    """
    if name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return
    if spec is not None:
        module = _PutOffModule(name)
        module.__spec__ = spec
        sys.modules[name] = module
