"""Logs: one JSON object a line, with what was bound, without payloads."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runfold.service import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Log into memory, and leave the process as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    into = io.StringIO()
    logs.configure("runfold-test", stream=into)
    yield into
    root.handlers[:], root.level = before, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_a_json_object_with_what_was_bound(stream: io.StringIO) -> None:
    structlog.get_logger("runfold.x").info("claimed", partition=3, epoch=17, run_id="r-1")
    (line,) = lines(stream)
    assert line.pop("ts")
    assert line == {
        "event": "claimed",
        "level": "info",
        "logger": "runfold.x",
        "service": "runfold-test",
        "partition": 3,
        "epoch": 17,
        "run_id": "r-1",
    }


def test_others_log_through_the_same_renderer(stream: io.StringIO) -> None:
    logging.getLogger("psycopg.pool").warning("error connecting in %r", "pool-1")
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("error connecting in 'pool-1'", "warning")


def test_payloads_do_not_get_into_the_log(stream: io.StringIO) -> None:
    def fails(secret: bytes) -> None:
        assert secret
        raise ValueError

    secret = bytes.fromhex("637573746f6d6572")  # not in the source, which a traceback shows
    try:
        fails(secret)
    except ValueError:
        structlog.get_logger("runfold.x").exception("failed", data=secret, text="x" * 10_000)
    assert "customer" not in stream.getvalue()
    (line,) = lines(stream)
    assert line["data"] == "<8 bytes>"
    assert len(str(line["text"])) < 5_000
    assert "ValueError" in str(line["exception"])
