"""`shardwright endpoints`: keeps the list of engines of a router. Decides how options are written."""

import argparse
import os
import sys
from functools import partial
from typing import Final

from shardwright.api.names import API_KEY
from shardwright.cli import option_values

_WHOLE: Final = partial(option_values.whole, least=0)
_DESCRIPTION = (
    "Follows the EndpointSlices of the Service --service and keeps the worker list of the router at --router "
    "as they have it. /readyz says whether the router may get requests: it answers, and has been given its "
    "engines. With --activator-port it holds requests while no engine serves, and /held says how many; those "
    "at paths which vLLM guards must bring the key in the environment's VLLM_API_KEY, where there is one. It "
    "logs in as `shardwright run` does; an API server that cannot be reached changes nothing. "
    "The operator puts it beside each router. Exit code: 0 stopped by a signal, 1 failed, and its log says "
    "why, 2 bad input."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser of `endpoints`."""
    parser = subparsers.add_parser(
        "endpoints", help="keep a router's list of engines", description=_DESCRIPTION
    )
    parser.add_argument("--service", required=True, metavar="NAME", help="Service over the engines")
    parser.add_argument("--namespace", required=True, metavar="NS", help="its namespace")
    parser.add_argument(
        "--router", default="http://127.0.0.1:8000", metavar="URL", help="the router (%(default)s)"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to log in with")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument("--address", default="0.0.0.0", metavar="ADDRESS", help="(%(default)s)")  # noqa: S104
    parser.add_argument(
        "--port",
        type=option_values.port,
        default=8001,
        metavar="PORT",
        help="port of /healthz and /readyz; 0 for any free one (%(default)s)",
    )
    parser.add_argument(
        "--activator-port",
        type=option_values.port,
        default=0,
        metavar="PORT",
        help="port of 127.0.0.1 at which requests are held while no engine serves; 0: none are (%(default)s)",
    )
    parser.add_argument("--model", default="", metavar="NAME", help="name that /v1/models gives then")
    parser.add_argument(
        "--hold-requests",
        type=_WHOLE,
        default=256,
        metavar="N",
        help="requests held at most (%(default)s)",
    )
    parser.add_argument(
        "--hold-seconds",
        type=_WHOLE,
        default=600,
        metavar="S",
        help="how long one is held at most (%(default)s)",
    )
    parser.add_argument(
        "--drain-seconds",
        type=_WHOLE,
        default=0,
        metavar="S",
        help="how long they are held after SIGTERM (%(default)s)",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Follow until it is told to stop; the exit code (2: bad input)."""
    if not args.router.startswith("http://"):
        print("--router must be an http:// URL", file=sys.stderr)
        return 2
    # Imported here: the offline commands must not load the Kubernetes client.
    from shardwright.cluster.credentials import Source  # noqa: PLC0415
    from shardwright.endpoints.activator import Limits  # noqa: PLC0415
    from shardwright.endpoints.process import Options, start  # noqa: PLC0415

    return start(
        Options(
            source=Source(kubeconfig=args.kubeconfig, context=args.context),
            namespace=args.namespace,
            service=args.service,
            router=args.router.rstrip("/"),
            address=args.address,
            port=args.port,
            log_format=args.log_format,
            activator_port=args.activator_port,
            model=args.model,
            key=os.environ.get(API_KEY, ""),
            limits=Limits(
                requests=args.hold_requests,
                wait_s=float(args.hold_seconds),
                drain_s=float(args.drain_seconds),
            ),
        )
    )
