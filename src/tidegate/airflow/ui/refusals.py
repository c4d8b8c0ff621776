"""Errors of tidegate as HTTP answers: a page for a browser, else JSON; never a traceback."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from tidegate.airflow.ui.render import render, render_json
from tidegate.core.errors import DefectError, TidegateError, TryAgainError, UsageError

_STATUSES = ((UsageError, 400), (TryAgainError, 503), (DefectError, 500))
"""The status for a kind of error; 409 for any other."""


class Refused(Exception):
    """A request is refused: the error, and the status of the answer."""

    def __init__(self, error: TidegateError, status: int) -> None:
        super().__init__(str(error))
        self.error, self.status = error, status

    @staticmethod
    def of(error: TidegateError) -> Refused:
        """The refusal with the status for the kind of error."""
        return Refused(error, next((status for kind, status in _STATUSES if isinstance(error, kind)), 409))


def wants_page(request: Request) -> bool:
    """Whether the request came from a browser."""
    return "text/html" in request.headers.get("accept", "")


async def answer_refusal(request: Request, error: Exception) -> Response:
    """The answer to a request that is refused."""
    assert isinstance(error, Refused)
    value = error.error.to_dict()
    if wants_page(request):
        context = {"error": value, "dag_id": request.path_params.get("dag_id")}
        return render(request, "actions/refused.html", context, error.status)
    return render_json({"error": value}, error.status)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer when the project or a pipeline cannot be read."""
    assert isinstance(error, TidegateError)
    return await answer_refusal(request, Refused.of(error))
