"""Files of a batch as the stager writes them into its manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate.sources.files.ledger import Ledger


def take_stats(intake: Path, links: Sequence[str]) -> dict[str, tuple[int, int]]:
    """{link: (size, mtime_ns)} of the files behind the links."""
    stats = {link: os.stat(intake / link) for link in links}
    return {link: (stat.st_size, stat.st_mtime_ns) for link, stat in stats.items()}


def taken_files(ledger: Ledger, stats: dict[str, tuple[int, int]], source: str = "trades") -> list[dict[str, Any]]:
    """What :meth:`Ledger.mark_staged` wants for these links."""
    paths = {row.link: row.path for row in ledger.rows(source, links=list(stats))}
    return [
        {"path": paths[link], "size": size, "mtime_ns": mtime_ns, "link": link}
        for link, (size, mtime_ns) in stats.items()
    ]
