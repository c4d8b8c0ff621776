"""What scenes of work beside the runs share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.model.processes import Process
from tidegate.errors import TidegateError
from tidegate.gate import increment

D1, D2 = "2026-01-01", "2026-01-02"


def done(process: Process) -> Any:
    assert process.error is None, repr(process.error)
    return process.value


def refuse_all(patch: pytest.MonkeyPatch) -> None:
    judge = increment._judge
    patch.setattr(increment, "_judge", lambda *a: [replace(one, success=False) for one in judge(*a)])


def code_of(process: Process) -> str | None:
    return process.error.code if isinstance(process.error, TidegateError) else None
