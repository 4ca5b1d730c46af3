"""Loading the author's app for a service: what is wrong with it is the operator's to mend.

Apart from what all services share, since only an app brings pydantic-ai in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from runfold.adapters.threads import in_daemon_thread
from runfold.sdk.errors import AppNotFound, DefinitionError, NoRevision
from runfold.sdk.frames import where_raised
from runfold.sdk.revision import find_revision
from runfold.service.errors import InstallationError
from runfold.service.settings import AppSettings

if TYPE_CHECKING:
    from runfold.sdk.app import App


async def import_app(settings: AppSettings) -> tuple[App, str]:
    """Give the app and the revision of its code.

    Raises:
        InstallationError: See ``app_of`` and ``revision_of``.
    """
    app = await app_of(settings.app)
    return app, await revision_of(app, settings.revision)


async def app_of(reference: str) -> App:
    """Import ``module:attribute``, in a thread: an import may take longer than the loop may stand still.

    Raises:
        InstallationError: There is no such app, it declares something wrong, or it imports what cannot be imported.
            Whatever else its module raises is raised.
    """
    try:
        return await in_daemon_thread(partial(_load, reference))
    except (AppNotFound, DefinitionError) as error:
        message = f"RUNFOLD_APP: {error}{where_raised(error)}"
        raise InstallationError(message) from error
    except (ImportError, SyntaxError) as error:
        said = f"{type(error).__name__}: {error}{where_raised(error)}"
        message = f"RUNFOLD_APP: {reference!r} cannot be imported: {said}"
        raise InstallationError(message) from error


def _load(reference: str) -> App:
    from runfold.sdk.loading import load_app  # noqa: PLC0415 - pydantic-ai is half of a start: servers answer meanwhile

    return load_app(reference)


async def revision_of(app: App, given: str | None) -> str:
    """Find the revision of an app's code, in a thread: git and a large app's files may take as long.

    Raises:
        InstallationError: None is given, and none can be found.
    """
    try:
        return await in_daemon_thread(partial(find_revision, app.modules, given))
    except NoRevision as error:
        message = f"RUNFOLD_APP: {error}"
        raise InstallationError(message) from error
