"""``expectations/<name>.yaml`` as frozen values, checked without importing Great Expectations.

Great Expectations drops a rule it does not know and calls the rest a success; here every fault of the file is refused
at once, by name and line, before anything runs. A suite in the form before 1.0 is recognized, and can be upgraded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import yaml

from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.quality import errors
from tidegate.quality.gx_types import (
    BY_A_COLUMN,
    DISTRIBUTION_TYPES,
    EXPECTATION_TYPES,
    QUARANTINE_TYPES,
    QUERY_TYPE,
    UNUSABLE_TYPES,
)
from tidegate.quality.rule_values import (
    COLUMN_KEYS,
    RuleKwargs,
    find_condition_column,
    find_kwarg_faults,
    find_type_faults,
    list_placeholders,
)
from tidegate.spec.document import Document, KeyPath
from tidegate.spec.faults import Fault, SpecError, describe_allowed, name_nearest, show_value
from tidegate.spec.project import Project
from tidegate.spec.yaml_file import read_document

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[str, ...] = ("critical", "warning", "info")
RESERVED_RULES = ("malformed", "late", "max_quarantine_share", "unknown_fields")
"""Reasons and pseudo rules of tidegate itself, which no rule may be named after."""

_CODE = "BAD_SUITE"
_SUITE_KEYS = ("name", "expectations", "meta", "notes", "id")
_RULE_KEYS = ("type", "kwargs", "severity", "meta", "description", "notes", "id")
_META_KEYS = ("rule", "on_failure")
_LONGEST_RULE = 120


@dataclass(frozen=True)
class RuleSpec:
    """One expectation. ``kwargs`` are Great Expectations' own; ``file`` and ``line`` are where it is."""

    rule: str
    type: str
    kwargs: RuleKwargs
    severity: Severity = "critical"
    quarantine: bool = False
    line: int | None = None
    file: str = field(default="", compare=False)

    def to_error(self, fault: str) -> UsageError:
        """Make the error for a rule that cannot be checked."""
        place = f"{self.file or 'the suite'}, line {self.line}" if self.line else self.file
        return errors.BAD_SUITE(where=place or None, rule=self.rule, rule_type=self.type, fault=fault)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the rule reads, that of its condition last."""
        names = [self.kwargs[key] for key in COLUMN_KEYS if key in self.kwargs]
        if self.type in ("expect_table_columns_to_match_ordered_list", "expect_table_columns_to_match_set"):
            return ()
        condition = find_condition_column(self.kwargs)
        return tuple(dict.fromkeys([*names, *self.kwargs.get("column_list", []), *([condition] if condition else [])]))

    @property
    def reads_batch(self) -> bool:
        """Whether it is a query that reads the increment."""
        return self.type == QUERY_TYPE and "batch" in list_placeholders(self.kwargs["unexpected_rows_query"])

    @property
    def reads_table(self) -> bool:
        """Whether it is a query that reads the table as it will be."""
        return self.type == QUERY_TYPE and "table" in list_placeholders(self.kwargs["unexpected_rows_query"])

    @property
    def level(self) -> str:
        """``row``, ``column`` or ``table``."""
        return EXPECTATION_TYPES[self.type].level

    @property
    def checks_rows(self) -> bool:
        """Whether a few rows are enough to judge it: it concerns no share and no figure of the whole increment."""
        return self.level == "row" and "mostly" not in self.kwargs and self.type not in DISTRIBUTION_TYPES


@dataclass(frozen=True)
class SuiteSpec:
    """A suite with at least one rule; ``file`` is its path relative to the project root."""

    name: str
    rules: tuple[RuleSpec, ...]
    file: str = field(default="", compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that some rule reads."""
        return tuple(dict.fromkeys(column for rule in self.rules for column in rule.columns))

    @property
    def queries(self) -> tuple[RuleSpec, ...]:
        """The rules that are custom SQL."""
        return tuple(rule for rule in self.rules if rule.type == QUERY_TYPE)

    @property
    def without_queries(self) -> SuiteSpec:
        """The rules that Great Expectations judges."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.type != QUERY_TYPE))

    @property
    def reads_table(self) -> bool:
        """Whether a query reads the table as it will be, so that a verdict holds for one state of the table only."""
        return any(rule.reads_table for rule in self.queries)

    @property
    def quarantine_rules(self) -> tuple[RuleSpec, ...]:
        """The rules whose offending rows are quarantined."""
        return tuple(rule for rule in self.rules if rule.quarantine)


def load_suite(project: Project, name: str) -> SuiteSpec | None:
    """The suite of pipeline ``name``, or None when it has no file. Raises SpecError with every fault of the file."""
    path = project.suite_path(name)
    if not path.exists():
        return None
    return read_suite(path, name, _relative(path, project.root))


def read_suite(path: Path, name: str, file: str | None = None) -> SuiteSpec:
    """The suite in ``path``, which must be named ``name``. Raises SpecError with every fault of the file."""
    document = read_document(path, file or str(path))
    rules: list[RuleSpec] = []
    if isinstance(document.data, dict) and not document.faults:
        rules = _check_suite(document, name)
    if document.faults:
        raise SpecError(document.faults, fix=f"tidegate validate {name}")
    return SuiteSpec(name, tuple(rules), document.file)


def digest_suite(suite: SuiteSpec | None) -> str:
    """The digest of a suite's rules, by which two suites are compared."""
    rules = [] if suite is None else [{**asdict(rule), "line": None} for rule in suite.rules]
    for rule in rules:
        del rule["file"]
    return hashlib.sha256(json.dumps(rules, sort_keys=True, default=str).encode()).hexdigest()


def check_columns(suite: SuiteSpec, columns: Iterable[str] | Mapping[str, str]) -> None:
    """Refuse a suite that names columns the increment will not have.

    ``columns`` are the names of the staged columns, or better a mapping of name to Spark type
    (``dict(df.dtypes)``): then rules whose values cannot be compared with their column's type are refused as well.
    Raises SpecError.
    """
    names = list(columns)
    types = columns if isinstance(columns, Mapping) else {}
    faults = []
    for rule in suite.rules:
        missing = [column for column in rule.columns if column not in names]
        for column in missing:
            if rule.type == "expect_column_to_exist":
                continue
            message = f"rule {rule.rule!r} reads the column {column!r}, which the pipeline's rows do not have"
            faults.append(Fault(suite.file, rule.line, "kwargs", message, describe_allowed(column, names), _CODE))
        if not missing and types:
            for message, fix in find_type_faults(rule.type, rule.kwargs, types):
                faults.append(Fault(suite.file, rule.line, "kwargs", f"rule {rule.rule!r}: {message}", fix, _CODE))
    if faults:
        # Only Spark knows which columns a transform makes: without it the file is sound.
        raise SpecError(faults, fix=f"correct it, then: tidegate validate {suite.name} --spark")


def _check_suite(document: Document, name: str) -> list[RuleSpec]:
    data = document.data
    if old := find_old_keys(data):
        path = (old[0],) if old[0] in data else ("expectations",)
        fix = f"`tidegate validate {name} --upgrade-suite` rewrites it, and keeps the old file next to it"
        document.add_fault(path, describe_old_keys(old), fix, _CODE)
        return []
    _refuse_unknown_keys(document, (), data, _SUITE_KEYS)
    if data.get("name") != name:
        document.add_fault(
            ("name",),
            f"the suite is named {show_value(data.get('name'))}, but it belongs to the pipeline {name!r}",
            f"write `name: {name}`",
            _CODE,
        )
    entries = data.get("expectations")
    if entries and not isinstance(entries, list):
        message = f"{show_value(entries)} is not a list of expectations"
        fix = "write a list: `- type: expect_column_values_to_not_be_null`, and below it `kwargs: {column: id}`"
        document.add_fault(("expectations",), message, fix, _CODE)
        return []
    if not isinstance(entries, list) or not entries:
        document.add_fault(
            ("expectations",),
            "the suite has no expectations, and an empty suite would pass everything",
            "add one, or remove the file: the pipeline then runs and reports `unchecked`",
            _CODE,
        )
        return []
    rules = [_check_rule(document, ("expectations", index), entry) for index, entry in enumerate(entries)]
    found = [rule for rule in rules if rule is not None]
    first: dict[str, RuleSpec] = {}
    for index, rule in enumerate(rules):
        if rule is None:
            continue
        if rule.rule in first:
            document.add_fault(
                ("expectations", index, "meta", "rule"),
                f"two rules are named {rule.rule!r}, the first in line {first[rule.rule].line}",
                "give each its own name: `meta: {rule: ...}`",
                _CODE,
            )
        first.setdefault(rule.rule, rule)
    return found


def _check_rule(document: Document, path: KeyPath, entry: object) -> RuleSpec | None:
    if not isinstance(entry, dict):
        document.add_fault(path, f"{show_value(entry)} is not an expectation", "write `- type: expect_...`", _CODE)
        return None
    _refuse_unknown_keys(document, path, entry, _RULE_KEYS)
    meta = _check_mapping(document, path, entry, "meta")
    kwargs = _check_mapping(document, path, entry, "kwargs")
    severity = entry.get("severity", "critical")
    if severity not in SEVERITIES:
        fix = describe_allowed(str(severity), SEVERITIES)
        document.add_fault((*path, "severity"), f"{show_value(severity)} is not a severity", fix, _CODE)
    type_ = entry.get("type")
    if not isinstance(type_, str):
        document.add_fault((*path, "type"), "the expectation has no type", "add `type: expect_...`", _CODE)
        return None
    if type_ not in EXPECTATION_TYPES:
        document.add_fault((*path, "type"), f"Great Expectations knows no {type_!r}", _describe_types(type_), _CODE)
        return None
    if type_ in UNUSABLE_TYPES:
        why, instead = UNUSABLE_TYPES[type_]
        document.add_fault((*path, "type"), f"{type_} cannot judge an increment: {why}", instead, _CODE)
        return None
    _refuse_unknown_keys(document, (*path, "kwargs"), kwargs, EXPECTATION_TYPES[type_].kwargs, of=type_)
    bad = False
    for name, message in find_kwarg_faults(type_, kwargs):
        bad = True
        document.add_fault((*path, "kwargs", name), message, f"correct `{name}` of this rule", _CODE)
    rule = meta.get("rule") if meta.get("rule") is not None else _default_rule(type_, kwargs)
    _check_rule_name(document, (*path, "meta", "rule"), rule)
    quarantine = _check_on_failure(document, path, type_, kwargs, meta)
    if bad and not isinstance(rule, str):
        return None
    line = document.find_line(path)
    return RuleSpec(
        str(rule), type_, cast(RuleKwargs, dict(kwargs)), cast(Severity, severity), quarantine, line, document.file
    )


def _check_on_failure(
    document: Document, path: KeyPath, type_: str, kwargs: Mapping[str, object], meta: Mapping[str, object]
) -> bool:
    if "on_failure" not in meta:
        return False
    here = (*path, "meta", "on_failure")
    if meta["on_failure"] != "quarantine":
        message = f"{show_value(meta['on_failure'])} is not known"
        fix = "write `quarantine`, or leave it out: a failed critical then holds the increment"
        document.add_fault(here, message, fix, _CODE)
        return False
    if type_ not in QUARANTINE_TYPES:
        what = (
            "judges rows, but not one by one as they stream past"
            if EXPECTATION_TYPES[type_].level == "row"
            else f"judges a whole {EXPECTATION_TYPES[type_].level}, so it has no offending rows"
        )
        fix = f"leave out on_failure, or use one of: {', '.join(sorted(QUARANTINE_TYPES))}"
        if type_ == QUERY_TYPE:
            what = "runs when all rows are staged, so no row can be quarantined by it"
            fix = f"leave out on_failure; or {BY_A_COLUMN}"
        document.add_fault(here, f"{type_} {what}", fix, _CODE)
    for name in ("mostly", "row_condition", "condition_parser"):
        if name in kwargs:
            why = "every offending row is quarantined" if name == "mostly" else "it is applied to every row"
            document.add_fault(
                (*path, "kwargs", name), f"`{name}` has no meaning with on_failure: quarantine, where {why}",
                f"remove `{name}`", _CODE,
            )  # fmt: skip
    for name in COLUMN_KEYS:
        if "${" in str(kwargs.get(name, "")):
            document.add_fault(
                (*path, "kwargs", name), "a column name with ${ is filled in by Spark SQL", "rename the column", _CODE
            )
    return True


def _check_rule_name(document: Document, path: KeyPath, rule: object) -> None:
    if not isinstance(rule, str) or not rule.strip() or len(rule) > _LONGEST_RULE or not rule.isprintable():
        document.add_fault(
            path,
            f"{show_value(rule)} is not a name for a rule",
            f"write 1 to {_LONGEST_RULE} printable characters",
            _CODE,
        )
    elif rule in RESERVED_RULES:
        document.add_fault(path, f"{rule!r} is a reason of tidegate itself", "choose another name", _CODE)


def _check_mapping(document: Document, path: KeyPath, entry: dict[str, object], key: str) -> dict[str, object]:
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        document.add_fault((*path, key), f"{show_value(value)} is not a mapping", f"write `{key}: {{...}}`", _CODE)
        return {}
    if key == "meta":
        for name in value:
            nearest = name_nearest(name, _META_KEYS)
            if name not in _META_KEYS and nearest:
                document.add_fault((*path, key, name), f"unknown key {name!r}", f"write {nearest}", _CODE)
    return value


def _refuse_unknown_keys(
    document: Document, path: KeyPath, value: Mapping[str, object], allowed: tuple[str, ...], of: str = ""
) -> None:
    for key in value:
        if key not in allowed:
            message = f"{of} has no {key!r}" if of else f"unknown key {key!r}"
            document.add_fault((*path, key), message, describe_allowed(key, allowed), _CODE)


def _describe_types(type_: str) -> str:
    nearest = name_nearest(type_, sorted(set(EXPECTATION_TYPES) - set(UNUSABLE_TYPES)))
    return f"write {nearest}" if nearest else "look the type up in the gallery of Great Expectations"


def _default_rule(type_: str, kwargs: Mapping[str, object]) -> str:
    """A readable name: ``column_values_to_be_between(amount)``."""
    columns = [name for key in COLUMN_KEYS if isinstance(name := kwargs.get(key), str)]
    listed = kwargs.get("column_list")
    if isinstance(listed, list):
        columns += [str(name) for name in listed]
    short = type_.removeprefix("expect_")
    return f"{short}({', '.join(columns)})"[:_LONGEST_RULE] if columns else short


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


_NEW_NAMES = {"expectation_suite_name": "name", "expectation_type": "type"}
_GONE = ("ge_cloud_id", "data_asset_type", "evaluation_parameters", "expectation_context")
_GONE_KWARGS = ("result_format", "include_config", "catch_exceptions")
"""Keys for the detail of a result, which a run decides now."""


def find_old_keys(data: object) -> list[str]:
    """The keys of ``data``, a suite as it was read, that have another name since 1.0."""
    entries = data.get("expectations") if isinstance(data, dict) else None
    mappings = [data, *(entries if isinstance(entries, list) else [])]
    return [key for key in _NEW_NAMES if any(isinstance(one, dict) and key in one for one in mappings)]


def describe_old_keys(keys: list[str]) -> str:
    """Describe the fault of a suite that has these keys."""
    renamed = ", ".join(f"{key} is {_NEW_NAMES[key]}" for key in keys)
    return f"the file has the form of Great Expectations before 1.0; since then {renamed}"


def upgrade_file(path: Path, name: str) -> Path | None:
    """Rewrite the suite in ``path``, of pipeline ``name``, in the form of 1.x; the file as it was is kept under the
    path that is returned. None for a file that has that form already, or cannot be read as a suite."""
    try:
        data = yaml.safe_load(path.read_bytes())
    except (FileNotFoundError, yaml.YAMLError, UnicodeDecodeError):
        return None
    if not find_old_keys(data):
        return None
    kept = path.with_name(f"{path.name}.before")
    storage.replace(kept, path.read_bytes())
    text = yaml.safe_dump(_upgrade(data, name), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    storage.replace(path, text.encode())
    return kept


def _upgrade(data: dict[str, object], name: str) -> dict[str, object]:
    suite = {**_rename(data), "name": name}
    entries = suite.pop("expectations", None)
    if isinstance(entries, list):
        entries = [_upgrade_rule(entry) if isinstance(entry, dict) else entry for entry in entries]
    return {"name": suite.pop("name"), **suite, "expectations": entries}


def _upgrade_rule(entry: dict[str, object]) -> dict[str, object]:
    rule = _rename(entry)
    kwargs = rule.get("kwargs")
    if isinstance(kwargs, dict):
        rule["kwargs"] = {key: value for key, value in kwargs.items() if key not in _GONE_KWARGS}
    return rule


def _rename(value: dict[str, object]) -> dict[str, object]:
    return {_NEW_NAMES.get(key, key): one for key, one in value.items() if key not in _GONE}
