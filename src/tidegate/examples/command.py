"""What the data makers share: their command line, the checks of their numbers, and files that appear whole."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from random import Random

from tidegate.core.errors import TryAgainError
from tidegate.examples.outcome import FIRST_DAY, Outcome, dump
from tidegate.examples.truth import Fault, Truth

_OPTION = {"bootstrap_servers": "bootstrap"}
_HELP = {
    "out": "folder that receives the files",
    "static": "folder that receives the static table",
    "delivery": "number of the delivery, from 1",
    "partitions": "when a topic has to be created",
    "faults": "share of faulty records, 0 to 1",
    "start_id": "number of the first record",
    "days": "days over which the records are spread",
}


@dataclass(frozen=True)
class Draw:
    """How records are drawn: the same values give the same records.

    ``faults`` is the share of faulty records, 0 to 1; ``start_id`` is the number of the first record."""

    seed: int = 1
    faults: float = 0.01
    start_id: int = 1
    first_day: date = FIRST_DAY


USUAL = Draw()


def run_maker(make: Callable[..., Outcome | Truth], argv: list[str] | None = None, **defaults: object) -> int:
    """Run a maker as a command whose options are its parameters, and print what it returns as one JSON object.

    ``defaults`` replace those of the parameters. Returns the exit code.
    """
    prog, about = f"tidegate.examples.{make.__name__}", sys.modules[make.__module__].__doc__
    parser = argparse.ArgumentParser(prog=prog, description=about)
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    known = {"bootstrap_servers": servers, "delivery": 1, **defaults}
    options: dict[str, object] = {}
    draws = []
    for name, parameter in inspect.signature(make).parameters.items():
        if isinstance(parameter.default, Draw):
            options |= vars(parameter.default)
            draws.append(name)
        else:
            options[name] = known.get(name, parameter.default)
    for name, default in options.items():
        option = f"--{_OPTION.get(name, name).replace('_', '-')}"
        if default is inspect.Parameter.empty:
            parser.add_argument(option, dest=name, type=Path, required=True, help=_HELP.get(name))
        elif isinstance(default, tuple):
            parser.add_argument(option, dest=name, nargs=len(default), default=default, help=_HELP.get(name))
        else:
            read = date.fromisoformat if isinstance(default, date) else type(default)
            parser.add_argument(option, dest=name, type=read, default=default, help=_HELP.get(name))
    given = vars(parser.parse_args(argv))
    given |= {name: Draw(**{one.name: given.pop(one.name) for one in fields(Draw)}) for name in draws}
    try:
        made = make(**given)
    except TryAgainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    json.dump(made.to_dict(), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def check_numbers(faults: float, **numbers: tuple[int, int]) -> None:
    """Raise ValueError unless ``faults`` is a share and each of ``numbers`` (value, least) is large enough."""
    wrong = [f"{name} >= {least}, not {value}" for name, (value, least) in numbers.items() if value < least]
    if not 0 <= faults <= 1:
        wrong.append(f"0 <= faults <= 1, not {faults}")
    if wrong:
        raise ValueError(", ".join(wrong))


def spoil(line: str, fault: Fault, rng: Random) -> str:
    """The good ``line`` of JSON with a fault in it; without a change of the fault, it is cut off."""
    if fault.change is None:
        return line[: rng.randrange(1, len(line) - 1)]
    record = json.loads(line)
    fault.change(record, rng)
    return dump(record)


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Write ``lines`` to ``path``, under a hidden name first; it may replace a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    with open(beside, "w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(f"{line}\n" for line in lines)
    os.replace(beside, path)
