"""`shardwright run`: the operator itself. Decides how options are written; all else is the controller's."""

import argparse
import gc
import os
import sys

from shardwright.cli import option_values, prices, run_metrics
from shardwright.render.request import ENDPOINTS_IMAGE, ROUTER_IMAGE, RouterParts

_DESCRIPTION = (
    "Runs the operator. It logs in with --kubeconfig or --context, else with the pod's service account, else "
    "with the default kubeconfig. SIGTERM ends it; engines keep serving while it is away."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser of `run`."""
    parser = subparsers.add_parser(
        "run",
        help="run the operator",
        description=_DESCRIPTION,
    )
    login = parser.add_argument_group("API server")
    login.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to log in with")
    login.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    login.add_argument(
        "--requests-per-second",
        type=option_values.rate,
        default=400.0,
        metavar="N",
        help="client-side limit (%(default)s)",
    )
    login.add_argument(
        "--burst",
        type=option_values.whole,
        default=800,
        metavar="N",
        help="requests above it at once (%(default)s)",
    )
    scope = parser.add_argument_group("scope")
    scope.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NS",
        help="serve only this namespace; may be repeated. Default: all namespaces",
    )
    scope.add_argument(
        "--pool-config-map",
        metavar="NS/NAME",
        type=option_values.namespaced,
        help="take the nodes from this ConfigMap's key nodes.yaml (as `kubectl get nodes -o yaml` prints "
        "them) instead of reading nodes, and look at pods in the served namespaces only; needs --namespace",
    )
    scope.add_argument(
        "--mark-nodes",
        action="store_true",
        help="label a node on which the GPUs of two engines failed, so that it gets no new pods for some "
        "hours; takes the right to patch nodes. Without it only planning leaves the node out",
    )
    parser.add_argument(
        "--gateways",
        action="store_true",
        help="write HTTPRoutes and InferencePools for services with routing.type Gateway; takes the rights",
    )
    routers = parser.add_argument_group("routers (spec.routing.type: Router)")
    routers.add_argument(
        "--routers",
        action="store_true",
        help="put routers before services that do not say spec.routing.type",
    )
    routers.add_argument(
        "--router-image", default=ROUTER_IMAGE, metavar="IMAGE", help="has vllm-router (%(default)s)"
    )
    routers.add_argument(
        "--endpoints-image",
        default=ENDPOINTS_IMAGE,
        metavar="IMAGE",
        help="has `shardwright endpoints`: the operator's own (%(default)s)",
    )
    routers.add_argument(
        "--endpoints-role",
        default="ClusterRole/shardwright-endpoints",
        metavar="KIND/NAME",
        help="Role or ClusterRole that lets a router read EndpointSlices (%(default)s)",
    )
    prices.add_option(parser)
    run_metrics.add_options(parser)
    process = parser.add_argument_group("process")
    process.add_argument("--metrics-address", default="0.0.0.0", metavar="ADDRESS", help="(%(default)s)")  # noqa: S104
    process.add_argument(
        "--metrics-port",
        type=option_values.port,
        default=8080,
        metavar="PORT",
        help="port of /metrics, /healthz and /readyz; 0 for any free one (%(default)s)",
    )
    process.add_argument(
        "--workers", type=option_values.whole, default=16, metavar="N", help="services at once (%(default)s)"
    )
    process.add_argument(
        "--instance", default="", metavar="NAME", help="name in events; default: the host name"
    )
    process.add_argument("--log-format", choices=("text", "json"), default="text", help="(%(default)s)")
    process.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the operator until it is told to stop; the exit code (2: bad input)."""
    if args.pool_config_map and not args.namespace:
        print(
            "--pool-config-map needs --namespace: without nodes, foreign pods elsewhere are not seen",
            file=sys.stderr,
        )
        return 2
    kind, _, role = args.endpoints_role.partition("/")
    if kind not in {"Role", "ClusterRole"} or not role:
        print("--endpoints-role must be Role/NAME or ClusterRole/NAME", file=sys.stderr)
        return 2
    try:
        engine_metrics = run_metrics.read(args)
        products = prices.read(args.prices)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    # Imports and the first lists make many objects that stay: to look at them again and again for cycles took
    # 0.7 s of CPU at 1000 services. The controller turns collection on when it is ready.
    gc.disable()
    # Imported here: the offline commands must not load kopf or kubernetes.
    from shardwright.cluster.credentials import Source  # noqa: PLC0415
    from shardwright.controller.app import Options  # noqa: PLC0415
    from shardwright.controller.app import run as start  # noqa: PLC0415

    return start(
        Options(
            source=Source(kubeconfig=args.kubeconfig, context=args.context),
            namespaces=tuple(dict.fromkeys(args.namespace)),
            pool_config_map=args.pool_config_map,
            metrics_address=args.metrics_address,
            metrics_port=args.metrics_port,
            instance=args.instance or os.environ.get("POD_NAME", ""),
            workers=args.workers,
            requests_per_second=args.requests_per_second,
            burst=args.burst,
            engine_metrics=engine_metrics,
            mark_nodes=args.mark_nodes,
            gateways=args.gateways,
            routers=args.routers,
            products=products,
            router=RouterParts(
                image=args.router_image,
                endpoints_image=args.endpoints_image,
                role_kind=kind,
                role_name=role,
            ),
            log_format=args.log_format,
            log_level=args.log_level,
        )
    )
