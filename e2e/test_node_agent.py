"""The node agent: pods as processes with addresses of their own, probes, restarts, grace and deletion as a kubelet does them."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from harness.api import ApiError, Json
from harness.waiting import wait_until
from sim.kubelet.nodes import SILENT
from sim.world import CONTROL, LiveCluster

pytestmark = pytest.mark.cluster
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def with_node(live: LiveCluster) -> LiveCluster:
    live.add_node("agent-0", "NVIDIA-L40S")
    return live


def engine(name: str, **more: Json) -> Json:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.33.0",
        "command": ["vllm", "serve"],
        "args": ["m/x", "--served-model-name=chat", "--max-model-len=4096", "--shutdown-timeout=30"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "env": [{"name": "KEY", "value": "1"}],
        "startupProbe": probe | {"periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": probe | {"periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": probe | {"periodSeconds": 2, "failureThreshold": 2},
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    } | more.pop("container", {})
    spec = {"containers": [container], "terminationGracePeriodSeconds": 60} | more
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Kubelet:
    def __init__(self, live: LiveCluster) -> None:
        self.live = live
        self.api = live.cluster.api

    def create(self, pod: Json) -> Json:
        return self.api.post(PODS, pod)

    def get(self, name: str) -> Json:
        return self.api.get(f"{PODS}/{name}")

    def container(self, name: str) -> Json:
        return (self.get(name)["status"].get("containerStatuses") or [{}])[0]

    def is_ready(self, name: str) -> bool:
        return any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in self.get(name)["status"].get("conditions", [])
        )

    def until_ready(self, name: str) -> Json:
        try:
            wait_until(lambda: self.is_ready(name), f"{name} ready")
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.get(name)}\n{self.live.agent.tail()}") from late
        return self.get(name)

    def gone(self, name: str) -> bool:
        try:
            self.get(name)
        except ApiError as error:
            return error.status == 404
        return False

    def delete(self, name: str, query: str = "") -> None:
        self.api.delete(f"{PODS}/{name}{query}")

    def until_gone(self, name: str) -> None:
        wait_until(lambda: self.gone(name), f"the end of {name}")


@pytest.fixture
def kubelet(with_node: LiveCluster) -> Iterator[Kubelet]:
    yield Kubelet(with_node)
    with_node.rule()
    for pod in with_node.cluster.api.get(PODS)["items"]:
        with_node.cluster.api.delete(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    wait_until(lambda: not with_node.cluster.api.get(PODS)["items"], "no pods")


def ask(address: str, path: str, body: object = None, port: int = 8000) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}:{port}{path}", data, headers)
    with opener.open(request, timeout=30) as response:
        return response.status, response.read().decode()


def fast(**more: object) -> dict[str, Any]:
    return {"engine": {"start_s": 2.0} | more}


def test_two_pods_serve_on_one_port_at_addresses_of_their_own(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    for name in ("one", "two"):
        kubelet.create(engine(name))
    addresses = {kubelet.until_ready(name)["status"]["podIP"] for name in ("one", "two")}
    assert len(addresses) == 2
    for address in addresses:
        answer = ask(address, "/v1/completions", {"model": "chat", "prompt": "a", "max_tokens": 2})
        assert answer[0] == 200
    status = kubelet.get("one")["status"]
    assert status["phase"] == "Running"
    assert kubelet.container("one")["state"]["running"]
    assert kubelet.container("one")["restartCount"] == 0
    assert "Application startup complete" in kubelet.live.log(kubelet.get("one"))


def test_a_pod_is_not_ready_while_it_loads(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast(start_s=10_000.0))
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1, "failureThreshold": 10_000}
    kubelet.create(engine("slow", container={"startupProbe": probe}))
    wait_until(lambda: "running" in kubelet.container("slow").get("state", {}), "a process")
    assert not kubelet.is_ready("slow")
    assert kubelet.container("slow")["started"] is False


def test_a_pod_leaves_after_its_drain(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    kubelet.create(engine("slow", container={"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}))
    address = kubelet.until_ready("slow")["status"]["podIP"]
    kubelet.delete("slow")
    # preStop sleeps: it serves for a while yet.
    assert ask(address, "/health")[0] == 200
    kubelet.until_gone("slow")
    assert not answers(address)


def test_a_container_that_fails_is_tried_again_with_back_off_and_says_why(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast(load_fault="OutOfMemory"))
    kubelet.create(engine("oom"))

    def backing_off() -> Json:
        found = kubelet.container("oom")
        return (
            found if found.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff" else None
        )

    found = wait_until(backing_off, "a back-off")
    ended = found["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (1, "Error")
    assert "CUDA out of memory" in ended["message"]
    wait_s = 10 * 2 ** (found["restartCount"] - 1)  # the first restart is at once
    assert f"back-off {wait_s}s" in found["state"]["waiting"]["message"]
    assert kubelet.get("oom")["status"]["phase"] == "Running"
    kubelet.live.rule(fast())
    kubelet.until_ready("oom")
    assert kubelet.container("oom")["restartCount"] >= 2


def test_a_failed_liveness_probe_restarts_the_container(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    kubelet.create(engine("dead"))
    address = kubelet.until_ready("dead")["status"]["podIP"]
    ask(address, "/faults", {"fault": "EngineDeath"}, CONTROL)
    wait_until(lambda: kubelet.container("dead")["restartCount"] == 1, "a restart")
    kubelet.until_ready("dead")
    assert kubelet.get("dead")["status"]["podIP"] == address, "the pod keeps its address"


def test_a_start_that_takes_too_long_is_ended_by_the_startup_probe(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast(start_s=1000.0))
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1, "failureThreshold": 3}
    kubelet.create(engine("late", container={"startupProbe": probe}))
    wait_until(lambda: kubelet.container("late").get("restartCount", 0) >= 1, "a restart")


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running")])
def test_restart_policies(kubelet: Kubelet, policy: str, phase: str) -> None:
    kubelet.live.rule(fast(load_fault="HubUnauthorized"))
    kubelet.create(engine("once", restartPolicy=policy))
    wait_until(lambda: "terminated" in json.dumps(kubelet.container("once")), "an end")
    wait_until(lambda: kubelet.get("once")["status"]["phase"] == phase, phase)


def test_an_image_that_cannot_be_had_and_a_command_that_is_not_there(kubelet: Kubelet) -> None:
    kubelet.live.rule({"match": {"image": "nowhere"}, "pull": "not found"})
    kubelet.create(engine("pull", container={"image": "nowhere/vllm:1"}))
    kubelet.create(engine("start", container={"command": ["nothing"]}))
    reasons = {"ErrImagePull", "ImagePullBackOff"}
    wait_until(
        lambda: kubelet.container("pull").get("state", {}).get("waiting", {}).get("reason") in reasons,
        "ErrImagePull",
    )
    assert kubelet.get("pull")["status"]["phase"] == "Pending"
    wait_until(lambda: "StartError" in json.dumps(kubelet.container("start")), "StartError")
    kubelet.live.rule(fast())
    kubelet.until_ready("pull")


def test_a_secret_that_is_missing_is_waited_for(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    key = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}
    kubelet.create(engine("secret", container={"env": [key]}))

    def waiting() -> Json:
        return kubelet.container("secret").get("state", {}).get("waiting", {})

    wait_until(lambda: waiting().get("reason") == "CreateContainerConfigError", "the missing secret")
    assert waiting()["message"] == 'secret "key" not found'
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "hush"}}
    kubelet.api.post("/api/v1/namespaces/default/secrets", secret)
    address = kubelet.until_ready("secret")["status"]["podIP"]
    with pytest.raises(OSError, match="401"):
        ask(address, "/v1/models")


def test_a_process_that_does_not_end_is_killed_when_its_grace_is_over(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast(teardown_s=10_000.0))
    kubelet.create(engine("stuck", terminationGracePeriodSeconds=8))
    kubelet.until_ready("stuck")
    kubelet.delete("stuck")
    kubelet.until_gone("stuck")


def test_a_forced_deletion_ends_it_at_once(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    kubelet.create(engine("forced"))
    address = kubelet.until_ready("forced")["status"]["podIP"]
    kubelet.delete("forced", "?gracePeriodSeconds=0")
    wait_until(lambda: not answers(address), "nobody there")


def answers(address: str) -> bool:
    try:
        return ask(address, "/health")[0] == 200
    except OSError:
        return False


def process(address: str) -> int:
    return int(json.loads(ask(address, "/state", port=CONTROL)[1])["pid"])


def test_an_eviction_drains(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    kubelet.create(engine("evicted"))
    kubelet.until_ready("evicted")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": "default"},
    }
    kubelet.api.post(f"{PODS}/evicted/eviction", eviction)
    kubelet.until_gone("evicted")


def test_a_silent_node_is_lost_and_comes_back(kubelet: Kubelet) -> None:
    live = kubelet.live
    name = live.add_node("agent-silent", "NVIDIA-L40S")

    def ready() -> str:
        conditions = kubelet.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
        return next(c["status"] for c in conditions if c["type"] == "Ready")

    kubelet.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {SILENT: "true"}}})
    wait_until(lambda: ready() == "Unknown", "a lost node")
    kubelet.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {SILENT: None}}})
    wait_until(lambda: ready() == "True", "the node")
    kubelet.api.delete(f"/api/v1/nodes/{name}")


def test_pods_run_on_while_the_api_server_is_away(kubelet: Kubelet) -> None:
    kubelet.live.rule(fast())
    kubelet.create(engine("on"))
    address = kubelet.until_ready("on")["status"]["podIP"]
    with kubelet.live.cluster.without_apiserver():
        assert answers(address)
        before = process(address)
        ask(address, "/faults", {"fault": "Exit"}, CONTROL)
        wait_until(lambda: process(address) != before, "another process")
        wait_until(lambda: answers(address), "the engine again, without the API server")
    wait_until(lambda: kubelet.container("on")["restartCount"] == 1, "the restart told")
    kubelet.until_ready("on")
