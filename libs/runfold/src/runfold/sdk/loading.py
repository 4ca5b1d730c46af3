"""Finding an app by name, and the revision of its code."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from runfold.sdk.errors import AppNotFound, NoRevision
from runfold.sdk.frames import INSTALLED

if TYPE_CHECKING:
    from runfold.sdk.app import App

_GIT_TIMEOUT_S = 10.0
_DIRTY_DIGITS = 12


def load_app(reference: str) -> App:
    """Import an app by ``module:attribute``, with the current folder on ``sys.path``.

    Raises:
        AppNotFound: The text is no such reference, the module or the attribute does not exist, or it is no ``App``.
            What the author's module itself raises is raised.
    """
    from runfold.sdk.app import App  # noqa: PLC0415 - app needs find_revision from here

    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        message = f"{reference!r} is no app: write module:attribute, for example my_agents:app"
        raise AppNotFound(message)
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, reference, here)
    apps = ", ".join(f"{module_name}:{name}" for name, value in vars(module).items() if isinstance(value, App))
    has = f"has {apps}" if apps else "has no App"
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            message = f"app {reference!r}: module {module_name!r} has no attribute {attribute!r}; it {has}"
            raise AppNotFound(message)
        found = getattr(found, part)
    if not isinstance(found, App):
        message = f"app {reference!r} is a {type(found).__name__}, not a runfold.App; its module {has}"
        raise AppNotFound(message)
    found.loaded_from = module_name
    return found


def _import(module_name: str, reference: str, here: str) -> ModuleType:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(missing + "."):
            raise  # the author's module exists and misses something of its own
        message = (
            f"app {reference!r}: there is no module {module_name!r}; it was looked for in {here} and in what is "
            "installed (start in the folder of the module, or install its package)"
        )
        raise AppNotFound(message) from error


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
    git = _Git.of(files)
    commit = None if git is None else git.commit(files)
    is_clean = None if git is None or commit is None else git.is_clean(_sources(files))
    if commit is not None and is_clean:
        return commit
    hashed = _hash_sources(files)
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


def _hash_sources(files: list[Path]) -> str:
    sources = _sources(files)
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
    roots = {_root(path) for path in files}
    found = []
    for name, module in sorted(sys.modules.copy().items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        source = Path(path).resolve()
        if source in files or _is_beside(source, roots):
            found.append((name, source))
    return found


def _is_beside(source: Path, roots: set[Path]) -> bool:
    # torch.ops and its like name a file that is nowhere.
    return source.suffix == ".py" and any(_belongs(source, root) for root in roots) and source.is_file()


def _root(path: Path) -> Path:
    """The folder of the outermost package that holds a file; a plain module's own folder."""
    folder = path.parent
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


def _belongs(source: Path, root: Path) -> bool:
    return source.is_relative_to(root) and not INSTALLED.intersection(source.relative_to(root).parts)
