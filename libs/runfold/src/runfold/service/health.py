"""Health: /healthz, /readyz and /metrics, answered by the service's own event loop.

A loop that hangs answers nothing, which is what a prober has to see. Whoever can reach the address may ask, without a
password: loopback by default, another one where a container's prober or scraper is outside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

_READ_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """What a service needs before it is ready, and which of it is there.

    Args:
        needs: Names, e.g. ``kafka``; all of them are missing at first.
    """

    def __init__(self, needs: Iterable[str] = ()) -> None:
        self._missing: dict[str, str] = dict.fromkeys(needs, "not reached yet")
        self._checks: dict[str, Callable[[], str | None]] = {}

    def reached(self, name: str) -> None:
        """Take note that a need is met."""
        self._missing.pop(name, None)

    def lacks(self, name: str, why: str) -> None:
        """Take note that a need is not met, and why."""
        self._missing[name] = why

    def check(self, name: str, missing: Callable[[], str | None]) -> None:
        """Ask ``missing`` at every probe from now on: None if the need is met, else why not."""
        self._missing.pop(name, None)
        self._checks[name] = missing

    def missing(self) -> dict[str, str]:
        """Give the needs that are not met -> why; empty: ready."""
        asked = {name: why for name, check in self._checks.items() if (why := check()) is not None}
        return {**self._missing, **asked}


@asynccontextmanager
async def served(host: str, port: int, health: Health, metrics: Callable[[], bytes]) -> AsyncIterator[int | None]:
    """Serve on ``host`` while the body runs; gives the port, or None where ``port`` is 0 (off).

    Raises:
        OSError: The address or the port cannot be had.
    """
    if port == 0:
        yield None
        return
    server = await asyncio.start_server(_Answers(health, metrics).handle, host, port)
    async with server:
        yield port


class _Answers:
    """One request a connection; just enough HTTP for a prober and a scraper."""

    def __init__(self, health: Health, metrics: Callable[[], bytes]) -> None:
        self._health = health
        self._metrics = metrics

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(request.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            return  # a prober that hung up or spoke something else than HTTP is owed no answer
        finally:
            writer.close()

    def _respond(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(405, "text/plain", b"only GET\n")
        match path:
            case "/healthz":
                status, kind, body = 200, "application/json", b'{"status": "ok"}\n'
            case "/readyz":
                missing = self._health.missing()
                status, kind = (503 if missing else 200), "application/json"
                body = json.dumps({"ready": not missing, "missing": missing}).encode() + b"\n"
            case "/metrics":
                status, kind, body = 200, _TEXT, self._metrics()
            case _:
                status, kind, body = 404, "text/plain", b"try /healthz, /readyz or /metrics\n"
        return _response(status, kind, body, head=method == "HEAD")


def _response(status: int, kind: str, body: bytes, *, head: bool = False) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head else body)
