"""Numbers and rules of retrying, as pure functions; times are in seconds unless a name says otherwise."""

from __future__ import annotations

from runfold.core.state import Call, ModelCall

GRACE_S = 5.0
MAX_LOST_ATTEMPTS = 3
MODEL_ATTEMPTS = 3
MODEL_TIMEOUT_S = 600.0
MAX_RETRY_AFTER_S = 30.0
LOOKUP_TRIES = 5
MAX_LOOKUP_PAUSE_S = 16.0
_MAX_KEY_MARGIN_MS = 300_000
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


def key_may_be_forgotten(call: Call, now_ms: int, known_s: float, until_sent_ms: int = 0) -> bool:
    """Whether the downstream may have forgotten a call's key, so that asking or sending it again proves nothing.

    The key's age is the larger of two measures. ``known_s`` is exact and may be too small: how long this process has
    known of a request, by a clock that only goes forward. The other compares this machine's wall clock with that of
    the writer of the step's first request, which may have been another machine: a lifetime of hours outlives
    processes, so nothing better than wall clocks can measure it. For these a margin is kept, a tenth of the lifetime
    and at most five minutes: as long as the executors' clocks agree to within that, a key is never believed for too
    long. Forgetting it too early costs a person's look, no more.

    Args:
        call: A requested call.
        now_ms: Wall clock, milliseconds since 1970.
        known_s: For how many seconds this process has known that the step was requested.
        until_sent_ms: How long it may take from now until the downstream sees the key again.
    """
    if call.key_ttl_ms is None:
        return False
    by_wall_clock = now_ms - (call.first_requested_at or 0)
    age_ms = max(by_wall_clock, int(known_s * 1000))
    margin_ms = min(call.key_ttl_ms // 10, _MAX_KEY_MARGIN_MS)
    return age_ms + until_sent_ms + margin_ms >= call.key_ttl_ms
