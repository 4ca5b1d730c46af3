"""Numbers and rules of retrying, as pure functions; times are in seconds unless a name says otherwise."""

from __future__ import annotations

from runfold.core.state import Call, ModelCall

GRACE_S = 5.0
MAX_LOST_ATTEMPTS = 3
MODEL_ATTEMPTS = 3
MODEL_TIMEOUT_S = 600.0
MAX_RETRY_AFTER_S = 30.0
LOOKUP_TRIES = 5
_MAX_DOUBLINGS = 30


def backoff(base: float, failures: int, ceiling: float, jitter: float) -> float:
    """Exponential back-off with full jitter: ``jitter`` in [0, 1) scales min(ceiling, base * 2**failures)."""
    return min(ceiling, base * 2.0 ** min(failures, _MAX_DOUBLINGS)) * jitter


def tool_backoff(retries: int, jitter: float) -> float:
    """Before the next attempt of a tool: up to 0.2 * 2**n seconds, at most 10."""
    return backoff(0.2, retries, 10.0, jitter)


def claim_backoff(failures: int, jitter: float) -> float:
    """Before claiming a partition again: 0.2 to 5 seconds, never nothing."""
    return 0.2 + backoff(0.2, failures, 4.8, jitter)


def model_backoff(failures: int, jitter: float, retry_after: float | None) -> float:
    """Before asking a model again; a provider's Retry-After up to 30 s is honoured."""
    waited = backoff(0.5, failures, 10.0, jitter)
    return waited if retry_after is None else max(waited, min(retry_after, MAX_RETRY_AFTER_S))


def lookup_backoff(tries: int) -> float:
    """Before asking a lookup again: 1, 2, 4, 8, 16 seconds."""
    return float(2 ** min(tries, LOOKUP_TRIES - 1))


def lost_too_often(call: Call | ModelCall) -> bool:
    """Whether one more lost attempt makes three performed ones: the run is then interrupted, not tried again."""
    return call.lost + 1 >= MAX_LOST_ATTEMPTS
