"""CPU, memory, /dev/shm and disk of an engine pod.

Decides the requests beside GPUs. The figures are allowances of this project, chosen so that no engine is
throttled or killed while it loads, not measurements of one; where a measurement exists it is named.
"""

from shardwright.api.defaults import Resolved
from shardwright.catalog.types import ModelArchitecture
from shardwright.planner.types import GIB, MemoryEstimate, Parallelism
from shardwright.topology.types import Resources

CPU_MILLIS_BASE, CPU_MILLIS_PER_GPU = 2000, 1000
"""vLLM runs one busy process a GPU beside the API server and the engine core: two cores more than GPUs."""
HOST_BYTES_BASE, HOST_BYTES_PER_GPU = 4 * GIB, 4 * GIB
"""API server and engine core took 1.5 GB and a worker 1.8 GB without CUDA (vLLM 0.32 on CPU); CUDA libraries,
pinned buffers and compilation come on top."""
SHM_BYTES_SINGLE, SHM_BYTES_PER_GPU, SHM_BYTES_MOST = GIB, 2 * GIB, 16 * GIB
"""Shared memory for the tensor ranks and NCCL: published multi-GPU manifests of vLLM use 2 to 20 GiB."""
DISK_BYTES_BASE = 8 * GIB
"""Logs, compiled kernels and graphs."""
CHECKPOINT_SLACK = 1.05
"""A download holds a checkpoint's other files beside its weights."""


def shm_bytes(parallelism: Parallelism) -> int:
    """Return the size of /dev/shm, which counts against the pod's memory."""
    if parallelism.gpus == 1:
        return SHM_BYTES_SINGLE
    return min(SHM_BYTES_MOST, SHM_BYTES_PER_GPU * parallelism.gpus)


def streamer_bytes(architecture: ModelArchitecture) -> int:
    """Return the host buffer of one rank that streams from an object store, in whole GiB.

    The pod limits it to the largest tensor (`render.environment`), here taken as the embedding; without a
    limit it is 40 GB or the whole checkpoint (run-ai/runai-model-streamer, docs/src/env-vars.md).
    """
    embedding = architecture.vocab_size * architecture.hidden_size * 2
    return max(2, -(-embedding // GIB)) * GIB


def checkpoint_bytes(stated: int | None, estimate: MemoryEstimate, parallelism: Parallelism) -> int:
    """Return the checkpoint's bytes: as stated, else what all GPUs hold together."""
    return stated or int(estimate.weights_gib_per_gpu * parallelism.gpus * GIB)


def pod_resources(
    resolved: Resolved,
    estimate: MemoryEstimate,
    parallelism: Parallelism,
    architecture: ModelArchitecture,
) -> Resources:
    """Return what one pod asks for. Memory holds /dev/shm; engine.kvOffloadGiB is not acted on yet.

    Disk holds the checkpoint only when it is downloaded (source Hub) into an Ephemeral cache: from an object
    store it is streamed past the disk.
    """
    gpus = parallelism.gpus
    host = HOST_BYTES_BASE + HOST_BYTES_PER_GPU * gpus + shm_bytes(parallelism)
    if resolved.source_type == "URI":
        host += gpus * streamer_bytes(architecture)
    disk = DISK_BYTES_BASE
    if resolved.cache_type == "Ephemeral" and resolved.source_type == "Hub":
        weights = checkpoint_bytes(architecture.checkpoint_bytes, estimate, parallelism)
        disk += -(-int(weights * CHECKPOINT_SLACK) // GIB) * GIB
    return Resources(
        gpus=gpus,
        cpu_millis=CPU_MILLIS_BASE + CPU_MILLIS_PER_GPU * gpus,
        memory_bytes=host,
        ephemeral_bytes=disk,
    )
