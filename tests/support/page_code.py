"""The code that a page of the docs shows, to be run as it is there."""

from __future__ import annotations

from tests.support.page_outputs import REPOSITORY, list_blocks

SINKS = "docs/how-to/feed-further-sinks.md"


def read_code(page: str, holds: str) -> str:
    """The one block of Python of a page that has this in it."""
    blocks = (block for block in list_blocks(REPOSITORY / page) if block.language == "python")
    (found,) = (block.text for block in blocks if holds in block.text)
    return found
