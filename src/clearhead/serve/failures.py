"""Every refusal and failure as OpenAI's clients know it: a status, and one sentence in a small document."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from clearhead.errors import ClearheadError

logger = logging.getLogger("clearhead.serve")

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
SENTENCES = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address answers another method; /openapi.json lists what there is",
}
GONE = 499  # the client has hung up: nobody reads this, but the metrics count it


class Refused(ClearheadError):  # noqa: N818 - it is an answer, and not always to a mistake
    """A request that is not answered, and the status that says so."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.headers = status, code, dict(headers or {})

    def response(self) -> JSONResponse:
        """What the client gets."""
        return JSONResponse(document(self.status, str(self), self.code), self.status, self.headers)


class Problem(BaseModel):
    """What went wrong, in one sentence."""

    message: str = Field(examples=["there is no model called en-fr; did you mean en-es?"])
    type: str = Field(examples=["not_found_error"])
    code: str = Field(examples=["model_not_found"])
    param: str | None = None


class Failure(BaseModel):
    """The document of every answer that is not a success."""

    error: Problem


FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request cannot be answered; the sentence says why."},
    "5XX": {"model": Failure, "description": "The service stops, is too slow, or failed."},
}


def document(status: int, message: str, code: str) -> dict[str, Any]:
    """One sentence, in OpenAI's shape."""
    usual = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": TYPES.get(status, usual), "code": code, "param": None}}


def refusal(problem: Exception) -> Refused:
    """The refusal that stands for a problem; one that is no user's mistake is written to the log."""
    if isinstance(problem, Refused):
        return problem
    if isinstance(problem, ClearheadError):
        return Refused(400, "invalid_value", str(problem))
    logger.error("a request failed", exc_info=problem)
    return Refused(500, "failure", "the service failed to answer this request; its log says more")


def install(app: FastAPI) -> None:
    """Answer every exception with a refusal."""

    @app.exception_handler(ClearheadError)
    async def _mistake(_: Request, problem: ClearheadError) -> JSONResponse:
        return refusal(problem).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, problem: RequestValidationError) -> JSONResponse:
        return Refused(400, "invalid_value", _sentence(problem)).response()

    @app.exception_handler(HTTPException)
    async def _http(_: Request, problem: HTTPException) -> JSONResponse:
        sentence = SENTENCES.get(problem.status_code, "the request cannot be read: its body is not what it should be")
        return Refused(problem.status_code, "invalid_request", sentence, problem.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(Exception)
    async def _bug(_: Request, problem: Exception) -> JSONResponse:
        return refusal(problem).response()


def _sentence(problem: RequestValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = problem.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    said = str(first["msg"])
    return f"{place}: {said[:1].lower()}{said[1:]}".encode(errors="replace").decode()
