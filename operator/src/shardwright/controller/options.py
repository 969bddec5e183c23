"""What `shardwright run` can be told. Decides defaults; docs are `shardwright run --help`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.catalog.gpus import load_products
from shardwright.catalog.types import GPUProduct
from shardwright.cluster.credentials import Source
from shardwright.metrics.login import EngineMetrics
from shardwright.render.request import RouterParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one operator process."""

    source: Source = field(default_factory=Source)
    namespaces: tuple[str, ...] = ()
    """Serve only these; empty: all."""
    pool_config_map: tuple[str, str] | None = None
    """(namespace, name) of the ConfigMap that declares the nodes, where nodes may not be read."""
    metrics_address: str = "0.0.0.0"  # noqa: S104 -- the kubelet probes the pod's address
    metrics_port: int = 8080
    """For /metrics, /healthz and /readyz; 0: any free port."""
    instance: str = ""
    """Name in events and logs; default: the host name."""
    workers: int = 16
    requests_per_second: float = 400.0
    burst: int = 800
    engine_metrics: EngineMetrics | None = field(default_factory=EngineMetrics)
    """None: they are not read."""
    mark_nodes: bool = False
    """Label nodes whose GPUs failed, which takes the right to patch nodes."""
    gateways: bool = False
    """Write what leads from Gateways to services, which takes the rights."""
    products: Mapping[str, GPUProduct] = field(default_factory=load_products)
    """By every name, with the prices that plans from now on count with."""
    routers: bool = False
    """Services that say nothing of routing get routers."""
    router: RouterParts = field(default_factory=RouterParts)
    """Images and right of routers."""
    log_format: str = "text"
    """text (key=value) or json."""
    log_level: str = "info"

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """Namespaces to watch services and children in; None: all."""
        return self.namespaces or (None,)

    @property
    def pod_scopes(self) -> tuple[str | None, ...]:
        """Namespaces to watch pods in. All, wherever nodes are read: foreign pods hold GPUs too."""
        return self.scopes if self.pool_config_map else (None,)
