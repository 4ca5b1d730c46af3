"""The revision of an app's code: the git commit where that says it all, else a hash of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runfold.sdk.errors import NoRevision
from runfold.sdk.frames import INSTALLED

_GIT_TIMEOUT_S = 10.0
_DIRTY_DIGITS = 12


def find_revision(modules: str | Iterable[str], given: str | None) -> str:
    """Find the code revision for the version gate.

    Args:
        modules: Names of the app's modules, imported already; one name may be given as ``module:attribute``.
        given: What ``RUNFOLD_REVISION`` says; it is taken as it is.

    Returns:
        ``given``; else the git commit, if all the modules' files are tracked in one repository; else ``sha256:`` and
        a hash over the sources of every loaded module that lies beside them or below their packages. Where the commit
        does not hold these sources as they are (changed, or not added and not ignored), ``+dirty.`` and the first 12
        digits of that hash stand behind it.

    Raises:
        NoRevision: None of the modules has a file that can be read.
    """
    if given:
        return given
    files = _files(modules)
    sources = _sources(files)
    git = _Git.of(files)
    commit = None if git is None else git.commit(files)
    is_clean = None if git is None or commit is None else git.is_clean(sources)
    if commit is not None and is_clean:
        return commit
    hashed = _hash_sources(sources)
    return f"sha256:{hashed}" if is_clean is None else f"{commit}+dirty.{hashed[:_DIRTY_DIGITS]}"


def _files(modules: str | Iterable[str]) -> list[Path]:
    names = [modules.partition(":")[0]] if isinstance(modules, str) else modules
    paths = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    files = sorted({Path(path).resolve() for path in paths if isinstance(path, str)})
    # Where a lookup or a tool comes from an installed package, the commit is still that of the app's own modules.
    return [path for path in files if INSTALLED.isdisjoint(path.parts)] or files


@dataclass(frozen=True, slots=True)
class _Git:
    """Asks git about the repository of a folder; whatever fails, or takes too long, is not known."""

    program: str
    folder: Path

    @classmethod
    def of(cls, files: list[Path]) -> _Git | None:
        """Ask about the folder of the first of some files; None: no files, or no git."""
        program = shutil.which("git")
        return None if program is None or not files else cls(program, files[0].parent)

    def commit(self, files: list[Path]) -> str | None:
        """Give the commit that is checked out, if all the files are tracked."""
        tracked = self._said("ls-files", "--error-unmatch", "--", *map(str, files))
        return None if tracked is None else self._said("rev-parse", "HEAD")

    def is_clean(self, sources: list[tuple[str, Path]]) -> bool | None:
        """Whether files are as the commit has them, or ignored; None: not known."""
        paths = sorted({str(source) for _, source in sources})
        changed = self._said("status", "--porcelain", "--untracked-files=all", "--", *paths)
        return None if changed is None else not changed

    def _said(self, *arguments: str) -> str | None:
        # Paths are no patterns, and a look must not lock the author's index.
        command = [self.program, "--literal-pathspecs", "--no-optional-locks", "-C", str(self.folder), *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - fixed commands; the paths are of loaded modules
                command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()


def _hash_sources(sources: list[tuple[str, Path]]) -> str:
    if not sources:
        message = "no file of the app's code can be found, so its revision is not known: set RUNFOLD_REVISION"
        raise NoRevision(message)
    hashed = hashlib.sha256()
    try:
        for name, source in sources:
            hashed.update(f"{name}\0".encode() + hashlib.sha256(source.read_bytes()).digest())
    except OSError as error:
        message = f"the app's code cannot be read, so its revision is not known ({error}): set RUNFOLD_REVISION"
        raise NoRevision(message) from error
    return hashed.hexdigest()


def _sources(files: list[Path]) -> list[tuple[str, Path]]:
    """Give name and file of every loaded module that is the app's: ``files``, and what lies beside or below them."""
    roots, folders = {_root(path) for path in files}, {path.parent for path in files}

    @cache
    def look_at(folder: str) -> tuple[Path, bool]:
        """Resolve a folder, and say whether it is the app's: a thousand modules lie in some hundred folders."""
        resolved = Path(folder).resolve()
        return resolved, any(_belongs(resolved, root) for root in roots)

    found = []
    for name, module in sorted(sys.modules.copy().items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        given = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114 - of a thousand, a Path is felt
        folder, is_beside = look_at(os.path.dirname(given))  # noqa: PTH120 - the same
        if not is_beside and folder not in folders:
            continue
        source = folder / Path(given).name
        # torch.ops and its like name a file that is nowhere.
        if source in files or (is_beside and source.suffix == ".py" and source.is_file()):
            found.append((name, source))
    return found


def _root(path: Path) -> Path:
    """The folder of the outermost package that holds a file; a plain module's own folder."""
    folder = path.parent
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


def _belongs(folder: Path, root: Path) -> bool:
    return folder.is_relative_to(root) and not INSTALLED.intersection(folder.relative_to(root).parts)
