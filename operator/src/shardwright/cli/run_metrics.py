"""Options of `shardwright run` about the engines' metrics. Decides how they are written, and nothing else."""

import argparse

from shardwright.cli.option_values import namespaced
from shardwright.metrics.login import EngineMetrics, Login

_PROMETHEUS = "prometheus_"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "engine metrics",
        "What engines report is held against what was planned (status.calibration), services in mode "
        "Auto are sized by it (status.scaling), and engines that hang are replaced. It is read from "
        "Prometheus where a URL is given, else from the engines' own /metrics. Files hold secrets and are "
        "read again each "
        "time; no secret is an option.",
    )
    add = group.add_argument
    add("--engine-metrics", choices=("auto", "off"), default="auto", help="off: read none (%(default)s)")
    add(
        "--engine-metrics-interval",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="between two readings of the fleet, 1 or more (%(default)s)",
    )
    add(
        "--scaling-interval",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="between two looks of the autoscaler, 1 or more (%(default)s)",
    )
    add(
        "--stall-seconds",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="replace an engine that has requests and brings no token for so long, or for three times what "
        "is predicted for its longest prompt where that is more; 0: never (%(default)s)",
    )
    add("--prometheus-url", default="", metavar="URL", help="such as http://prometheus.monitoring.svc:9090")
    add("--prometheus-bearer-token-file", default="", metavar="FILE", help="log in with this token")
    add("--prometheus-username", default="", metavar="NAME", help="log in with this name, and with")
    add("--prometheus-password-file", default="", metavar="FILE", help="this password")
    add("--prometheus-client-cert-file", default="", metavar="FILE", help="log in with this certificate, and")
    add("--prometheus-client-key-file", default="", metavar="FILE", help="its key (mTLS)")
    add(
        "--prometheus-ca-file", default="", metavar="FILE", help="trust this authority; default: the system's"
    )
    add("--prometheus-tenant", default="", metavar="TENANT", help="value of the header X-Scope-OrgID")
    add(
        "--prometheus-namespace-label",
        default="namespace",
        metavar="LABEL",
        help="label with the namespace of a pod (%(default)s)",
    )
    add("--prometheus-pod-label", default="pod", metavar="LABEL", help="label with its name (%(default)s)")
    add(
        "--prometheus-stale",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="how old a figure may be: some scrapes (%(default)s)",
    )
    add(
        "--calibration-store",
        type=namespaced,
        metavar="NS/NAME",
        help="keep what was measured in this ConfigMap, and plan with it. Default: nowhere",
    )


def read(args: argparse.Namespace) -> EngineMetrics | None:
    """Return the settings; None when no metrics are to be read. Raises ValueError naming the option."""
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(args).items()
        if name.startswith(_PROMETHEUS) and name != "prometheus_url" and value not in _DEFAULTS
    ]
    if args.engine_metrics == "off":
        if args.calibration_store or args.prometheus_url:
            raise ValueError("--engine-metrics off reads nothing: leave out the other options, or it")
        return None
    if given and not args.prometheus_url:
        raise ValueError(f"{given[0]} needs --prometheus-url")
    if not args.engine_metrics_interval >= 1:
        raise ValueError("--engine-metrics-interval: write 1 or more")
    if not args.scaling_interval >= 1:
        raise ValueError("--scaling-interval: write 1 or more")
    if not (args.stall_seconds == 0 or args.stall_seconds >= 1):
        raise ValueError("--stall-seconds: write 1 or more, or 0")
    if not args.prometheus_stale > 0:
        raise ValueError("--prometheus-stale: write seconds above 0")
    return EngineMetrics(
        prometheus=Login(
            url=args.prometheus_url,
            bearer_token_file=args.prometheus_bearer_token_file,
            username=args.prometheus_username,
            password_file=args.prometheus_password_file,
            client_certificate_file=args.prometheus_client_cert_file,
            client_key_file=args.prometheus_client_key_file,
            ca_file=args.prometheus_ca_file,
            tenant=args.prometheus_tenant,
            namespace_label=args.prometheus_namespace_label,
            pod_label=args.prometheus_pod_label,
        )
        if args.prometheus_url
        else None,
        interval_s=args.engine_metrics_interval,
        scaling_interval_s=args.scaling_interval,
        stall_s=args.stall_seconds,
        stale_s=args.prometheus_stale,
        store=args.calibration_store,
    )


_DEFAULTS = ("", "namespace", "pod", 180.0)
