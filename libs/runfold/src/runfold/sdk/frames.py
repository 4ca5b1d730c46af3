"""Where an exception was raised: files and lines, and no text of it, since messages may hold payload."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import FrameType

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders below which nothing is the author's."""
_MOST_FRAMES, _MOST_ERRORS = 20, 8


def frames_of(error: BaseException) -> list[str]:
    """Give a traceback without its texts: ``file:line in function``, innermost last, then the exception's type.

    What it was raised from stands before it, members of a group behind it, as Python prints them. Frames of Runfold
    are left out where there are others; of many frames and exceptions the last ones are kept.
    """
    chain = [error]
    while len(chain) < _MOST_ERRORS and (before := _raised_from(chain[-1])) is not None and before is not error:
        chain.append(before)
    members = error.exceptions[:_MOST_ERRORS] if isinstance(error, BaseExceptionGroup) else ()
    return [line for one in (*reversed(chain), *members) for line in (*_frames(one), type(one).__name__)]


def where_raised(error: BaseException) -> str:
    """Give `` (file:line)``, for a message's end, of where the author's code raised an exception or called what did.

    Where none of the code is the author's, as that of an installed app, it is the last line that is not Runfold's;
    nothing where there is no other.
    """
    outside = [one for one in walk_tb(error.__traceback__) if not _is_ours(one[0]) and _path(one[0]) is not None]
    found = [one for one in outside if not _is_installed(one[0])] or outside
    if not found:
        return ""
    frame, line = found[-1]
    path, here = Path(frame.f_code.co_filename), Path.cwd()
    return f" ({path.relative_to(here) if path.is_relative_to(here) else path}:{line})"


def _raised_from(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> Iterator[str]:
    frames = list(walk_tb(error.__traceback__))
    others = [one for one in frames if not _is_ours(one[0])]
    for frame, line in (others or frames)[-_MOST_FRAMES:]:
        yield f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] == "runfold"


def _path(frame: FrameType) -> Path | None:
    """Give the file of a frame; None: frozen, or made from a text."""
    name = frame.f_code.co_filename
    return None if name.startswith("<") else Path(name)


def _is_installed(frame: FrameType) -> bool:
    path = _path(frame)
    is_standard = _module(frame).partition(".")[0] in sys.stdlib_module_names
    return is_standard or path is None or not INSTALLED.isdisjoint(path.parts)
