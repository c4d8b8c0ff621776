"""``transform.py`` and ``transform.sql`` without Spark: where it is, which arguments it takes.

The Python file is parsed, never run, so looking at a project starts nothing and trusts nothing.
"""

from __future__ import annotations

import ast
import re

from tidegate.core import storage
from tidegate.spec.faults import Fault, SpecError, name_nearest
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project

FUNCTION = "transform"
CONTEXT = "context"


def read_transform(project: Project, spec: PipelineSpec) -> tuple[str, list[Fault]]:
    """The text of the transform, empty where rows pass unchanged, and what is wrong with its file."""
    if spec.transform is None:
        return "", []
    path = project.paths(spec.name).job / spec.transform
    file = f"jobs/{spec.name}/{spec.transform}"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        fix = "create it, or remove `transform:` to let rows pass unchanged"
        return "", [_fault(file, None, "the file is not there", fix)]
    except UnicodeDecodeError:
        return "", [_fault(file, None, "the file is not UTF-8 text", "save it as UTF-8")]
    except OSError as error:
        if (failed := storage.name_failure(error, path)) is not None:
            raise failed from error
        return "", [_fault(file, None, f"the file cannot be read: {error.strerror}", "make it a readable file")]
    if path.suffix == ".sql":
        wrong = describe_unusable_sql(text)
        return text, [] if wrong is None else [_fault(file, *wrong)]
    return text, _check_python(file, text, list(spec.sources))


def check_transform(project: Project, spec: PipelineSpec) -> None:
    """Raise SpecError BAD_TRANSFORM, with every fault, unless the transform's file is there and fits the sources."""
    faults = read_transform(project, spec)[1]
    if faults:
        raise SpecError(faults, fix=f"correct the lines above, then: tidegate validate {spec.name}")


def _fault(file: str, line: int | None, message: str, fix: str) -> Fault:
    return Fault(file, line, "", message, fix, "BAD_TRANSFORM")


def _check_python(file: str, text: str, sources: list[str]) -> list[Fault]:
    try:
        tree = ast.parse(text, filename=file)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        return [_fault(file, line, f"not Python: {reason}", "correct the line")]
    wanted = f"def {FUNCTION}({', '.join(f'{name}: DataFrame' for name in sources)}) -> DataFrame:"
    functions = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == FUNCTION
    ]
    if not functions:
        return [_fault(file, None, f"the file defines no function named {FUNCTION}", f"write {wanted}")]
    return _check_signature(functions[-1], file, sources, wanted)


def _check_signature(
    function: ast.FunctionDef | ast.AsyncFunctionDef, file: str, sources: list[str], wanted: str
) -> list[Fault]:
    faults: list[Fault] = []

    def note(node: ast.AST, message: str, fix: str) -> None:
        faults.append(_fault(file, getattr(node, "lineno", function.lineno), message, fix))

    arguments = function.args
    if isinstance(function, ast.AsyncFunctionDef):
        note(function, f"{FUNCTION} is an async function", f"write {wanted}")
    elif any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _walk_own(function)):
        note(function, f"{FUNCTION} is a generator", "return one DataFrame")
    elif not any(isinstance(node, ast.Return) and node.value is not None for node in _walk_own(function)):
        note(function, f"{FUNCTION} returns nothing", "return a DataFrame")
    for argument in arguments.posonlyargs:
        note(argument, f"the argument {argument.arg!r} is positional only", "remove the / from the arguments")
    for variable in (arguments.vararg, arguments.kwarg):
        if variable is not None:
            note(variable, f"{FUNCTION} takes any arguments (*{variable.arg})", f"write {wanted}")
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = [argument.arg for argument in given]
    missing = [name for name in sources if name not in names]
    for argument in given:
        if argument.arg not in sources and argument.arg != CONTEXT:
            nearest = name_nearest(argument.arg, missing) or (missing[0] if len(missing) == 1 else None)
            fix = f"name it {nearest}" if nearest else f"the sources are: {', '.join(sources)}"
            note(argument, f"the argument {argument.arg!r} names no source of the pipeline", fix)
    for name in missing:
        note(function, f"the source {name!r} is not an argument of {FUNCTION}", f"write {wanted}")
    return faults


def _walk_own(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    """The nodes of the function itself, without those of functions and classes inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
    return found


_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<open_comment>/\*)
  | (?P<raw_text>[rR]'[^']*'|[rR]"[^"]*")
  | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
  | (?P<open_text>['"`])
  | (?P<word>\w+)
  | (?P<end>;)
  | (?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)


def describe_unusable_sql(text: str) -> tuple[int | None, str, str] | None:
    """None when ``text`` is one SELECT (or WITH ... SELECT); else (line, what is wrong, fix)."""
    first: str | None = None
    ended: int | None = None
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        line = text.count("\n", 0, match.start()) + 1
        if kind == "comment":
            continue
        if kind == "open_comment":
            return line, "a comment is not closed", "close it with */"
        if kind == "open_text":
            return line, f"a {match.group()} is not closed", "close it"
        if ended is not None and kind != "end":
            return line, "there is more than one statement", "keep one SELECT"
        if kind == "end":
            ended = line
        elif first is None:
            first = match.group()
            if first != "(" and first.upper() not in ("SELECT", "WITH"):
                return line, f"the statement begins with {first[:40]!r}", "write one SELECT over the source names"
    if first is None:
        return None, "the file has no statement", "write one SELECT over the source names"
    return None


_ESCAPE = re.compile(r"\\(?:[01][0-7]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|(.))", re.DOTALL)
_MEANT_FOR_A_PATTERN = re.compile(r"[A-Za-z1-9.\[\](){}*+?^$|&-]")
_MEANT_FOR_SPARK = "nrt"


def describe_lost_backslashes(project: Project, spec: PipelineSpec) -> list[str]:
    r"""Describe each string of ``transform.sql`` that loses a backslash when Spark reads it, as in ``'\S'``.

    Escapes that a string has on purpose (``\n``, ``\\``, ``\'``, ``\%``, ``\u0041``) are left out, and so are those
    that say the same without the backslash (``\/``).
    """
    if spec.transform is None or not spec.transform.endswith(".sql"):
        return []
    conf = {key: str(value).lower() for key, value in (project.spec.spark.conf | spec.spark.conf).items()}
    if conf.get("spark.sql.parser.escapedStringLiterals") == "true":
        return []
    identifiers = '`"' if conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == "true" else "`"
    text, notes = read_transform(project, spec)[0], []
    for match in _TOKEN.finditer(text):
        if match["text"] is None or match["text"][0] in identifiers:
            continue
        escapes = [one for one in _ESCAPE.findall(match["text"]) if _MEANT_FOR_A_PATTERN.fullmatch(one)]
        lost = [f"\\{one}" for one in dict.fromkeys(escapes) if one not in _MEANT_FOR_SPARK]
        if lost:
            line = text.count("\n", 0, match.start()) + 1
            shown = match["text"] if len(match["text"]) <= 60 else match["text"][:57] + "..."
            notes.append(
                f"jobs/{spec.name}/{spec.transform}:{line}: Spark does not keep the backslash of {', '.join(lost)} in "
                f"the string {shown}; write a raw string, r{match['text'][0]}...{match['text'][0]}, or \\{lost[0]}"
            )
    return notes
