"""A close look at JSON records: keys that the schema lacks or that are there twice, and values that Spark would change.

It costs several parses of a record. So each record first meets one regular expression made from the schema
(:func:`doubt`): known keys alone, at every depth, with values that are held exactly beyond doubt. What does not
match is looked at, on its tokens: the record with every number put in quotes, behind a mark, and read as texts. Spark
has no other way to the digits of a number as they were written.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial

from tidegate.sources.values.exact_values import (
    CHECKED,
    Separators,
    describe_inexact,
    literal,
    plain_pattern,
    trie_pattern,
)
from tidegate.spec.ddl_tree import Node

_ORDERED_AT_MOST = 100
_NUMBER_MARK, _LONE_MARK = "\ufdd0", "\ufdd1"  # no text holds these: they are not characters
_BLANK = r"[ \t\r\n]*+"
_ESCAPE = r"\\(?:[\"\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})"
_PLAIN_TEXT = rf'"[^"\\\x00-\x1f]*+(?:{_ESCAPE}[^"\\\x00-\x1f]*+)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_LONE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_ENTRIES = "ARRAY<STRUCT<path: STRING, fault: STRING>>"
PERMISSIVE = "map('mode', 'PERMISSIVE')"

TWICE = "this key is there twice"
LONE = "half of a surrogate pair, which is not a character"
REWRITTEN = "a number that STRING would not keep as it is written: write it in quotes"
INSIDE = "a number inside that STRING would not keep"


def doubt(root: Node, value: str, options: Mapping[str, str], separators: Separators) -> str:
    """SQL: 0 where ``value`` is beyond doubt: no key is unknown or there twice, and no value is inexact. 1 where it is
    but for unknown keys at the top, 2 where only a close look can tell."""

    def matches(*, ordered: bool, others: bool = False) -> str:
        pattern = rf"\A{_BLANK}{_object(root, options, separators, ordered, others)}{_BLANK}\z"
        return f"{value} RLIKE {literal(pattern)}"

    # A key cannot come twice when keys stand in the order of the schema, but in a map it can. Then parse_json tells,
    # which refuses such records.
    single = f"try_parse_json({value}) IS NOT NULL"
    plain = f"({matches(ordered=False)} AND {single})"
    nodes = list(root.walk())
    # Each optional field is a level of the pattern's recursion.
    if len(nodes) <= _ORDERED_AT_MOST and not any(node.kind == "map" for node in nodes):
        plain = f"({matches(ordered=True)} OR {plain})"
    with_others = f"{matches(ordered=False, others=True)} AND {single}"
    return f"CASE WHEN {plain} THEN 0 WHEN {with_others} THEN 1 ELSE 2 END"


def unknown_at_top(root: Node, value: str) -> str:
    """SQL: ARRAY<STRUCT<path, fault>> of the keys at the top that the schema lacks."""
    known = f"array({', '.join(literal(name) for name, _ in root.fields)})"
    keys = f"array_except(json_object_keys({value}), {known})"
    return f"transform({keys}, k -> struct(k AS path, CAST(NULL AS STRING) AS fault))"


def keep_numbers(root: Node, value: str, doubtful: str) -> str:
    """SQL: the text to parse, with numbers that belong in STRING columns put in quotes: Spark would write them
    differently, from a double."""
    names = _kept_names(root)
    if not names:
        return value
    pattern = rf'(?<!\\)"({trie_pattern(names)})"({_BLANK}:{_BLANK})({_NUMBER})(?={_BLANK}[,}}])'
    quoted = f'regexp_replace({value}, {literal(pattern)}, \'"$1"$2"$3"\')'
    return f"CASE WHEN NOT {doubtful} OR {_cannot_keep(root, value)} THEN {value} ELSE {quoted} END"


def look_closely(root: Node, value: str, options: Mapping[str, str], separators: Separators, *, exact: bool) -> str:
    """SQL: ARRAY<STRUCT<path, fault>> of what a record has that the schema lacks (fault NULL) or that cannot be held;
    faults only when ``exact``. For records that were parsed."""
    look = _Look(root, value, options, separators, exact=exact)
    return look.build()


def pick_unknown(root: Node, value: str, options: Mapping[str, str]) -> str:
    """SQL: VARIANT of what the schema lacks, each field where it stood; NULL when there is nothing."""
    numbers = itertools.count()

    def bind(expression: str, use: Callable[[str], str]) -> str:
        one = f"r{next(numbers)}"
        return f"transform(array({expression}), {one} -> {use(one)})[0]"

    def of_fields(node: Node, fields: str) -> str:
        known = f"array({', '.join(literal(name) for name, _ in node.fields)})"
        one, two = f"r{next(numbers)}", f"r{next(numbers)}"
        maps = [f"map_filter({fields}, ({one}, {two}) -> NOT array_contains({known}, {one}))"]
        for name, inner in node.fields:
            if any(part.kind == "struct" for part in inner.walk()):
                found = of_value(inner, f"{fields}[{literal(name)}]")
                one, two = f"r{next(numbers)}", f"r{next(numbers)}"
                maps.append(f"map_filter(map({literal(name)}, {found}), ({one}, {two}) -> {two} IS NOT NULL)")
        joined = f"map_concat({', '.join(maps)})" if len(maps) > 1 else maps[0]
        return bind(joined, lambda m: f"CASE WHEN size({m}) > 0 THEN parse_json(to_json({m})) END")

    def of_value(node: Node, found: str) -> str:
        if node.kind == "struct":
            return bind(f"try_variant_get({found}, '$', 'map<string,variant>')", lambda m: of_fields(node, m))
        item = node.fields[0][1] if node.fields else None
        if item is None:
            return "CAST(NULL AS VARIANT)"
        one, two, three = (f"r{next(numbers)}" for _ in range(3))
        if node.kind == "array":
            items = f"transform(try_variant_get({found}, '$', 'array<variant>'), {one} -> {of_value(item, one)})"
            return bind(
                items, lambda a: f"CASE WHEN exists({a}, {two} -> {two} IS NOT NULL) THEN parse_json(to_json({a})) END"
            )
        values = f"transform_values(try_variant_get({found}, '$', 'map<string,variant>'), ({one}, {two}) -> "
        values += f"{of_value(item, two)})"
        kept = f"map_filter({values}, ({one}, {three}) -> {three} IS NOT NULL)"
        return bind(kept, lambda m: f"CASE WHEN size({m}) > 0 THEN parse_json(to_json({m})) END")

    parser = f"map({', '.join(literal(part) for pair in options.items() for part in pair)})"
    whole = f"from_json({value}, 'map<string,variant>', {parser if options else PERMISSIVE})"
    return bind(whole, lambda m: of_fields(root, m))


class _Look:
    """Builds the expression; each lambda has a variable of its own."""

    def __init__(
        self, root: Node, value: str, options: Mapping[str, str], separators: Separators, *, exact: bool
    ) -> None:
        self._root, self._value, self._options, self._separators = root, value, options, separators
        # With allow... options a record may have other quotes and comments, and numbers cannot be distinguished from
        # texts.
        self._strict = not any(name.startswith("allow") for name in options)
        self._exact = exact
        self._kept = set(_kept_names(root))
        self._numbers = itertools.count()
        self._parser = f"map({', '.join(literal(part) for pair in options.items() for part in pair)})"
        if not options:
            self._parser = PERMISSIVE

    def build(self) -> str:
        if not (self._exact and self._strict):
            return self._bind(self._value, lambda text: self._struct(self._root, text, "''"))
        # `\\` is a backslash; written as \u005c it cannot be taken for the beginning of another escape.
        escapes = f"replace({self._value}, {literal(chr(92) * 2)}, {literal(chr(92) + 'u005c')})"
        marked = f"regexp_replace({escapes}, {literal(_LONE)}, '{_LONE_MARK}')"
        # Spark also reads texts in single quotes.
        skipped = r"""(?:[^"'0-9\-]++|-(?![0-9])|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')*+"""
        numbers = literal(rf"\G({skipped})(-?[0-9][0-9.eE+\-]*+)")
        marked = f"regexp_replace({marked}, {numbers}, '$1\"{_NUMBER_MARK}$2\"')"
        lone = f"array(struct('' AS path, {literal(LONE)} AS fault))"

        def whole(text: str) -> str:
            entries = self._struct(self._root, text, "''")
            return self._bind(
                entries,
                lambda found: (
                    f"CASE WHEN contains({text}, '{_LONE_MARK}') AND NOT exists({found}, "
                    f"e -> e.fault = {literal(LONE)}) THEN concat({found}, {lone}) ELSE {found} END"
                ),
            )

        return self._bind(marked, whole)

    def _entries(self, node: Node, text: str, path: str, name: str) -> str | None:
        """What is wrong inside ``text``, a token of type ``node``; None when there is nothing to look for."""
        if node.kind == "struct":
            return self._struct(node, text, f"concat({path}, '.')")
        if node.kind == "array":
            return self._each(
                node.fields[0][1], f"from_json({text}, 'array<string>', {self._parser})", path, "[]", name
            )
        if node.kind == "map":
            values = f"map_values(from_json({text}, 'map<string,string>', {self._parser}))"
            inside = self._each(node.fields[0][1], values, path, "{}", name)
            twice = self._bind(
                f"json_object_keys({text})",
                lambda keys: (
                    f"CASE WHEN size({keys}) > size(array_distinct({keys})) "
                    f"THEN array(struct({path} AS path, {literal(TWICE)} AS fault)) ELSE {_empty()} END"
                ),
            )
            if not self._exact:
                return inside
            return f"concat({twice}, {inside})" if inside else twice
        fault = self._fault(node, text, name)
        if fault is None:
            return None
        return self._bind(
            fault,
            lambda why: (
                f"CASE WHEN {why} IS NULL THEN {_empty()} ELSE array(struct({path} AS path, {why} AS fault)) END"
            ),
        )

    def _each(self, item: Node, items: str, path: str, step: str, name: str) -> str | None:
        one = self._variable()
        inside = self._entries(item, one, f"concat({path}, '{step}')", name)
        return None if inside is None else f"coalesce(flatten(transform({items}, {one} -> {inside})), {_empty()})"

    def _struct(self, node: Node, text: str, path: str) -> str:
        """``path`` is what comes before the names of the fields."""

        def with_keys(keys: str) -> str:
            return self._bind(
                f"from_json({text}, 'map<string,string>', {self._parser})",
                lambda fields: self._bind(
                    f"coalesce({keys}, map_keys({fields}))", lambda found: self._fields(node, found, fields, path)
                ),
            )

        inside = self._bind(f"json_object_keys({text})", with_keys)
        return f"CASE WHEN {text} IS NULL THEN {_empty()} ELSE coalesce({inside}, {_empty()}) END"

    def _fields(self, node: Node, keys: str, fields: str, path: str) -> str:
        known = f"array({', '.join(literal(name) for name, _ in node.fields)})"
        one = self._variable()
        parts = [
            f"transform(array_except({keys}, {known}), {one} -> struct(concat({path}, {one}) AS path, "
            "CAST(NULL AS STRING) AS fault))"
        ]
        if self._exact:
            one, other = self._variable(), self._variable()
            parts.append(
                f"CASE WHEN size({keys}) > size(array_distinct({keys})) THEN transform(filter(array_distinct({keys}), "
                f"{one} -> size(filter({keys}, {other} -> {other} = {one})) > 1), "
                f"{one} -> struct(concat({path}, {one}) AS path, {literal(TWICE)} AS fault)) ELSE {_empty()} END"
            )
        alike: dict[tuple[str, bool], tuple[Node, list[str]]] = {}
        for name, inner in node.fields:
            if inner.fields:
                here = f"concat({path}, {literal(name)})"
                inside = self._bind_some(
                    f"{fields}[{literal(name)}]", partial(self._entries, inner, path=here, name=name)
                )
                if inside is not None:
                    parts.append(inside)
            else:
                alike.setdefault((inner.type, name in self._kept), (inner, []))[1].append(name)
        for leaf, names in alike.values():
            # One expression for all fields of a type: a thousand of them cost no larger plan than one.
            one, entry = self._variable(), self._variable()
            fault = self._bind_some(f"{fields}[{one}]", partial(self._fault, leaf, name=names[0]))
            if fault is not None:
                listed = f"array({', '.join(literal(name) for name in names)})"
                parts.append(
                    f"filter(transform({listed}, {one} -> struct(concat({path}, {one}) AS path, {fault} AS fault)), "
                    f"{entry} -> {entry}.fault IS NOT NULL)"
                )
        return f"concat({', '.join(parts)})"

    def _fault(self, node: Node, text: str, name: str) -> str | None:
        """Why the token cannot be held exactly, else NULL."""
        if not (self._exact and self._strict):
            return None
        number = f"substr({text}, 2)"
        is_number = f"startswith({text}, '{_NUMBER_MARK}')"
        if node.kind == "string":
            return (
                f"CASE WHEN contains({text}, '{_LONE_MARK}') THEN {literal(LONE)} "
                f"WHEN {is_number} AND {self._is_rewritten(name)} AND ({_changes_text(number)}) "
                f"THEN {literal(REWRITTEN)} "
                f"WHEN {text} RLIKE '^[{{\\\\[]' AND {self._changes_inside(text)} THEN {literal(INSIDE)} END"
            )
        if node.kind not in CHECKED:
            return None
        told = describe_inexact(node, f"trim(LEADING '{_NUMBER_MARK}' FROM {text})", self._options, self._separators)
        if told is None:
            return None
        if node.kind == "decimal":
            # A locale speaks of texts; a number of JSON has a point.
            bare = describe_inexact(node, number, self._options, Separators())
            told = f"CASE WHEN {is_number} THEN {bare} ELSE {told} END"
        elif node.kind in ("float", "double"):
            told = f"CASE WHEN {is_number} THEN {told} END"  # texts are NaN and the infinities
        else:
            told = f"CASE WHEN NOT {is_number} THEN {told} END"
        return f"CASE WHEN {text} IS NOT NULL THEN {told} END"

    def _is_rewritten(self, name: str) -> str:
        """Whether Spark, and not the record, gives the digits: see :func:`keep_numbers`."""
        return _cannot_keep(self._root, self._value) if name in self._kept else "true"

    def _changes_inside(self, text: str) -> str:
        one = self._variable()
        numbers = f'regexp_extract_all({text}, \'"{_NUMBER_MARK}([^"]*)"\', 1)'
        return f"exists({numbers}, {one} -> {_changes_value(one)})"

    def _bind(self, value: str, use: Callable[[str], str]) -> str:
        """``use`` of a variable that holds ``value``: computed once, and only when it is needed."""
        one = self._variable()
        return f"transform(array({value}), {one} -> {use(one)})[0]"

    def _bind_some(self, value: str, use: Callable[[str], str | None]) -> str | None:
        """The same; None where ``use`` finds nothing to do."""
        one = self._variable()
        inside = use(one)
        return None if inside is None else f"transform(array({value}), {one} -> {inside})[0]"

    def _variable(self) -> str:
        return f"x{next(self._numbers)}"


def _object(node: Node, options: Mapping[str, str], separators: Separators, ordered: bool, others: bool = False) -> str:
    end = rf"{_BLANK}(?:,{_BLANK}|(?=\}}))"
    by_value: dict[str, list[str]] = {}
    for number, (name, inner) in enumerate(node.fields):
        value = _value(inner, options, separators, ordered)
        by_value.setdefault(f"{number if ordered else ''}|{value}", []).append(_raw(name))
    fields = [
        f'"{trie_pattern(names)}"{_BLANK}:{_BLANK}(?:null|{key.partition("|")[2]})' for key, names in by_value.items()
    ]
    if others:
        known = trie_pattern([_raw(name) for name, _ in node.fields])
        fields.append(rf'"(?!{known}")[^"\\]*+"{_BLANK}:{_BLANK}(?:{_PLAIN_TEXT}|[0-9a-zA-Z.+-]++|{_container(3)})')
    inside = "".join(f"(?:{field}{end})?+" for field in fields) if ordered else f"(?:(?:{'|'.join(fields)}){end})*+"
    return rf"\{{{_BLANK}{inside}\}}"


def _container(depth: int) -> str:
    """An object or array of whatever, with so many levels."""
    inner = f"|{_container(depth - 1)}" if depth > 1 else ""
    return rf'[{{\[](?:[^"{{}}\[\]]++|{_PLAIN_TEXT}{inner})*+[}}\]]'


def _value(node: Node, options: Mapping[str, str], separators: Separators, ordered: bool) -> str:
    if node.kind == "struct":
        return _object(node, options, separators, ordered)
    if node.kind == "array":
        item = _value(node.fields[0][1], options, separators, ordered)
        return rf"\[{_BLANK}(?:(?:null|{item}){_BLANK}(?:,{_BLANK}|(?=\])))*+\]"
    if node.kind == "map":
        item = _value(node.fields[0][1], options, separators, ordered)
        return rf"\{{{_BLANK}(?:{_PLAIN_TEXT}{_BLANK}:{_BLANK}(?:null|{item}){_BLANK}(?:,{_BLANK}|(?=\}})))*+\}}"
    if node.kind == "boolean":
        return "true|false"
    if node.kind in ("tinyint", "smallint", "int", "bigint"):
        return "-?[0-9]++"
    if node.kind == "string":
        return rf"{_PLAIN_TEXT}|(?!-0)-?[0-9]++(?![.eE])|true|false"
    pattern = plain_pattern(node, options, separators if node.kind == "decimal" else Separators())
    if pattern is None:
        return f"{_PLAIN_TEXT}|-?[0-9]++(?![.eE])"
    if node.kind == "decimal" and separators == Separators():
        return f'{pattern}|"{pattern}"'
    if node.kind in ("decimal", "float", "double"):
        return rf"{pattern}(?![.eE0-9])"
    return f'"{pattern}"|-?[0-9]{{1,11}}+'


def _raw(name: str) -> str:
    """A key as records mostly write it; one that is written otherwise is looked at closely."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _kept_names(root: Node) -> list[str]:
    """Names of STRING fields that are nothing else anywhere: a pattern cannot tell one depth from another. None where a
    map that is not a field has other values than texts: its keys may be any."""
    maps = [node for node in root.walk() if _has_other_keys(node)]
    fields = [inner for node in root.walk() if node.kind == "struct" for _, inner in node.fields]
    if any(not any(one is field for field in fields) for one in maps):
        return []
    kinds: dict[str, set[str]] = {}

    def note(node: Node) -> None:
        for name, inner in node.fields:
            if name:
                kinds.setdefault(name, set()).add(inner.kind)
            note(inner)

    note(root)
    return [_raw(name) for name, found in kinds.items() if found == {"string"} and _raw(name) == name]


def _has_other_keys(node: Node) -> bool:
    """Whether it is a map whose values would not fit any more in quotes."""
    return node.kind == "map" and not node.fields[0][1].fields and node.fields[0][1].kind != "string"


def _cannot_keep(root: Node, value: str) -> str:
    """SQL: whether numbers are left as they are: an object or array stands where a STRING is declared, and its keys may
    be any, or a key is not written as the schema has it (in single quotes, with an escape), or a map has one of the
    names as a key."""
    direct: list[str] = []
    listed: list[str] = []

    def note(node: Node) -> None:
        for name, inner in node.fields:
            if inner.kind == "string" and name:
                direct.append(_raw(name))
            elif name and any(leaf.kind == "string" for leaf in inner.leaves()) and inner.kind != "struct":
                listed.append(_raw(name))
            note(inner)

    note(root)
    found = [rf'"{trie_pattern(direct)}"{_BLANK}:{_BLANK}[{{\[]'] if direct else []
    if listed:
        inside = r'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+[{\[]'
        found.append(rf'"{trie_pattern(listed)}"{_BLANK}:{_BLANK}[{{\[]{inside}')
    maps = [name for node in root.walk() if node.kind == "struct" for name, one in node.fields if _has_other_keys(one)]
    if maps and (kept := _kept_names(root)):
        key = rf'"{trie_pattern(kept)}"{_BLANK}:'
        before = rf'(?:[^"{{}}]++|"(?!{key[1:]})(?:[^"\\]++|\\.)*+")*+'
        found.append(rf'"{trie_pattern([_raw(name) for name in maps])}"{_BLANK}:{_BLANK}\{{{before}{key}')
    found.append(rf"'{_BLANK}:|\\u[0-9a-fA-F]{{4}}[^\"]*+\"{_BLANK}:")
    return f"{value} RLIKE {literal('|'.join(found))}"


def _changes_text(number: str) -> str:
    return f"{number} = '-0' OR ({number} RLIKE '[.eE]' AND CAST(try_cast({number} AS DOUBLE) AS STRING) != {number})"


def _changes_value(number: str) -> str:
    """Whether a double has another value than the number that is written."""
    double = f"try_cast({number} AS DOUBLE)"
    digits = f"length(regexp_replace(regexp_replace({number}, '[eE].*|[-.]', ''), '^0+|0+$', ''))"
    lost = f"abs({double}) = CAST('Infinity' AS DOUBLE) OR ({double} = 0 AND {number} RLIKE '^-?[0.]*[1-9]')"
    same = f"try_cast({number} AS DECIMAL(38,20)) = try_cast({double} AS DECIMAL(38,20))"
    return f"{number} RLIKE '[.eE]' AND ({lost} OR ({digits} > 15 AND NOT coalesce({same}, {digits} <= 17)))"


def _empty() -> str:
    return f"CAST(array() AS {_ENTRIES})"
