"""Every error is a condition of a room, and every call gives exactly the values that its texts need.

A missing value would be a KeyError in the place of the error, at the moment when somebody needs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tidegate.core import errors
from tidegate.core.errors import Condition, TidegateError
from tidegate.spec import errors as spec_errors
from tools.docs.errors import list_conditions

SOURCES = Path(errors.__file__).parents[1]
KINDS = {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TidegateError)}


@cache
def _parse_sources() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCES)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCES.rglob("*.py"))
    }


def _list_nodes() -> Iterator[tuple[str, ast.AST]]:
    for path, tree in _parse_sources().items():
        for node in ast.walk(tree):
            yield path, node


def _find_calls() -> Iterator[tuple[str, list[str], ast.Call]]:
    """(place, names of the conditions, call). A condition that is chosen first, ``entry = A if ... else B``,
    is called by that name in the same function."""
    for path, tree in _parse_sources().items():
        for function in ast.walk(tree):
            chosen: dict[str, list[str]] = {}
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Assign) and (names := _entries_in(node.value)):
                        chosen[ast.unparse(node.targets[0])] = names
            elif not isinstance(function, ast.Module):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    place = f"{path}:{node.lineno}"
                    called = _entries_in(node.func) or chosen.get(ast.unparse(node.func), [])
                    if called:
                        yield place, called, node


def _entries_in(node: ast.expr) -> list[str]:
    """The conditions that an expression names: one, or both of a choice."""
    if isinstance(node, ast.IfExp):
        return _entries_in(node.body) + _entries_in(node.orelse)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id.endswith("errors"):
        return [node.attr] if node.attr in list_conditions() else []
    return []


def test_every_call_gives_the_fields_of_its_condition():
    entries, wrong = list_conditions(), []
    for place, names, call in _find_calls():
        given = {keyword.arg for keyword in call.keywords} - {"where"}
        wrong += [
            f"{place}: {name} has {sorted(entries[name].fields)}, given are {sorted(map(str, given))}"
            for name in names
            if given != entries[name].fields or call.args
        ]
    assert wrong == []


def test_every_condition_is_used():
    used = {node.attr for _, node in _list_nodes() if isinstance(node, ast.Attribute)}
    assert set(list_conditions()) - used == set()


def test_no_error_is_made_without_a_condition():
    """Only an error that another one becomes, with its own code, is made by hand."""
    made = [
        f"{path}:{node.lineno}: {ast.unparse(node.args[0])}"
        for path, node in _list_nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in KINDS
        and node.args
        and not ast.unparse(node.args[0]).endswith(".code")
    ]
    assert made == []


@pytest.mark.parametrize("name", list_conditions())
def test_a_condition_is_named_and_worded(name):
    entry = list_conditions()[name]
    assert entry.code.isupper() and name.isupper()
    codes = {one.code for one in list_conditions().values()}
    assert name == entry.code or name not in codes, "a condition that has the name of a code has that code"
    for text in (entry.message, entry.next_run, entry.fix):
        assert text == text.strip() and "\n" not in text


def test_faults_of_files_are_those_that_the_sources_name():
    named = {node.value for _, node in _list_nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert set(spec_errors.FILE_FAULTS) - named == set()


def test_values_are_filled_in():
    entry = Condition("TOO_MANY", errors.UsageError, "{name!r} has {number:,}", next_run="fails", fix="remove {name}")
    assert entry.fields == {"name", "number"}
    error = entry(where="here", name="a", number=1234)
    assert isinstance(error, errors.UsageError)
    text = "TOO_MANY: 'a' has 1,234\n  where: here\n  next run: fails\n  fix: remove a"
    assert (error.code, str(error)) == ("TOO_MANY", text)
