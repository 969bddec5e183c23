"""What commands read from a cluster: nodes and pods, or one service with the revision of its plan.

Decides which objects are asked for and how a failure is told. Never decides to write. The API client is
loaded here, and only when something is read, so that the offline commands stay light.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from shardwright.api.names import workload_name
from shardwright.cli.files import InputError

if TYPE_CHECKING:
    from shardwright.cluster.api import Api

Raw = dict[str, Any]
Found = TypeVar("Found")


def read_nodes_and_pods(context: str | None) -> list[Raw]:
    """Read all nodes, and the pods that can hold resources. Raises InputError."""

    async def read(api: "Api") -> list[Raw]:
        from shardwright.cluster.kinds import LIVE_PODS, NODE, POD  # noqa: PLC0415 -- see above

        found: list[Raw] = []
        async for items, _ in api.list_pages(NODE):
            found += [{"kind": "Node", **item} for item in items]
        async for items, _ in api.list_pages(POD, fields=LIVE_PODS):
            found += [{"kind": "Pod", **item} for item in items]
        return found

    return ask(context, "--cluster", read)


def read_service_and_revision(context: str | None, namespace: str, name: str) -> tuple[Raw, Raw | None]:
    """Read a service, and the ControllerRevision of its plan, or of the one that waits while it has none.

    Without either the revision is None. Raises InputError.
    """

    async def read(api: "Api") -> tuple[Raw, Raw | None]:
        from shardwright.cluster.kinds import LLM_SERVICE, REVISION  # noqa: PLC0415 -- see above

        service = await api.get(LLM_SERVICE, namespace, name)
        status = service.get("status") or {}
        revision = (status.get("plan") or status.get("proposal") or {}).get("revision")
        if not revision:
            return service, None
        return service, await api.get(REVISION, namespace, workload_name(name, str(revision)))

    return ask(context, f"{namespace}/{name}", read)


def namespace_of(context: str | None) -> str:
    """Return the namespace of the kubeconfig's context, as kubectl has it. Raises InputError."""
    from shardwright.cluster.credentials import Source, namespace_of  # noqa: PLC0415 -- see above

    try:
        return namespace_of(Source(context=context))
    except Exception as error:
        raise InputError(_no_login(error)) from error


def ask(context: str | None, what: str, read: "Callable[[Api], Awaitable[Found]]") -> Found:
    """Log in and ask the API server. Raises InputError, headed by `what` was asked for."""
    from shardwright.cluster.api import Api  # noqa: PLC0415 -- the offline path must not load it
    from shardwright.cluster.credentials import Credentials, Source  # noqa: PLC0415
    from shardwright.cluster.errors import ClusterError  # noqa: PLC0415
    from shardwright.cluster.transport import AiohttpTransport  # noqa: PLC0415

    async def run() -> Found:
        try:
            transport = AiohttpTransport(await Credentials.load(Source(context=context)))
        except Exception as error:
            raise InputError(f"{what}: {_no_login(error)}") from error
        try:
            return await read(Api(transport))
        finally:
            await transport.close()

    try:
        return asyncio.run(run())
    except ClusterError as error:
        raise InputError(f"{what}: {error}") from error


def _no_login(error: Exception) -> str:
    """Say why a login could not be read: loaders raise whatever they meet in a file that is no kubeconfig."""
    words = " ".join(str(error).split())
    if type(error).__name__ == "ConfigException":
        return words
    return f"the kubeconfig cannot be used: {type(error).__name__}: {words}"
