"""Where engines' metrics are read, and how to log in to Prometheus: token, password, certificate, tenant.

Decides which combinations make sense, and reads secrets from files each time, so that a rotated one is used
at once. No secret is ever part of an option, a message or a representation.
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

TENANT_HEADER = "X-Scope-OrgID"
"""What Mimir, Cortex and Loki take for the tenant."""


class LoginError(ValueError):
    """A login that cannot work; the message names the option."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What goes with each request. Its representation shows nothing."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    versions: tuple[float, ...] = ()
    """Times at which the files of a client certificate were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Where Prometheus is and who asks. Files hold one secret each; white space around it is cut off."""

    url: str
    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    client_certificate_file: str = ""
    client_key_file: str = ""
    ca_file: str = ""
    tenant: str = ""
    namespace_label: str = "namespace"
    """Label of the pod's namespace, as its scrape configuration names it."""
    pod_label: str = "pod"

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises LoginError."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise LoginError("--prometheus-url: write http:// or https:// and a host")
        if parts.username or parts.password:
            raise LoginError(
                "--prometheus-url: a password does not belong there; use --prometheus-username and "
                "--prometheus-password-file"
            )
        if parts.query or parts.fragment:
            raise LoginError("--prometheus-url: leave out what follows the path")
        if self.bearer_token_file and (self.username or self.password_file):
            raise LoginError("--prometheus-bearer-token-file and --prometheus-username: give one of them")
        if bool(self.username) is not bool(self.password_file):
            raise LoginError("--prometheus-username and --prometheus-password-file go together")
        if bool(self.client_certificate_file) is not bool(self.client_key_file):
            raise LoginError("--prometheus-client-cert-file and --prometheus-client-key-file go together")
        for option, label in (("namespace", self.namespace_label), ("pod", self.pod_label)):
            if not label.isidentifier() or not label.isascii():
                raise LoginError(f"--prometheus-{option}-label: {label!r} is no name of a label")

    @property
    def client_files(self) -> tuple[str, str] | None:
        """Client certificate and key."""
        if not self.client_certificate_file:
            return None
        return self.client_certificate_file, self.client_key_file

    def secrets(self) -> Secrets:
        """Read the files. Raises LoginError naming the file that cannot be read."""
        headers = {TENANT_HEADER: self.tenant} if self.tenant else {}
        if self.bearer_token_file:
            headers["Authorization"] = f"Bearer {_secret(self.bearer_token_file)}"
        basic = (self.username, _secret(self.password_file)) if self.username else None
        files = [path for path in (*(self.client_files or ()), self.ca_file) if path]
        return Secrets(headers=headers, basic=basic, versions=tuple(_written(path) for path in files))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """Where the engines' metrics are read."""

    prometheus: Login | None = None
    """None: at the engines themselves."""
    interval_s: float = 60.0
    scaling_interval_s: float = 15.0
    """Between two looks of the autoscaler."""
    stall_s: float = 60.0
    """For how long at least an engine with requests may bring no token; 0: none is replaced for it."""
    stale_s: float = 180.0
    """How old a figure of Prometheus may be: some scrapes."""
    store: tuple[str, str] | None = None
    """(namespace, name) of the ConfigMap that keeps what was measured for the next plan; None: nowhere."""


def _secret(path: str) -> str:
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginError(f"cannot read {path}: {_ground(error)}") from None
    if not text or not text.isprintable():
        raise LoginError(f"{path} must hold one line of text")
    return text


def _written(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError as error:
        raise LoginError(f"cannot read {path}: {_ground(error)}") from None


def _ground(error: Exception) -> str:
    return (error.strerror or "no such file") if isinstance(error, OSError) else "it is no text"
