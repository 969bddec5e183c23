"""The mixture-of-experts keys of the known families.

Decides how many experts a layer has, how wide they are and which layers have them. Never decides memory.
"""

from collections.abc import Sequence

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, rows
from shardwright.catalog.types import MoEArchitecture

_COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k_experts",
    "experts_per_token",
)
_WIDTH_IS_INTERMEDIATE = frozenset({
    "mixtral", "gpt_oss", "llama4", "llama4_text", "minimax_m2", "granitemoe", "phimoe", "dbrx",
})  # fmt: skip


def experts(text: Fields, family: str, layers: int) -> MoEArchitecture | None:
    """Return the experts of a config.json's language model, None when it is dense. Raises CatalogError."""
    count = text.optional_integer(*_COUNT, low=0, high=1 << 16)
    if not count or count == 1:
        return None
    top_k = text.integer(*_TOP_K, high=1 << 12)
    if top_k > count:
        raise CatalogError(
            text.name("num_experts_per_tok"), f"is {top_k}, more than the {count} experts there are"
        )
    width = _width(text, family)
    shared = text.optional_integer("n_shared_experts", "num_shared_experts", low=0, high=1024) or 0
    shared_width = text.optional_integer(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", low=0
    )
    if (shared_width or family.startswith("llama4")) and not shared:
        shared = 1  # Llama 4 has one of the experts' own width, without a key for it
    dense, step = _placement(text, layers)
    return MoEArchitecture(
        num_experts=count,
        experts_per_token=top_k,
        expert_intermediate_size=width,
        num_shared_experts=shared,
        shared_intermediate_size=(shared_width or shared * width) if shared else 0,
        dense_layers=dense,
        moe_layer_step=step,
    )


def _width(text: Fields, family: str) -> int:
    found = text.optional_integer("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size")
    if found is not None:
        return found
    if family in _WIDTH_IS_INTERMEDIATE:
        return text.integer("intermediate_size", "ffn_hidden_size")
    raise CatalogError(text.name("moe_intermediate_size"), "is missing: the width of one expert")


def _placement(text: Fields, layers: int) -> tuple[int, int]:
    """Return leading dense layers, and the step between layers with experts after them."""
    dense = text.optional_integer("first_k_dense_replace", "moe_layer_start_index", low=0, high=layers) or 0
    pattern = text.data.get("moe_layer_freq")
    if isinstance(pattern, Sequence) and not isinstance(pattern, str):
        flags = rows(pattern, text.name("moe_layer_freq"))
        if len(flags) != layers:
            raise CatalogError(text.name("moe_layer_freq"), f"has {len(flags)} entries for {layers} layers")
        return sum(not flag for flag in flags), 1
    only_dense = text.data.get("mlp_only_layers")
    if only_dense is not None:
        dense = max(dense, len(rows(only_dense, text.name("mlp_only_layers"))))
    step = text.optional_integer(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", low=1, high=layers
    )
    return dense, step or 1
