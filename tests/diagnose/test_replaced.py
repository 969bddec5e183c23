"""What is told of engines that are replaced, and which last words are those of a broken GPU."""

import itertools

import pytest

from shardwright.api.names import LABEL_GPU_FAULT
from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import EngineFault, Step
from shardwright.diagnose.gpu_fault import XIDS, gpu_fault
from shardwright.diagnose.replaced import sentences
from wording import small_after_a_stop


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "uncorrectable ECC error encountered"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=VLLM::EngineCor, DBE", "Xid 48"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "Xid 79"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "uncorrectable NVLink error"),
        ("pynvml.NVMLError_GpuIsLost: GPU is lost", "GPU is lost"),
        ("cudaErrorECCUncorrectable", "cudaErrorECCUncorrectable"),
        # What an engine's own bug brings about as well, and what whole pools share.
        ("CUDA error: an illegal memory access was encountered", ""),
        ("CUDA error: unspecified launch failure", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=77, Graphics Exception", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=77, Ch 00000010", ""),
        ("NVRM: Xid (PCI:0000:3b:00): 480, pid=77", ""),
        ("RuntimeError: No CUDA GPUs are available", ""),
        ("CUDA out of memory. Tried to allocate 448.00 MiB", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_words_of_a_broken_gpu(said, words):
    assert gpu_fault(f"(EngineCore pid=77) {said}\nRuntimeError: Engine core died") == words


def test_every_code_that_counts_is_known():
    for code in XIDS:
        assert gpu_fault(f"Xid (PCI:0000:3b:00): {code}, pid=1") == f"Xid {code}"


def every_fault():
    for step, kept in itertools.product(Step, ["", "20261130T180000Z"]):
        yield EngineFault(reason=Reason.ENGINE_STALLED, node="n1", step=step, pod="chat-1-abc", said="60 s")
        for marked in {False, bool(kept)}:
            yield EngineFault(
                reason=Reason.GPU_FAULT, node="n1", step=step, pod="chat-1-abc", said="Xid 79", kept_off=kept,
                marked=marked,
            )  # fmt: skip


@pytest.mark.parametrize("fault", list(every_fault()))
def test_each_step_is_told_with_pod_node_and_what_to_do(fault):
    [(reason, message)] = sentences([fault], "team")
    assert reason is fault.reason
    assert "chat-1-abc" in message
    assert "n1" in message
    assert fault.said in message
    assert any(word in message for word in ("kubectl", "nvidia-smi", "log", "when the service's"))
    assert small_after_a_stop(message) == []
    assert len(message) < 1000, "the most that an event takes"
    if fault.step is Step.REFUSED:
        assert "kubectl delete pod -n team chat-1-abc --grace-period=45" in message
    if fault.marked:
        assert f"kubectl label node n1 {LABEL_GPU_FAULT}-" in message
    elif fault.kept_off:
        assert "rbac.markNodes" in message


def test_pods_of_one_node_are_told_together_whatever_their_order():
    faults = [
        EngineFault(reason=Reason.GPU_FAULT, node=node, step=Step.REPLACED, pod=pod, said="Xid 79")
        for pod, node in (("b", "n1"), ("a", "n1"), ("c", "n2"))
    ]
    [(_, message)] = sentences(faults, "team")
    assert message.index("the pods a, b on the node n1") < message.index("the pod c on the node n2")
    assert sentences(faults[::-1], "team") == [(Reason.GPU_FAULT, message)]
    left = EngineFault(reason=Reason.GPU_FAULT, node="n3", step=Step.LEFT, pod="d", said="Xid 79")
    [(_, message)] = sentences([*faults, left], "team")
    assert message.index("the pod d on the node n3") < message.index("the pods a, b"), "it needs somebody"
