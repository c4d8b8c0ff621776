"""Run the model for a time (of CPU, so that a busy machine looks as far), from a seed.

    python -m tests.model.hunt [--seconds 60] [--seed 1] [--without edit,retain] [--shrink]

Prints how many steps were run, and the first thing that must not be: with --shrink the shortest way to it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Pipeline

_EXAMPLES_AT_ONCE = 50


@dataclass(frozen=True)
class Hunt:
    """What was run, and what was found (None: nothing)."""

    seeds: int
    last_seed: int
    steps: int
    calls: int
    seconds: float
    found: str | None


def hunt(seconds: float, first_seed: int, *, without: frozenset[str] = frozenset(), shrink: bool = False) -> Hunt:
    """Run examples, seed after seed, until something is found or the time is over."""
    Pipeline.without, Pipeline.steps_run, Pipeline.calls_run = without, 0, 0
    began, number = time.process_time(), first_seed
    while True:
        found = _run_seed(number, shrink=shrink)
        spent = time.process_time() - began
        if found is not None or spent > seconds:
            return Hunt(number - first_seed + 1, number, Pipeline.steps_run, Pipeline.calls_run, spent, found)
        number += 1


def _run_seed(number: int, *, shrink: bool) -> str | None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @seed(number)
    class Seeded(Pipeline):
        pass

    chosen = settings(
        max_examples=_EXAMPLES_AT_ONCE,
        stateful_step_count=15,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal,
        suppress_health_check=list(HealthCheck),
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run_state_machine_as_test(Seeded, settings=chosen)
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        return f"{notes}\n{type(error).__name__}: {error}"
    return None


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.hunt")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", default="")
    parser.add_argument("--shrink", action="store_true")
    chosen = parser.parse_args(arguments)
    result = hunt(
        chosen.seconds, chosen.seed, without=frozenset(chosen.without.split(",")) - {""}, shrink=chosen.shrink
    )
    if result.found is not None:
        print(result.found)
    print(
        f"{result.steps:,} steps, {result.calls:,} storage calls, seeds {chosen.seed} to {result.last_seed}, "
        f"{result.seconds:.0f} s of CPU: {'found something' if result.found else 'nothing found'}"
    )
    return 1 if result.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
