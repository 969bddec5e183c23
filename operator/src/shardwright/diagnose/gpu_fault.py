"""Whether an engine ended because its GPU failed, from its last words.

Decides which words are those of a broken device. What a bug of the engine also brings about (an illegal
memory access, an unspecified launch failure, Xid 13, 31, 43 and 45) is not among them: such an engine starts
on the same GPU as well as on another, and no node is to be left out for it. Nor is a driver that is missing
or does not fit, which whole pools can share.
"""

import re
from typing import Final

XIDS: Final = (48, 64, 74, 79, 92, 94, 95, 119, 120, 140)
"""Codes of NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) of the device, its memory or its
links: double-bit ECC error, row remapping failed, NVLink, fallen off the bus, many ECC errors, contained
and uncontained ECC error, GSP timeout and error, unrecovered ECC error."""

_WORDS: Final = (
    # CUDA runtime and driver API, error strings and names of codes 214, 220, 714, 721
    # (docs.nvidia.com/cuda/cuda-runtime-api, cudaError); HIP has the first of them too.
    r"uncorrectable ECC error(?: encountered)?",
    r"uncorrectable NVLink error",
    r"hardware stack error",
    r"Invalid access of peer GPU memory over nvlink or a hardware error",
    r"CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|CONTAINED)",
    r"cudaError(?:ECCUncorrectable|NvlinkUncorrectable|HardwareStackError|Contained)",
    r"hipErrorECCNotCorrectable",
    # NVML, NVML_ERROR_GPU_IS_LOST (docs.nvidia.com/deploy/nvml-api).
    r"GPU is lost",
    # The driver, as engines that show the kernel's log print it.
    r"GPU has fallen off the bus",
    rf"Xid \([^)]*\): (?:{'|'.join(map(str, XIDS))})\b",
)
_FAULT: Final = re.compile("|".join(_WORDS))
_PLACE: Final = re.compile(r"Xid \([^)]*\): ")


def gpu_fault(message: str) -> str:
    """Return the words that name a broken GPU, such as `Xid 79`; empty when there are none."""
    found = _FAULT.search(message)
    return _PLACE.sub("Xid ", found[0]) if found else ""
