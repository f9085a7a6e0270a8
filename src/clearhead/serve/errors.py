"""Errors of a request in the form that OpenAI's clients know: an HTTP status and one sentence in a small JSON document.

{"error": {"message": "there is no model called 'en-fr'; did you mean en-es?", "type": …, "code": …, "param": null}}
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from clearhead.errors import ClearheadError

logger = logging.getLogger("clearhead.serve")

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
MESSAGES = {
    404: "there is nothing at this address; /openapi.json lists all routes",
    405: "this address answers another method: {allow}; /openapi.json lists all routes",
}
request_id: ContextVar[str] = ContextVar("request_id", default="-")  # of the request that is being answered
UNKNOWN_FIELD = "unknown_field"  # the type of a validation error whose context names the field
CLIENT_CLOSED_REQUEST = 499  # nobody receives this status, but the metrics count it


class RequestError(ClearheadError):
    """A request that is answered with an error: its HTTP status, code and headers, and the field that is wrong."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ):
        super().__init__(message)
        self.status, self.code, self.headers, self.param = status, code, dict(headers or {}), param

    def document(self) -> dict[str, object]:
        """The JSON body, in OpenAI's shape: one line, whatever of the request the message quotes."""
        return error_document(self.status, str(self), self.code, self.param)

    def response(self) -> JSONResponse:
        return JSONResponse(self.document(), self.status, self.headers)


def invalid_field(name: str, reason: str, code: str = "invalid_value") -> RequestError:
    """The answer to a request with one wrong field."""
    return RequestError(400, code, f"{name}: {reason}", param=name)


def stopping() -> RequestError:
    """The answer to a request that comes, or is not answered yet, when the service ends."""
    return RequestError(503, "stopping", "the service is stopping; try again when it is back")


class ErrorDetail(BaseModel):
    """What went wrong, in one sentence."""

    message: str = Field(examples=["there is no model called en-fr; did you mean en-es?"])
    type: str = Field(examples=["not_found_error"])
    code: str = Field(examples=["model_not_found"])
    param: str | None = Field(None, description="The field that is wrong, if it is one.", examples=["model"])


class ErrorReply(BaseModel):
    """The body of every response that is not a success."""

    error: ErrorDetail


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "The request cannot be answered; the message says why."},
    "5XX": {"model": ErrorReply, "description": "The service is stopping, took too long, or failed."},
}


def error_document(status: int, message: str, code: str, param: str | None = None) -> dict[str, object]:
    """Return the JSON body of an error, in OpenAI's shape: one line, whatever of the request the message quotes."""
    default = "invalid_request_error" if status < 500 else "server_error"
    kind, param = TYPES.get(status, default), None if param is None else _one_line(param)
    return {"error": {"message": _one_line(message), "type": kind, "code": code, "param": param}}


def _one_line(text: str) -> str:
    return " ".join(text.encode(errors="replace").decode().splitlines())


def to_request_error(problem: Exception) -> RequestError:
    """Turn any exception into a RequestError; one that is not a user's mistake becomes a 500 and is logged."""
    if isinstance(problem, RequestError):
        return problem
    if isinstance(problem, ClearheadError):
        return RequestError(400, "invalid_value", str(problem))
    logger.error("request %s failed", request_id.get(), exc_info=problem)
    return RequestError(500, "failure", "the service failed to answer this request; its log says more")


def add_error_handlers(app: FastAPI, paths: Collection[str]) -> None:
    """Register handlers that answer what a client can cause with an error document; the rest is `MeasureRequests`'.

    `paths` are those that a client may have meant at an address where there is nothing.
    """

    @app.exception_handler(ClearheadError)
    async def _user_error(_: Request, problem: ClearheadError) -> JSONResponse:
        return to_request_error(problem).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, problem: RequestValidationError) -> JSONResponse:
        return validation_error(problem).response()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, problem: HTTPException) -> JSONResponse:
        message = MESSAGES.get(problem.status_code, "the request cannot be read: its body is malformed")
        message = message.replace("{allow}", (problem.headers or {}).get("Allow", "none"))
        if problem.status_code == 404 and (meant := _meant(request.url.path, paths)):
            message = f"there is nothing at this address; did you mean {meant}?"
        return RequestError(problem.status_code, "invalid_request", message, problem.headers).response()

    @app.exception_handler(ClientDisconnect)
    async def _disconnected(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


def _meant(path: str, paths: Collection[str]) -> str | None:
    """The path of an address without /v1, or with a slash too many."""
    plain = "/" + "/".join(part for part in path[:200].split("/") if part)
    return next((each for each in (plain, f"/v1{plain}") if each in paths), None)


_TYPE = re.compile(r"str$|bytes$|list\[|constrained-")  # in the path of an error, what is no field


def validation_error(problem: RequestValidationError) -> RequestError:
    """Name the first invalid field and what is wrong with it.

    Of a field with several types, each has said what it misses: most is known about the one that got furthest.
    """
    found = [(tuple(part for part in each["loc"] if part != "body"), each) for each in problem.errors()]
    field = [(path, each) for path, each in found if path[:1] == found[0][0][:1]]
    path, first = max(field, key=lambda each: (len(each[0]), not each[1]["type"].endswith("_type")))
    if first["type"] == "json_invalid":
        reason = str(first["ctx"]["error"])
        message = f"the body is not JSON: {reason[:1].lower()}{reason[1:]} at character {path[-1] + 1}"
        return RequestError(400, "invalid_json", message)
    if first["type"] == UNKNOWN_FIELD:
        path = (*path, first["ctx"]["field"][:100])
    name = ".".join(str(part) for part in path if not _TYPE.match(str(part)))
    message = "it must be a JSON object" if first["type"] == "model_type" else str(first["msg"])
    sentence = f"{name or 'the body'}: {message[:1].lower()}{message[1:]}"
    return RequestError(400, "invalid_value", sentence, param=name or None)
