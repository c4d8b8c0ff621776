"""``python -m benchmarks [CASE ...]``: the same as ``python benchmarks/run.py``."""

from benchmarks.run import main

raise SystemExit(main())
