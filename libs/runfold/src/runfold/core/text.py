"""Text for people, made fit for the log."""

from __future__ import annotations

_LONGEST = 4000


def clip(text: str) -> str:
    """Shorten a text that somebody else wrote (an error, mostly), and take out what is no Unicode.

    The log, Postgres and notifications hold it; whole outputs of tools and models go into payloads.
    """
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
    return shown.encode(errors="replace").decode().replace("\0", "\ufffd")
