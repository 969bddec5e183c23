"""`make demo`: three services planned, placed and explained on a real control plane; one that cannot fit.

It decides what is shown, and what must be true of it: the exit code is 1 when a plan or a place is not the one that
the example promises. It leaves no process and no file behind, however it ends.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

import demo_view as view
from harness import binaries, nodes
from harness.cluster import Cluster
from harness.processes import ProcessError
from harness.waiting import wait_until
from operator_process import ROOT, OperatorProcess

Json = dict[str, Any]
EXAMPLES = ROOT / "examples"
_OURS = "app.kubernetes.io/managed-by=shardwright"


@dataclass(frozen=True, slots=True)
class Expected:
    """An example, the plan it promises, and why that is right."""

    file: str
    tensor: int
    pipeline: int
    products: tuple[str, ...]
    why: str


EXPECTED: tuple[Expected, ...] = (
    Expected(
        "chat-8b.yaml",
        1,
        1,
        (),
        "8B fits one GPU: more traffic means more replicas, not more tensor parallelism",
    ),
    Expected(
        "large-70b.yaml",
        4,
        1,
        ("NVIDIA-H100-80GB-HBM3",),
        "the smallest TP that fits, inside one NVLink island",
    ),
    Expected("code-32b-a6000.yaml", 2, 1, ("NVIDIA-RTX-A6000",), "two A6000 hold it, without NVLink"),
)
CANNOT_FIT = "cannot-fit.yaml"
UNUSABLE_NODES = frozenset({"h100-cordoned", "h100-reserved", "h100-mig", "l40s-shared"})


class Demo:
    """One run; `failures` collects what was not as expected."""

    def __init__(self, cluster: Cluster, *, color: bool) -> None:
        self._cluster = cluster
        self._color = color
        self._operator = OperatorProcess(cluster)
        self._heading = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Show everything, in order."""
        self._control_plane()
        self._start_operator()
        try:
            services = self._apply_examples()
            self._explain(services)
            self._cannot_fit()
            self._delete()
        finally:
            self._operator.stop()

    def _control_plane(self) -> None:
        with self._step("A real control plane with simulated GPU nodes") as say:
            self._cluster.start()
            self._cluster.apply(*nodes.demo_pool(), *nodes.demo_foreign_pods())
            names = ", ".join(name for name in sorted(self._cluster.pids))
            say(f"{view.INDENT}running: {names}")
            wait_until(self._foreign_pods_run, "the other team's pods")
            _print(
                view.fleet(
                    self._list("/api/v1/nodes"),
                    self._list(f"/api/v1/namespaces/{nodes.FOREIGN_NAMESPACE}/pods"),
                )
            )

    def _start_operator(self) -> None:
        with self._step("The operator, with the rights of its chart and nothing else") as say:
            self._operator.install()
            self._operator.launch()
            took = self._operator.wait_ready()
            say(f"{view.INDENT}{self._operator.user} is ready after {took:.1f} s")

    def _apply_examples(self) -> list[Json]:
        with self._step("Three services, one resource each") as say:
            files = [argument for each in EXPECTED for argument in ("-f", f"examples/{each.file}")]
            say(view.command(f"kubectl apply {' '.join(files)}", color=self._color))
            self._cluster.kubectl("apply", *_absolute(files))
            services = [self._until_ready(example(each.file)) for each in EXPECTED]
            say(view.command("kubectl get lsvc", color=self._color))
            _print(_indented(self._cluster.kubectl("get", "lsvc")))
            return services

    def _explain(self, services: list[Json]) -> None:
        with self._step("Each plan with its reasons, and its pods on their nodes") as say:
            products = self._products()
            for service, expected in zip(services, EXPECTED, strict=True):
                pods = self._pods(service)
                _print(view.explanation(service))
                _print(view.pods_on_nodes(pods, products))
                wrong = check(expected, service, pods, products)
                self.failures += wrong
                say("".join(f"{view.INDENT}NOT AS EXPECTED: {each}\n" for each in wrong))

    def _cannot_fit(self) -> None:
        with self._step("One that cannot fit, and what it is told") as say:
            say(view.command(f"kubectl apply -f examples/{CANNOT_FIT}", color=self._color))
            self._cluster.kubectl("apply", "-f", str(EXAMPLES / CANNOT_FIT))
            manifest = example(CANNOT_FIT)
            service = wait_until(
                lambda: _if(
                    self._service(manifest), lambda it: view.condition(it, "Planned")["status"] == "False"
                ),
                f"{CANNOT_FIT} refused",
            )
            refused = view.condition(service, "Planned")
            say(f"  {service['metadata']['name']}: Planned=False, {refused['reason']}")
            _print(view.wrapped("", refused["message"], label_width=0))
            if self._pods(service):
                self.failures.append(f"{CANNOT_FIT}: pods exist although nothing fits")
            for each in EXPECTED:
                if view.condition(self._service(example(each.file)), "Ready")["status"] != "True":
                    self.failures.append(f"{each.file}: no longer Ready beside the one that cannot fit")

    def _delete(self) -> None:
        with self._step("Delete them; the garbage collector takes what the operator made") as say:
            files = [
                argument for each in (*(e.file for e in EXPECTED), CANNOT_FIT) for argument in ("-f", each)
            ]
            say(view.command("kubectl delete lsvc --all", color=self._color))
            self._cluster.kubectl(
                "delete", "--wait=true", *_absolute([f"examples/{a}" if a != "-f" else a for a in files])
            )
            # A garbage collector looks for new kinds twice a minute, and LLMService is new to this one.
            say(f"{view.INDENT}a garbage collector this young may take half a minute to notice the new kind")
            wait_until(lambda: not self._left_over(), "every child gone")
            say(f"{view.INDENT}services, Deployments and pods are gone; no finalizer was involved")

    @contextmanager
    def _step(self, title: str) -> Iterator[Callable[[str], None]]:
        self._heading += 1
        print(view.heading(self._heading, title, color=self._color), flush=True)

        def say(text: str) -> None:
            if text:
                print(text.rstrip("\n"), flush=True)

        yield say

    def _until_ready(self, manifest: Json) -> Json:
        def is_ready(service: Json) -> bool:
            seen = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
            return bool(seen and view.condition(service, "Ready")["status"] == "True")

        name = manifest["metadata"]["name"]
        try:
            return wait_until(lambda: _if(self._service(manifest), is_ready), f"{name} Ready")
        except TimeoutError:
            _print(_indented(self._cluster.kubectl("describe", "lsvc", name, check=False)))
            raise

    def _service(self, manifest: Json) -> Json:
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace", "default")
        path = f"/apis/{manifest['apiVersion']}/namespaces/{namespace}/llmservices/{metadata['name']}"
        return dict(self._cluster.api.get(path))

    def _pods(self, service: Json) -> list[Json]:
        metadata = service["metadata"]
        selector = f"shardwright.dev/service={metadata['name']}"
        return self._list(f"/api/v1/namespaces/{metadata['namespace']}/pods?labelSelector={selector}")

    def _products(self) -> dict[str, str]:
        found = self._list("/api/v1/nodes")
        return {
            n["metadata"]["name"]: n["metadata"]["labels"].get("nvidia.com/gpu.product", "") for n in found
        }

    def _foreign_pods_run(self) -> bool:
        pods = self._list(f"/api/v1/namespaces/{nodes.FOREIGN_NAMESPACE}/pods")
        return bool(pods) and all(view.ready(pod) == "True" for pod in pods)

    def _left_over(self) -> list[str]:
        paths = (
            "/apis/apps/v1/deployments",
            "/api/v1/pods",
            "/api/v1/services",
            "/apis/apps/v1/controllerrevisions",
        )
        return [
            it["metadata"]["name"] for path in paths for it in self._list(f"{path}?labelSelector={_OURS}")
        ]

    def _list(self, path: str) -> list[Json]:
        return list(self._cluster.api.get(path)["items"])


def check(expected: Expected, service: Json, pods: list[Json], products: dict[str, str]) -> list[str]:
    """Give what is not as the example promises, as sentences; none when all is well."""
    plan, name = service["status"]["plan"], service["metadata"]["name"]
    wrong = []
    if (plan["tensor"], plan["pipeline"]) != (expected.tensor, expected.pipeline):
        wanted = f"TP{expected.tensor} PP{expected.pipeline}"
        wrong.append(f"{name}: TP{plan['tensor']} PP{plan['pipeline']} instead of {wanted} ({expected.why})")
    if expected.products and plan["gpuProduct"] not in expected.products:
        wrong.append(f"{name}: planned on {plan['gpuProduct']} instead of {' or '.join(expected.products)}")
    if len(pods) != plan["replicas"]:
        wrong.append(f"{name}: {len(pods)} pods instead of {plan['replicas']}")
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if products.get(node) != plan["gpuProduct"]:
            wrong.append(f"{name}: a pod is on {node or 'no node'}, which is no {plan['gpuProduct']}")
        if node in UNUSABLE_NODES:
            wrong.append(f"{name}: a pod is on {node}, which is not to be used")
        if view.gpus(pod) != plan["gpusPerReplica"]:
            wrong.append(f"{name}: a pod holds {view.gpus(pod)} GPUs instead of {plan['gpusPerReplica']}")
    return wrong


def main() -> int:
    """Run the demo; 0 when everything was as expected."""
    began, color = time.monotonic(), view.use_color()
    # Ending by SIGTERM must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(
        "shardwright decides how to serve a model with vLLM, and says why. No GPU, Docker or cluster is needed here."
    )
    try:
        binaries.ensure()
        cluster = Cluster()
        try:
            demo = Demo(cluster, color=color)
            demo.run()
        finally:
            # A second Ctrl-C must not cut the cleaning up short.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            cluster.stop()
    except KeyboardInterrupt:
        print("\ninterrupted; everything was stopped", file=sys.stderr)
        return 130
    except (ProcessError, TimeoutError, RuntimeError, OSError) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    print(f"\nStopped; nothing is left running. {time.monotonic() - began:.0f} s in all.")
    for failure in demo.failures:
        print(f"NOT AS EXPECTED: {failure}", file=sys.stderr)
    if not demo.failures:
        print(_NEXT)
    return 1 if demo.failures else 0


_NEXT = """
Try next:
    make cluster                       the same control plane, kept in the background (make cluster-down stops it)
    .venv/bin/shardwright estimate --model meta-llama/Llama-3.3-70B-Instruct --gpu NVIDIA-H100-80GB-HBM3 --tp 4
    less docs/concepts.md              how a plan is made"""


def example(file: str) -> Json:
    """Read an example's LLMService."""
    documents = [each for each in yaml.safe_load_all((EXAMPLES / file).read_text()) if each]
    return next(dict(each) for each in documents if each["kind"] == "LLMService")


def _absolute(arguments: list[str]) -> list[str]:
    return [argument if argument == "-f" else str(ROOT / argument) for argument in arguments]


def _if(value: Json, holds: Callable[[Json], bool]) -> Json:
    """Give the value when it holds, else nothing, for a wait."""
    return value if holds(value) else {}


def _indented(text: str) -> list[str]:
    return [view.INDENT + line for line in text.splitlines()]


def _print(lines: list[str]) -> None:
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
