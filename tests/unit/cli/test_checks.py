"""``runfold check``: what is wrong is told from what is away, each with its own mend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runfold.cli.checks import findings
from runfold.cli.finding import Finding
from runfold.service.settings import ClientSettings, load


@contextmanager
def store_that_answers(status: int, code: str) -> Iterator[str]:
    """Serve an S3 that answers everything with one error; gives its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give boto3 a key, and nothing of the machine's own."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)


async def store_finding() -> Finding:
    """Check an installation of which only the object store answers."""
    given = {
        "postgres_dsn": "postgresql://127.0.0.1:1/x",
        "kafka_bootstrap": "127.0.0.1:1",
        "blob_url": "s3://bucket/x",
    }
    (found,) = [one async for one in findings(load(ClientSettings, given)) if one.what == "object store"]
    return found


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "SignatureDoesNotMatch"), (403, "AccessDenied"), (401, "Unauthorized"), (400, "ExpiredToken")],
)
async def test_a_key_that_the_store_refuses_is_wrong_and_not_away(
    status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start the object store would not help: the variables of the key are named."""
    with store_that_answers(status, code) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        found = await store_finding()
    assert found.status == "wrong"
    assert code in found.detail
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in (found.mend or "")


async def test_a_key_that_is_not_set_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was asked."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    found = await store_finding()
    assert (found.status, "AWS_ACCESS_KEY_ID" in (found.mend or "")) == ("wrong", True)


async def test_a_store_of_another_time_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other key would help, nor would it pass by itself."""
    with store_that_answers(403, "RequestTimeTooSkewed") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        found = await store_finding()
    assert (found.status, "set this machine's clock" in (found.mend or "")) == ("wrong", True)


async def test_another_refusal_of_a_store_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may pass by itself, and no other key would help."""
    with store_that_answers(400, "InvalidRequest") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        found = await store_finding()
    assert (found.status, "start the object store" in (found.mend or "")) == ("unreachable", True)
