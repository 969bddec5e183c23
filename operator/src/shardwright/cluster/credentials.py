"""How to reach and log in to the API server: the official client's own loaders, nothing else of it.

Decides between an explicit kubeconfig, the pod's service account and the default kubeconfig, in that
order. Reads the service account's token again every minute (the loader does) and reads everything again
after a 401. In a pod nothing is written to disk; a kubeconfig with certificates inside is unpacked to
/dev/shm where there is one, since TLS libraries take client keys only as files.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import list_kube_config_contexts, load_incluster_config, load_kube_config

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MEMORY_FILES = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 -- the loader makes 0600 files


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where credentials come from."""

    kubeconfig: str | None = None
    context: str | None = None

    @property
    def in_cluster(self) -> bool:
        """Whether the pod's service account is used."""
        return not self.kubeconfig and not self.context and "KUBERNETES_SERVICE_HOST" in os.environ


def namespace_of(source: Source) -> str:
    """Return the namespace that a command means which names none: the context's, as kubectl has it.

    Raises kubernetes' ConfigException as loading does.
    """
    if source.in_cluster:
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip() if _OWN_NAMESPACE.exists() else "default"
    contexts, current = list_kube_config_contexts(source.kubeconfig)  # type: ignore[no-untyped-call]
    chosen = next((c for c in contexts if c["name"] == source.context), current)
    return str((chosen or {}).get("context", {}).get("namespace") or "default")


class Credentials:
    """A loaded configuration. `server` has no trailing slash."""

    def __init__(self, source: Source, configuration: Configuration) -> None:
        self._source = source
        self._configuration = configuration

    @classmethod
    async def load(cls, source: Source) -> "Credentials":
        """Load from `source`. Raises kubernetes' ConfigException with what is missing."""
        return cls(source, await _configuration(source))

    async def reload(self) -> None:
        """Read everything again, as after a 401."""
        self._configuration = await _configuration(self._source)

    @property
    def server(self) -> str:
        """Scheme, host and port."""
        return str(self._configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """HTTP proxy, when configured."""
        return self._configuration.proxy or None

    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, or None for plain HTTP."""
        if not self.server.startswith("https://"):
            return None
        config = self._configuration
        context = ssl.create_default_context(cafile=config.ssl_ca_cert or None)
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file)
        if not config.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    @property
    def tls_server_name(self) -> str | None:
        """Name to check the server's certificate against, when it differs from the host."""
        return getattr(self._configuration, "tls_server_name", None) or None

    @property
    def files(self) -> tuple[str | None, str | None, str | None]:
        """Paths of CA, client certificate and client key."""
        config = self._configuration
        return config.ssl_ca_cert or None, config.cert_file or None, config.key_file or None

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is checked."""
        return bool(self._configuration.verify_ssl)

    async def authorization(self) -> str | None:
        """Value of the Authorization header; None when a client certificate logs in."""
        settings = await self._configuration.auth_settings()
        token = settings.get("BearerToken")
        return str(token["value"]) if token and token["value"] else None


async def _configuration(source: Source) -> Configuration:
    configuration = Configuration()
    if source.in_cluster:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return configuration
    await load_kube_config(  # type: ignore[no-untyped-call]
        config_file=source.kubeconfig,
        context=source.context,
        client_configuration=configuration,
        persist_config=False,
        temp_file_path=_MEMORY_FILES,
    )
    return configuration
