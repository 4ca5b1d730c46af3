"""Health: ready only when everything needed was reached; /metrics; strangers get an answer or nothing."""

import asyncio
import json
import socket

import pytest

from runfold.service.health import Health, served


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


async def get(port: int, path: str) -> tuple[str, bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_ready_only_once_every_need_is_met() -> None:
    health = Health(["kafka", "postgres"])
    is_taken_over = False
    health.check("partitions", lambda: None if is_taken_over else "being taken over")
    port = free_port()
    async with served("127.0.0.1", port, health, lambda: b""):
        assert (await get(port, "/healthz"))[0] == "HTTP/1.1 200 OK"
        status, body = await get(port, "/readyz")
        assert status == "HTTP/1.1 503 Service Unavailable"
        assert set(json.loads(body)["missing"]) == {"kafka", "postgres", "partitions"}
        health.reached("kafka")
        health.reached("postgres")
        assert json.loads((await get(port, "/readyz"))[1])["missing"] == {"partitions": "being taken over"}
        is_taken_over = True
        status, body = await get(port, "/readyz")
        assert (status, json.loads(body)) == ("HTTP/1.1 200 OK", {"ready": True, "missing": {}})
        health.lacks("kafka", "went away")
        assert (await get(port, "/readyz"))[0] == "HTTP/1.1 503 Service Unavailable"


async def test_metrics_are_what_the_registry_says() -> None:
    port = free_port()
    async with served("127.0.0.1", port, Health(), lambda: b"runfold_x_total 1.0\n"):
        assert (await get(port, "/metrics?a=b"))[1] == b"runfold_x_total 1.0\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"\x16\x03\x01 no http\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"GET /" + b"x" * 200_000 + b"\r\n\r\n", ""),
    ],
)
async def test_strangers_do_no_harm(request_: bytes, status: str) -> None:
    port = free_port()
    async with served("127.0.0.1", port, Health(), lambda: b""):
        try:
            assert (await ask(port, request_))[0] == status
        except ConnectionError:
            assert not status
        assert (await get(port, "/healthz"))[0] == "HTTP/1.1 200 OK"


async def test_port_zero_is_off() -> None:
    async with served("127.0.0.1", 0, Health(), lambda: b"") as port:
        assert port is None


async def test_a_port_that_is_taken_is_an_error() -> None:
    port = free_port()
    async with served("127.0.0.1", port, Health(), lambda: b""):
        with pytest.raises(OSError, match=str(port)):
            async with served("127.0.0.1", port, Health(), lambda: b""):
                pass
