"""The facts that decisions use, as values: model architectures, GPU products, engine version classes.

Decides how a fact is named and in which unit. Never guesses one: what a source does not state is None, and
whoever needs it must say that it is missing.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class NumberFormat(StrEnum):
    """How a checkpoint stores its weights, by what a GPU must support to run it."""

    BF16 = "BF16"
    FP16 = "FP16"
    FP32 = "FP32"
    FP8 = "FP8"
    FP8_BLOCK = "FP8Block"
    INT8 = "INT8"
    INT4 = "INT4"
    AWQ = "AWQ"
    GPTQ = "GPTQ"
    MXFP4 = "MXFP4"
    NVFP4 = "NVFP4"
    UNKNOWN = "Unknown"


FORMATS_16BIT = frozenset({NumberFormat.BF16, NumberFormat.FP16, NumberFormat.FP32})
"""Not quantised; vLLM loads all three in 16 bit."""
FORMATS_FP8 = frozenset({NumberFormat.FP8, NumberFormat.FP8_BLOCK})
FORMATS_INT4 = frozenset({NumberFormat.INT4, NumberFormat.AWQ, NumberFormat.GPTQ})
"""Widened to 16 bit before they are multiplied."""


class AttentionKind(StrEnum):
    """What decides the KV cache's bytes for a token."""

    FULL = "Full"
    MLA = "MLA"
    SLIDING_HYBRID = "SlidingHybrid"
    STATE_HYBRID = "StateHybrid"
    """Mamba or gated-delta layers beside attention: its state is not modelled."""
    OTHER = "Other"
    """Compressed, chunked or unknown attention: not modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoEArchitecture:
    """Mixture-of-experts facts."""

    num_experts: int
    experts_per_token: int
    expert_intermediate_size: int
    num_shared_experts: int = 0
    shared_intermediate_size: int = 0
    dense_layers: int = 0
    """Leading layers with a dense MLP instead of experts."""
    moe_layer_step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAArchitecture:
    """Multi-head latent attention facts."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_heads: int = 0
    index_head_dim: int = 0
    """Sparse-attention indexer (DeepSeek-V3.2, GLM-5): it keeps its own cache beside the latent one; 0
    without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A checkpoint's number format, its quantisation block and what stays in 16 bit."""

    format: NumberFormat
    method: str = ""
    """`quant_method` of the config, for messages."""
    block: tuple[int, int] | None = None
    group_size: int | None = None
    unquantized_modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """What a model's config.json says that memory, latency and legality depend on."""

    model_id: str
    family: str
    """`model_type` of the config."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    attention: AttentionKind = AttentionKind.FULL
    sliding_window: int | None = None
    num_full_attention_layers: int | None = None
    """Layers with full attention in a sliding-window hybrid; None where all layers are alike."""
    moe: MoEArchitecture | None = None
    mla: MLAArchitecture | None = None
    quantization: Quantization = Quantization(format=NumberFormat.BF16)
    multimodal: bool = False
    gated_mlp: bool = True
    """Three matrices (gate, up, down) in the MLP; False: two (Phi-2, GPT-2, OPT)."""
    attention_bias: bool = False
    rotary_dim: int | None = None
    """Rotated part of a head; None: all of it."""
    rotary_cache_positions: int | None = None
    """Positions of the rotary cache where it is longer than the context (linear scaling); None: the
    context."""
    tower_bytes: int = 0
    """Vision or audio tower and projector, kept whole on every rank."""
    checkpoint_bytes: int | None = None
    """Sum of the checkpoint's weight files, when a source states it."""
    weights_from_checkpoint: bool = False
    """Whether `checkpoint_bytes` replaces the sum over the dimensions (given by a user, or dimensions that do
    not say how the checkpoint is quantised)."""
    unpredicted: tuple[str, ...] = ()
    """Why its memory cannot be predicted, one sentence each; empty when it can."""
    source: str = ""


PriceOrigin = Literal["Default", "Configured"]
"""Who says what a GPU costs: the catalogue, from public price lists; or the user (`catalog.prices`)."""


class Interconnect(StrEnum):
    """How the GPUs of one node reach each other."""

    NVSWITCH = "nvswitch"
    RACK_NVSWITCH = "rack_nvswitch"
    CUBE_MESH = "nvlink_cube_mesh"
    XGMI = "xgmi_full_mesh"
    BRIDGE_PAIR = "bridge_pair_optional"
    BRIDGE_2_OR_4 = "bridge_2_or_4_optional"
    SINGLE = "single_gpu"
    NONE = "none"


BRIDGED = {Interconnect.BRIDGE_PAIR: 2, Interconnect.BRIDGE_2_OR_4: 4}
"""GPUs that a bridge links at most, where one is fitted: no label says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUProduct:
    """One GPU product, keyed by its `nvidia.com/gpu.product` (or AMD product-name) label."""

    label: str
    vendor: str
    """"nvidia" or "amd"."""
    family: str
    compute_capability: tuple[int, int] | None
    memory_mib: int
    """The label's memory; capacity is taken from the node's own label when it has one."""
    visible_gib: float | None
    """What vLLM sees as total memory, when measured; else derived from memory_mib and marked in coverage."""
    interconnect: Interconnect
    island_gpus: int
    """GPUs of one node that reach each other over NVLink (or XGMI) without a bridge by choice; 1 when
    none."""
    link_gbytes_s: float | None
    pcie_gbytes_s: float | None
    memory_gbytes_s: float | None
    short_name: str
    """For plans and columns: H100, A100-40, L40S."""
    verified: bool
    price_per_gpu_hour: float | None = None
    """USD. A default is from public price lists, which differ by a factor of 2 to 4.6: state your own."""
    price_source: str = ""
    """The price lists behind the default, with what others ask; empty without one, and where the user's own
    price has taken its place."""
    bf16_tflops: float | None = None
    """Dense peak in 16 bit with 32-bit accumulation (FP16 on cards without BF16 units), TFLOP/s."""
    fp8_tflops: float | None = None
    """Dense peak in FP8; None: weights in FP8 are computed in 16 bit."""
    fp4_tflops: float | None = None
    """Dense peak in FP4; None: weights in FP4 are computed in the next wider format."""
    pcie_generation: int | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""
    price_configured: bool = False
    """Whether the price is the user's own."""

    @property
    def price_origin(self) -> PriceOrigin | None:
        """Who says the price; None without one."""
        if self.price_per_gpu_hour is None:
            return None
        return "Configured" if self.price_configured else "Default"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConstants:
    """Fitted constants of a start that no version changes; each with its source in `data/engines.json`."""

    activation_base_gib: float
    activation_tower_gib: float
    after_pool_gib: float
    """At 8192 batched tokens."""
    context_gib: float
    rocm_16bit_experts_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineClass:
    """What changed between vLLM versions that a memory prediction depends on."""

    version: tuple[int, int, int]
    name: str
    """The class, such as "0.17-0.19", for messages and coverage."""
    sampler_bytes_per_seq_vocab: float
    subtracts_cuda_graphs: bool
    cuda_graph_gib: float
    non_torch_tp1_gib: float
    non_torch_tp_gib: float
    non_torch_pp_gib: float
    has_custom_histogram_buckets: bool
    has_shutdown_timeout: bool
    measured: bool
    """False when no start of this class was measured: the margin widens and the coverage says so."""
    cuda_graph_amd_gib: float = 4.95
    """The same on ROCm."""
    default_gpu_memory_utilization_percent: int = 90
    aligns_block_experts: bool = False
    """Whether block-FP8 experts on Hopper keep DeepGEMM's buffers through the profile run."""
    v1: bool = True
    """False for the old engine, whose profile run takes one prompt of the maximum length."""
    source: str = ""
