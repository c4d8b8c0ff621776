"""The fingerprint of a query's state: its operators with their keys and values, as the same text in each session.

Spark takes an old checkpoint with another aggregate of the same type, or another key, and continues with numbers that
mean something else. Filters, and columns that the state does not depend on, may change at any time: they are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tidegate.spark.catalyst.operations import is_stateful
from tidegate.spark.catalyst.plans import analysed_plan, children_of, is_metric, items, kind_of, walk, with_settings
from tidegate.state.birth import KeptState

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

_ATTRIBUTE = re.compile(r"([^\s,()\[\]]+)#(\d+)L?(?:-T\d+ms)?")
_DEPTH_AT_MOST = 20
_PYTHON = re.compile(r"\)#\d")
"""A Python function: the text of the plan has its name alone, not its code."""
_CHANGES = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|now|curdate|localtimestamp|monotonically_increasing_id"
    r"|spark_partition_id|input_file\w*|current_\w+|session_\w+|user)\(",
    re.IGNORECASE,
)
_WHOLE_TEXTS = {"spark.sql.debug.maxToStringFields": str(2**31 - 1)}
"""Spark cuts the text of an expression, and of a type, after 25 fields: the rest would not be compared."""


def describe_state(out: DataFrame) -> list[KeptState]:
    """The operators of ``out`` that keep state, from the result down; an empty list for a query without state."""
    found = []
    with with_settings(out.sparkSession, _WHOLE_TEXTS):
        for node in walk(analysed_plan(out)):
            if is_stateful(node):
                definitions: dict[str, str] = {}
                for child in children_of(node):
                    _collect(child, definitions)
                found.append(_describe(node, definitions))
    return found


def describe_columns(out: DataFrame, names: Collection[str]) -> dict[str, str]:
    """The expression of each of these columns of ``out``, down to the sources (``events.at``). A column without a fixed
    expression is excluded: one from Python code, random numbers or the time of the run, or one that depends on other
    records, as from an aggregate or from a side of a join that may be missing."""
    found, definitions, wanted = {}, _OfOneRecord(), {name.lower() for name in names}
    with with_settings(out.sparkSession, _WHOLE_TEXTS):
        top = analysed_plan(out)
        _collect(top, definitions)
        for attribute in items(top.output()):
            if str(attribute.name()).lower() in wanted:
                text = _resolve_all(str(attribute.toString()), definitions)
                if text is not None and not _CHANGES.search(text):
                    found[str(attribute.name())] = text
    return found


class _OfOneRecord(dict[str, str]):
    """Definitions of columns that each record decides alone."""

    def setdefault(self, key: str, default: str = "") -> str:
        """Keep the definition from below for a column that an operator passes on."""
        return default if re.search(rf"#{key}(?!\d)", default) else super().setdefault(key, default)

    def refuse(self, attributes: Iterable[JavaObject]) -> None:
        """Mark these as columns without a known expression."""
        for attribute in attributes:
            super().setdefault(_id(attribute), f"#{_id(attribute)}")


def _refuse_of_others(node: JavaObject, kind: str, definitions: _OfOneRecord) -> None:
    """Refuse the columns of an operator that depend on which other records there are."""
    if kind == "Aggregate":
        made = items(node.aggregateExpressions())
        definitions.refuse(one for one in made if kind_of(one) == "Alias" and _aggregates(one))
    elif kind == "Deduplicate" and is_stateful(node):
        keys = {_id(key) for key in items(node.keys())}
        definitions.refuse(one for one in items(node.output()) if _id(one) not in keys)
    elif kind == "Join" and is_stateful(node):
        left, right = children_of(node)
        missing = {"LeftOuter": [right], "RightOuter": [left], "FullOuter": [left, right]}
        for side in missing.get(str(node.joinType().toString()), ()):
            definitions.refuse(items(side.output()))


def _aggregates(expression: JavaObject) -> bool:
    return kind_of(expression) == "AggregateExpression" or any(map(_aggregates, children_of(expression)))


def _resolve_all(text: str, definitions: dict[str, str], depth: int = 0) -> str | None:
    """The text over the sources' columns alone; None where a column is not made in a way that can be read."""
    if depth > _DEPTH_AT_MOST or _PYTHON.search(text):
        return None
    parts = []
    at = 0
    for match in _ATTRIBUTE.finditer(text):
        made = definitions.get(match[2])
        if made is None or f"#{match[2]}" in made:
            return None
        inner = _resolve_all(made, definitions, depth + 1) if "#" in made else made
        if inner is None:
            return None
        parts += [text[at : match.start()], f"({inner})" if "#" in made else inner]
        at = match.end()
    return "".join([*parts, text[at:]])


def _describe(node: JavaObject, definitions: dict[str, str]) -> KeptState:
    def text(expression: JavaObject) -> str:
        return _resolve(str(expression.toString()), definitions)

    kind = kind_of(node)
    value: KeptState = {"operator": kind, "keys": [], "values": []}
    if kind == "Aggregate":
        value["keys"] = [text(one) for one in items(node.groupingExpressions())]
        # What a value is called is not part of the state.
        made = [one.child() if kind_of(one) == "Alias" else one for one in items(node.aggregateExpressions())]
        value["values"] = [text(one) for one in made]
    elif kind == "Join":
        condition = node.condition()
        value["keys"] = [text(condition.get())] if condition.isDefined() else []
        value["values"] = [str(node.joinType().toString())]
    elif kind.startswith("Deduplicate"):
        value["keys"] = [text(one) for one in items(node.keys())]
    elif kind == "FlatMapGroupsInPandasWithState":
        value["keys"] = [text(one) for one in items(node.groupingAttributes())]
        value["values"] = [str(node.stateType().catalogString()), str(node.timeout().toString())]
    return value


def _collect(node: JavaObject, definitions: dict[str, str]) -> None:
    """The expression of each column below an operator, down to the sources."""
    if is_metric(node, "source:") or is_metric(node, "static:"):
        source = str(node.name()).partition(":")[2]
        for attribute in items(node.output()):
            definitions.setdefault(_id(attribute), f"{source}.{attribute.name()}")
        return
    kind = kind_of(node)
    if isinstance(definitions, _OfOneRecord):
        _refuse_of_others(node, kind, definitions)
    if kind == "Union":
        _collect_union(node, definitions)
        return
    for attribute, made in _define(node, kind):
        definitions.setdefault(_id(attribute), made)
    for child in children_of(node):
        _collect(child, definitions)


def _define(node: JavaObject, kind: str) -> Iterator[tuple[JavaObject, str]]:
    """(column, what it is made of) for the columns that an operator makes."""
    if kind in ("Project", "Aggregate"):
        for expression in items(node.projectList() if kind == "Project" else node.aggregateExpressions()):
            if kind_of(expression) == "Alias":
                yield expression, str(expression.child().toString())
    elif kind == "Generate":
        for attribute in items(node.generatorOutput()):
            yield attribute, str(node.generator().toString())
    elif kind == "Expand":
        for number, attribute in enumerate(items(node.output())):
            made = [str(row.apply(number).toString()) for row in items(node.projections())]
            yield attribute, " | ".join(dict.fromkeys(made))


def _collect_union(node: JavaObject, definitions: dict[str, str]) -> None:
    """The columns of a union go by the identities of its first side; what they are made of is all sides."""
    sides = children_of(node)
    for side in sides:
        _collect(side, definitions)
    outputs = [items(side.output()) for side in sides]
    if isinstance(definitions, _OfOneRecord):
        for column, *sides_columns in zip(items(node.output()), *outputs, strict=True):
            found = [_resolve_all(str(one.toString()), definitions) for one in sides_columns]
            whole = [text for text in found if text is not None]
            definitions[_id(column)] = (
                " | ".join(dict.fromkeys(whole)) if len(whole) == len(found) else f"#{_id(column)}"
            )
        return
    made = [[_resolve(str(column.toString()), definitions) for column in side] for side in outputs]
    for column, texts in zip(items(node.output()), zip(*made, strict=True), strict=True):
        definitions[_id(column)] = " | ".join(dict.fromkeys(texts))


def _id(expression: JavaObject) -> str:
    return str(expression.exprId().id())


def _resolve(text: str, definitions: dict[str, str], depth: int = 0) -> str:
    def replace(match: re.Match[str]) -> str:
        made = definitions.get(match[2])
        if made is None or depth > _DEPTH_AT_MOST or f"#{match[2]}" in made:
            return made or match[1]
        return f"({_resolve(made, definitions, depth + 1)})" if "#" in made else made

    return re.sub(r"#\d+L?(-T\d+ms)?", "", _ATTRIBUTE.sub(replace, text))
