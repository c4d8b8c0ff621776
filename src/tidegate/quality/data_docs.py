"""Great Expectations' Data Docs of one run: the library makes the pages from the verdict that is stored.

Nothing is judged again, and no row is read: the pages have the counts and figures of the run report. The arguments of a
rule are those of the current suite; a rule that is no longer in it is shown by its name.
"""

from __future__ import annotations

import contextlib
import html
import io
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.outputs import RuleResult, RunReport
from tidegate.quality import errors
from tidegate.quality.gx_judge import import_gx, open_gx_context
from tidegate.quality.gx_types import QUERY_TYPE
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.quality.verdict import TIDEGATE_TYPE

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

_SITE = "tidegate"
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.+:@=-]")
_STAND_IN = "expect_table_row_count_to_be_between"
"""The type shown for a rule of which only the name is known: it needs no arguments, and its text is replaced."""


def write_data_docs(folder: Path, report: RunReport, suite: SuiteSpec | None) -> Path:
    """Write the site into ``folder``, which is empty or has another run's, which is replaced; the page of the run.

    Raises DefectError DATA_DOCS_NOT_MADE when the library made none: it logs why, and calls that a success.
    """
    context = open_gx_context()
    name = report["pipeline"]
    rules = {rule.rule: rule for rule in (suite.rules if suite is not None else ())}
    key, result = _make_result(report, rules)
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.absolute())},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
    with _listen() as messages, contextlib.ExitStack() as undo:
        context.add_data_docs_site(site_name=_SITE, site_config=site)
        undo.callback(context.delete_data_docs_site, _SITE)
        context.suites.add(_make_suite(name, suite))
        undo.callback(context.suites.delete, name)
        context.validation_results_store.set(key=key, value=result)
        undo.callback(context.validation_results_store.remove_key, key)
        context.build_data_docs(site_names=[_SITE])
    of_run = folder / "validations" / name / key.run_id.run_name
    page = max(of_run.rglob("*.html"), default=None)
    if page is None:
        raise errors.DATA_DOCS_NOT_MADE(
            where=str(folder), error=" ".join(" ".join(messages).split())[-500:] or "it gave no reason"
        )
    return page


def _make_suite(name: str, suite: SuiteSpec | None) -> ExpectationSuite:
    """Make the current suite, without rules when the pipeline has none."""
    gx = import_gx()
    find = gx.expectations.registry.get_expectation_impl
    rules = suite.rules if suite is not None else ()
    made = [find(rule.type)(**_shown(rule), severity=rule.severity, meta={"rule": rule.rule}) for rule in rules]
    return gx.ExpectationSuite(name=name, expectations=made)


def _make_result(
    report: RunReport, rules: Mapping[str, RuleSpec]
) -> tuple[ValidationResultIdentifier, ExpectationSuiteValidationResult]:
    gx = import_gx()
    identifiers = gx.data_context.types.resource_identifiers
    results = [_as_result(one, rules, report["rows"]["staged"]) for one in report["quality"]["results"]]
    held = [one.success for one in results]
    began = datetime.fromisoformat(report["started_at"])
    run_name = _NOT_A_NAME.sub("_", report["run_id"])  # a part of a path there
    run_id = gx.core.run_identifier.RunIdentifier(run_name=run_name, run_time=began)
    batch = f"{report['pipeline']}-{run_name}"
    statistics = {
        "evaluated_expectations": len(held),
        "successful_expectations": sum(held),
        "unsuccessful_expectations": len(held) - sum(held),
        "success_percent": 100 * sum(held) / len(held) if held else None,
    }
    result = gx.core.expectation_validation_result.ExpectationSuiteValidationResult(
        success=report["quality"]["verdict"] in ("passed", "warned"),
        results=results,
        suite_name=report["pipeline"],
        statistics=statistics,
        meta={
            "run_id": run_id,
            "active_batch_definition": {
                "datasource_name": "tidegate",
                "data_connector_name": report["mode"],
                "data_asset_name": report["pipeline"],
                "batch_identifiers": {"run_id": report["run_id"]},
            },
            "batch_spec": {"rows": report["rows"]},
        },
    )
    of_suite = identifiers.ExpectationSuiteIdentifier(report["pipeline"])
    return identifiers.ValidationResultIdentifier(of_suite, run_id, batch), result


def _as_result(result: RuleResult, rules: Mapping[str, RuleSpec], rows: int) -> ExpectationValidationResult:
    figures: dict[str, object] = {"element_count": rows}
    if result["type"] == TIDEGATE_TYPE:  # it counts records that were read, of which some never became rows
        figures = {}
    elif result["type"] == QUERY_TYPE:  # its rows may be rows of the table, or no rows of either
        figures["observed_value"] = result["unexpected_count"]
    elif result["unexpected_count"] is not None:
        figures["unexpected_count"] = result["unexpected_count"]
        figures["unexpected_percent"] = 100 * result["unexpected_count"] / rows if rows else None
        figures["partial_unexpected_list"] = []
    if result["observed_value"] is not None:
        figures["observed_value"] = result["observed_value"]
    return import_gx().core.expectation_validation_result.ExpectationValidationResult(
        success=result["success"],
        expectation_config=_as_configuration(result, rules.get(result["rule"])),
        result=figures,
        meta={},
        exception_info={"raised_exception": False, "exception_message": None, "exception_traceback": None},
    )


def _as_configuration(result: RuleResult, rule: RuleSpec | None) -> ExpectationConfiguration:
    """The configuration of a rule. A rule that the library cannot make is shown by its name alone."""
    make = import_gx().expectations.expectation_configuration.ExpectationConfiguration
    severity = result["severity"]
    if rule is not None and rule.type == result["type"]:
        return make(type=rule.type, kwargs=_shown(rule), severity=severity)
    why = "tidegate's own" if result["type"] == TIDEGATE_TYPE else f"{result['type']}, no longer in the suite"
    return make(type=_STAND_IN, kwargs={}, severity=severity, description=_escape(f"{result['rule']} ({why})"))


def _shown(rule: RuleSpec) -> dict[str, object]:
    """A rule's arguments, safe for a page: the library escapes all but the column, which is a heading."""
    kwargs = dict[str, object](rule.kwargs)
    return kwargs | {"column": _escape(kwargs["column"])} if "column" in kwargs else kwargs


def _escape(text: object) -> object:
    """Escape a text that the library puts into a page as it is."""
    return html.escape(text, quote=False) if isinstance(text, str) else text


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _listen() -> Iterator[list[str]]:
    """Collect the errors that the library only logs, and hide its other output."""
    logger, handler = logging.getLogger("great_expectations"), _Messages()
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
