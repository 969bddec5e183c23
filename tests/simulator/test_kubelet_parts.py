"""The node agent's decisions without a process: back-off, probes, states, variables."""

import pytest

from sim.kubelet.environment import command, expand
from sim.kubelet.status import ContainerState, exit_code, phase, pod_status, terminated
from sim.kubelet.timing import Backoff, Verdict, probe_of

CONTAINER = {"name": "engine", "image": "i", "ports": [{"name": "http", "containerPort": 8000}]}


def test_back_off_is_the_kubelets() -> None:
    backoff = Backoff()
    assert [backoff.failed(at) for at in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.failed(7 + 601) == 0, "ten minutes without an end"


def test_a_probe_is_read_with_its_named_port_and_defaults() -> None:
    probe = probe_of({"httpGet": {"path": "/health", "port": "http"}}, CONTAINER)
    assert probe is not None
    assert (probe.port, probe.path, probe.period_s, probe.timeout_s) == (8000, "/health", 10, 1)
    assert (probe.successes, probe.failures) == (1, 3)
    assert probe_of(None, CONTAINER) is None
    with pytest.raises(ValueError, match="exec"):
        probe_of({"exec": {"command": ["true"]}}, CONTAINER)


def test_a_verdict_needs_as_many_in_a_row() -> None:
    probe = probe_of({"httpGet": {"port": 1}, "failureThreshold": 3, "successThreshold": 2}, CONTAINER)
    assert probe is not None
    verdict = Verdict(probe)
    answers = [True, True, False, False, True, False, False, False, False]
    said = [None, True, None, None, None, None, None, False, False]
    assert [verdict.observe(answer) for answer in answers] == said


def test_how_a_container_ended() -> None:
    assert (exit_code(0), exit_code(1), exit_code(-9), exit_code(-15)) == (0, 1, 137, 143)
    log = b"\n".join(b"line %d" % number for number in range(1000))
    state = terminated(1, "t", log, "FallbackToLogsOnError")["terminated"]
    assert state["message"].endswith("line 999")
    assert len(state["message"]) <= 2048
    assert state["message"].count("\n") < 80
    assert "message" not in terminated(0, "t", log, "FallbackToLogsOnError")["terminated"]
    assert "message" not in terminated(1, "t", log, "File")["terminated"]


def ended(code: int) -> ContainerState:
    return ContainerState("engine", "i", state=terminated(code, "t", b"", "File"), runs=1)


@pytest.mark.parametrize(
    ("states", "policy", "ending", "said"),
    [
        ([ContainerState("a", "i")], "Always", False, "Pending"),
        ([ContainerState("a", "i", runs=1), ContainerState("b", "i")], "Always", False, "Pending"),
        ([ContainerState("a", "i", runs=1)], "Always", False, "Running"),
        ([ended(1)], "Always", False, "Running"),
        ([ended(1)], "OnFailure", False, "Running"),
        ([ended(0)], "OnFailure", False, "Succeeded"),
        ([ended(1)], "Never", False, "Failed"),
        ([ended(0)], "Always", True, "Succeeded"),
        ([ended(137)], "Always", True, "Failed"),
    ],
)
def test_phases(states: list[ContainerState], policy: str, ending: bool, said: str) -> None:
    assert phase(states, policy, ending=ending) == said


def test_a_condition_that_does_not_change_keeps_its_time() -> None:
    state = ContainerState("engine", "i", runs=1)
    pod = {"spec": {}, "status": {}}
    first = pod_status(pod, [state], "10.244.0.2", "10.244.0.1")
    for condition in first["conditions"]:
        condition["lastTransitionTime"] = "before"
    state.ready = True
    second = pod_status({"spec": {}, "status": first}, [state], "10.244.0.2", "10.244.0.1")
    kept = {c["type"]: c["lastTransitionTime"] == "before" for c in second["conditions"]}
    assert kept == {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "ContainersReady": False,
        "Ready": False,
    }
    assert all(c["reason"] is None for c in second["conditions"]), "what no longer holds is taken out"


def test_variables_in_a_command_line() -> None:
    known = {"NAME": "chat", "A": "1"}
    assert expand("$(NAME)-$(A) $$(A) $(NONE) $A", known) == "chat-1 $(A) $(NONE) $A"
    assert command({"command": ["vllm"], "args": ["--served-model-name=$(NAME)"]}, known) == [
        "vllm",
        "--served-model-name=chat",
    ]
