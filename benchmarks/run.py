"""What runs cost, beside plain hand-written jobs that do the same work.

``make bench``, or ``python benchmarks/run.py [CASE ...]``. Each case runs in a fresh project in a temporary folder,
both sides in the same run, one at a time. The figures go to benchmarks/results.json and docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a script: `benchmarks` and `tools` are here

from benchmarks.cases import CASES, Size
from benchmarks.figures import read_results, show_results, write_results
from benchmarks.workbench import BenchmarkError, Workbench
from tidegate.spark.driver.jvm_archive import ensure_archive


def main(argv: list[str] | None = None) -> int:
    """Run the cases; 1 when one of them could not be measured."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all when none is given")
    parser.add_argument("--case", action="append", default=[], choices=CASES, help="the same, as an option")
    parser.add_argument("--repeats", type=int, default=3, help="of the small cases; a third of it of the heavy ones")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of heavy cases; not kept unless 1")
    parser.add_argument("--work", type=Path, help="where the temporary projects go")
    given = parser.parse_args(argv)
    names = [*given.cases, *given.case] or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (there are {', '.join(CASES)})")

    # Once for a Java and a Spark, whoever runs first: not a cost of the run that is measured.
    ensure_archive(say=lambda text: print(text, file=sys.stderr))
    failed = []
    for name in names:
        print(f"{name}: {CASES[name].__doc__}", file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=given.work) as folder:
                rows = CASES[name](Workbench(Path(folder)), Size(given.repeats, given.scale))
        except BenchmarkError as error:
            failed.append(name)
            print(f"{name}: not measured: {error}", file=sys.stderr, flush=True)
            continue
        results = read_results()
        results.cores = os.cpu_count() or 1
        results.cases = {
            case: rows if case == name else results.cases[case]
            for case in CASES
            if case == name or case in results.cases
        }
        if given.scale == 1.0:
            write_results(results)
        results.cases = {name: rows}
        print(show_results(results), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
