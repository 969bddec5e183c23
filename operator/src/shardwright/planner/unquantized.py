"""Which modules of a quantised checkpoint stay in 16 bit, layer by layer.

Decides it from the names that a config's list of left-out modules holds: kinds of modules, single layers,
whole layers. Never decides how many bytes they take.

Sources: the lists as FBGEMM, FP8, compressed-tensors and ModelOpt configs write them
(`modules_to_not_convert`, `ignore`, `exclude_modules`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from shardwright.catalog.types import NumberFormat, Quantization

KINDS = ("attention", "mlp", "shared", "experts")
_PATTERNS = {
    "attention": ("attn", "q_proj", "o_proj"),
    "mlp": ("gate_proj", "mlp.(gate", "mlp.down", "dense_mlp"),
    "shared": ("shared_expert",),
    "experts": ("experts",),
}
_ELSEWHERE = ("vision", "visual", "audio", "tower", "projector", "mtp", "nextn", "shared_expert_gate")
"""Parts of names outside the language model's own layers, and of a gate that is one row."""
_LAYER = re.compile(r"layers\.(\d+)(?!\d)")
_WHOLE_LAYER = re.compile(r".*layers\.\d+[.*]*\$?")
_WHOLE_MLP = re.compile(r".*\bmlp[.*]*\$?")


def kept_layers(quantized: Quantization, module: str, layers: Sequence[int]) -> int:
    """Return in how many of `layers` (numbers of the whole model) a kind of module stays in 16 bit."""
    if quantized.format is NumberFormat.MXFP4 and module != "experts":
        return len(layers)  # these checkpoints hold experts only in 4 bit
    if not quantized.unquantized_modules:
        return 0
    everywhere, single = _kept(quantized.unquantized_modules)[module]
    return len(layers) if everywhere else sum(layer in single for layer in layers)


@lru_cache(maxsize=512)
def _kept(names: tuple[str, ...]) -> dict[str, tuple[bool, frozenset[int]]]:
    """For each kind: whether all layers keep it, and the single layers that do."""
    everywhere: set[str] = set()
    single: dict[str, set[int]] = {kind: set() for kind in KINDS}
    for name in names:
        text = name.replace("\\", "")
        if any(part in text for part in _ELSEWHERE):
            continue
        layer = _LAYER.search(text)
        for kind in _kinds(text):
            if layer is None:
                everywhere.add(kind)
            else:
                single[kind].add(int(layer[1]))
    return {kind: (kind in everywhere, frozenset(single[kind])) for kind in KINDS}


def _kinds(name: str) -> tuple[str, ...]:
    """Return the kinds of modules that one name means."""
    if _WHOLE_LAYER.fullmatch(name):
        return KINDS
    if _WHOLE_MLP.fullmatch(name):
        return ("mlp", "shared", "experts")
    return tuple(kind for kind in KINDS if _means(name, kind))


def _means(name: str, kind: str) -> bool:
    if ("shared" in name) != (kind == "shared") or (kind == "mlp" and "experts" in name):
        return False
    return any(pattern in name for pattern in _PATTERNS[kind])
