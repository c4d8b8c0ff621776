"""Health check of a service with a web page: python answers.py URL [TEXT]

Exit code 0 when the page is there and holds TEXT; else 1, and a line that says why. The standard library alone: it is
run every few seconds.
"""

from __future__ import annotations

import sys
import urllib.request

TIMEOUT_SECONDS = 5


def find_fault(url: str, text: str) -> str | None:
    """What is wrong with the page at ``url``; None: nothing, it is there and holds ``text``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy between a service and itself
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            page = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return None if text in page else f"{url} does not say {text!r}: {page[:300]}"


if __name__ == "__main__":
    fault = find_fault(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    if fault is not None:
        print(fault)
    sys.exit(fault is not None)
