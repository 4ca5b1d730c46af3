"""Names and times that the app, its world and the checkers share; imports nothing, so that an app loads fast."""

from __future__ import annotations

from typing import Final

AGENT: Final = "worker"
COLLECTIONS: Final = {
    "read": "readings",
    "publish": "publications",
    "refund": "refunds",
    "file_ticket": "tickets",
    "pay": "payments",
    "enter": "ledger",
    "send": "letters",
}
"""Tool -> where its effect stands: a collection of the world's HTTP server, but for the ledger, which is a table."""

TRANSACTIONAL: Final = "enter"

REPEATABLE: Final = frozenset({"read"})
"""Tools that may take effect any number of times."""

KEYLESS: Final = frozenset({"readings", "tickets", "payments", "letters"})
"""Collections whose system knows no keys: what is posted twice happens twice. LOOKUP, MANUAL and dedupe must not."""

SESSION_S: Final = 3.0
FRESHNESS_S: Final = SESSION_S / 2
GRACE_S: Final = 5.0
CALL_TIMEOUT_S: Final = 8.0
PAUSE_S: Final = (1.5 * SESSION_S, 2.5 * SESSION_S)
"""Shortest and longest pause by SIGSTOP: past the session's end, so that another executor takes over meanwhile.

A process that is paused between its last check and the send is the one documented exception for LOOKUP and MANUAL:
it acts when it wakes. It is told apart from a defect by time. The check is passed at most FRESHNESS_S after the
request was produced, the pause lasts at most PAUSE_S[1], and nobody believes "it did not happen" earlier than
CALL_TIMEOUT_S + GRACE_S after the request. So the zombie's act is over before anybody concludes from its absence, and
with these times a second effect of such a tool is a defect, never the exception. The margin is for a slow machine.
"""
MARGIN_S: Final = CALL_TIMEOUT_S + GRACE_S - FRESHNESS_S - PAUSE_S[1]
