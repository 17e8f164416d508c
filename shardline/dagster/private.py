"""Private names of Dagster, all of them in this module.

Dagster has no public names for the parts of `dagster dev` and `dagster-webserver`, nor for whether
a check result counts for the latest materialization. Another release may move or change them:
`tests/dagster/test_dagster_private.py` tests each of them, and
`make test-dagster DAGSTER=1.13.0` runs the tests on that release.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.loader import LoadingContext
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionResolvedStatus,
)
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = [
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionResolvedStatus",
    "LoadingContext",
    "WorkspaceProcessContext",
    "make_web_app",
    "open_workspace",
    "optimize_for_webserver",
    "run_code_servers",
]


@contextmanager
def run_code_servers(
    instance: dg.DagsterInstance, workspace: Path, log_level: str
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Run a code server for each code location, and restart servers that end.

    Yields the list `load_from` of a workspace file that points to these servers.
    """
    target = WorkspaceFileTarget([str(workspace)])
    with ProxyServerManager(instance, target, code_server_log_level=log_level) as servers:
        yield servers.get_code_server_specs()


@contextmanager
def open_workspace(
    instance: dg.DagsterInstance, workspace: Path, *, read_only: bool
) -> Iterator[WorkspaceProcessContext]:
    """Open the code locations of a workspace file for a web server."""
    from dagster_webserver.version import __version__  # noqa: PLC0415 - only the web server loads it

    target = WorkspaceFileTarget([str(workspace)])
    with WorkspaceProcessContext(instance, target, __version__, read_only=read_only) as context:
        yield context


def make_web_app(
    context: WorkspaceProcessContext,
    poll_milliseconds: int,
    lifespan: "Callable[[Starlette], AbstractAsyncContextManager[None]]",
) -> "Starlette":
    """Return Dagster's web server as an ASGI app. Its page polls at this interval."""
    from dagster_webserver.app import (  # noqa: PLC0415 - as above
        create_app_from_workspace_process_context,
    )

    return create_app_from_workspace_process_context(
        context, live_data_poll_rate=poll_milliseconds, lifespan=lifespan
    )


def optimize_for_webserver(instance: dg.DagsterInstance) -> None:
    """Configure database connections as `dagster-webserver` does."""
    from dagster_webserver.cli import (  # noqa: PLC0415 - as above
        DEFAULT_DB_STATEMENT_TIMEOUT,
        DEFAULT_POOL_MAX_OVERFLOW,
        DEFAULT_POOL_RECYCLE,
    )

    instance.optimize_for_webserver(
        DEFAULT_DB_STATEMENT_TIMEOUT, DEFAULT_POOL_RECYCLE, DEFAULT_POOL_MAX_OVERFLOW
    )
