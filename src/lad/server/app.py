"""The routes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

import lad
from lad.server.gate import ClientDisconnect, KeyCheck, check_headers, read_body, until_left
from lad.server.refusal import RefusalError
from lad.server.requests import request_schema
from lad.server.responses import ErrorResponse, ModelList, RerankResponse, Status
from lad.server.service import Service
from lad.server.settings import ServiceSettings

if TYPE_CHECKING:
    from lad.ranker import Ranker

_LOG = logging.getLogger("lad.server")

RERANK_PATHS = ("/v2/rerank", "/v1/rerank", "/rerank")
"""One endpoint under the names that clients of different versions use."""

_DESCRIPTION = (
    "Ranks images by how well a caption describes them, whatever their order. Requests may have the shape of Cohere's, "
    "Jina's or vLLM's rerank endpoint. Scores are listwise: over the documents of one request they add up to 1."
)
_CLIENT_LEFT = 499  # nobody reads it; for the counters
_FAILED = {"message": "The model could not rank this request.", "code": "internal_error"}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The request or one of its documents cannot be used."},
    401: {"model": ErrorResponse, "description": "The API key is missing or wrong."},
    404: {"model": ErrorResponse, "description": "Another model is served here."},
    408: {"model": ErrorResponse, "description": "The body did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The body is too large."},
    415: {"model": ErrorResponse, "description": "The body is not JSON."},
    429: {"model": ErrorResponse, "description": "All places are taken; Retry-After says when to come again."},
    500: {"model": ErrorResponse, "description": "The model failed."},
}


def create_app(ranker: Ranker, settings: ServiceSettings | None = None) -> FastAPI:
    """The service as an ASGI application.

    Args:
        ranker: a calibrated ranker, given over to the service.
        settings: what is allowed; by default nothing but images inside requests.

    Raises:
        LadError: the calibrations or an allowed host cannot be used.
    """
    settings = settings or ServiceSettings()
    service = Service(ranker, settings)
    check_key = KeyCheck(settings.api_keys)
    started = int(time.time())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(title="lad", version=lad.__version__, description=_DESCRIPTION, lifespan=lifespan)
    app.state.service = service
    _handle_errors(app, service)

    async def rerank(request: Request) -> Response:
        begun = time.perf_counter()
        check_key(request)
        check_headers(request, settings.limits)
        with service.places.take():
            try:
                answer = await _unless_left(request, service, await read_body(request, settings.limits))
            except ClientDisconnect:
                answer = None
            except RefusalError:
                raise
            except Exception:
                _LOG.exception("A request failed.")
                return JSONResponse(_FAILED, 500)
        if answer is None:
            service.metrics.left.inc()
            return Response(status_code=_CLIENT_LEFT)
        service.metrics.seconds.observe(time.perf_counter() - begun)
        return JSONResponse(answer)

    schema = request_schema(settings.model_names, service.engine.sizes, settings.limits)
    for path in RERANK_PATHS:
        app.add_api_route(
            path,
            rerank,
            methods=["POST"],
            operation_id="rerank" + path.replace("/rerank", "").replace("/", "_"),
            summary="Rank images by a caption",
            responses={200: {"model": RerankResponse, "description": "The documents, best first."}, **_REFUSALS},
            openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
        )

    @app.get("/v1/models", response_model=ModelList, responses={401: _REFUSALS[401]}, summary="The model's names")
    async def models(request: Request) -> dict[str, Any]:
        check_key(request)
        sizes = list(service.engine.sizes)
        return {"data": [{"id": name, "created": started, "candidates": sizes} for name in settings.model_names]}

    @app.get("/healthz", response_model=Status, summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        response_model=Status,
        responses={503: {"model": Status, "description": "Requests are not answered now."}},
        summary="Whether requests are answered",
    )
    async def ready() -> Response:
        up = service.ready
        return JSONResponse({"status": "ready" if up else "not ready"}, status_code=200 if up else 503)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, 401: _REFUSALS[401]},
        summary="Counters for Prometheus",
    )
    async def metrics(request: Request) -> Response:
        check_key(request)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    app.add_middleware(_CountStatuses, service=service)
    return app


async def _unless_left(request: Request, service: Service, body: bytes) -> dict[str, Any] | None:
    """The answer; None, and nothing left undone in its name, if the client leaves before it."""
    working = asyncio.create_task(service.answer(body))
    del body
    leaving = asyncio.create_task(until_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _handle_errors(app: FastAPI, service: Service) -> None:
    """One form of answer for all that goes wrong."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RefusalError)
        service.metrics.refusals.labels(error.code).inc()
        return JSONResponse(error.body(), error.status, error.headers)

    async def unknown(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        return JSONResponse({"message": error.detail, "code": code}, error.status_code, error.headers)

    app.add_exception_handler(RefusalError, refused)
    app.add_exception_handler(HTTPException, unknown)


class _CountStatuses:
    """Counts every answer by its status."""

    def __init__(self, app: Any, service: Service) -> None:
        self._app = app
        self._requests = service.metrics.requests

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)
