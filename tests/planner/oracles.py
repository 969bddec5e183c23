"""The planner's rules written a second time, from their statement: never by calling the code that they judge.

Figures of an estimate, prices and the catalogue's facts are taken as given; what follows from them is not.
"""

from math import ceil

from shardwright.api.defaults import resolve

GROUPED = {"AWQ", "GPTQ", "INT4"}
"""Weight-only formats with one scale for a group of inputs, 128 where the config does not state it."""
SWITCHED = {"nvswitch", "rack_nvswitch", "xgmi_full_mesh"}
BRIDGED = {"bridge_pair_optional", "bridge_2_or_4_optional"}
CAPABILITY = {"BF16": (8, 0), "FP8": (7, 5), "FP8Block": (8, 0), "AWQ": (7, 5), "MXFP4": (8, 0)}
"""The oldest NVIDIA compute capability on which vLLM runs the formats of the models in these tests."""


def block_of(architecture):
    """Weights that a rank's share of a width must be a multiple of."""
    quantization = architecture.quantization
    name = quantization.format.value
    if name == "FP8Block":
        return max(quantization.block or (128,))
    if name == "NVFP4":
        return quantization.group_size or 16
    if name in GROUPED:
        return max(1, 128 if quantization.group_size is None else quantization.group_size)
    return 1  # scales for a tensor or a channel; vLLM pads the widths of MXFP4 experts itself


def legal(architecture, tensor, expert=False, data=1):
    """Whether a tensor degree is legal, by the rule of the design.

    It divides the attention heads; divides the KV heads or is a multiple of them; leaves each rank's widths a
    multiple of the quantisation block; and divides the padded vocabulary. With expert parallelism the routed
    experts stay whole, so that of them only the count matters.
    """
    moe, block = architecture.moe, block_of(architecture)
    heads, kv_heads = architecture.num_attention_heads, architecture.num_kv_heads
    if (expert or data > 1) and (moe is None or (expert and moe.num_experts % (tensor * data))):
        return False
    widths = []
    if moe is None or moe.dense_layers or moe.moe_layer_step > 1:
        widths.append(architecture.intermediate_size)
    if moe is not None:
        widths.append(moe.shared_intermediate_size)
        widths.append(0 if expert else moe.expert_intermediate_size / data)
    return (
        heads % tensor == 0
        and (kv_heads % tensor == 0 or tensor % kv_heads == 0)
        and all(width % (tensor * block) == 0 for width in widths)
        and 64 * ceil(architecture.vocab_size / 64) % tensor == 0
    )


def linked_gpus(product, labelled, allocatable, bridges):
    """GPUs of a node that are linked whichever of them a pod gets; 1 where no two are."""
    gpus, kind = min(labelled, allocatable), product.interconnect.value
    if kind in SWITCHED:
        return gpus if gpus <= product.island_gpus else 1
    if kind == "nvlink_cube_mesh":  # eight GPUs are two quads, and a pod may get some of both
        return gpus if labelled <= 4 else 1
    if kind in BRIDGED:  # on more than one pair a pod may get halves of two
        return 2 if bridges == "Pairs" and labelled == gpus == 2 else 1
    return 1


def wanted_context(asked, architecture):
    """The length that one request must have room for."""
    traffic = resolve(asked.spec).traffic
    longest = traffic.input_p95_tokens + traffic.output_p95_tokens
    return min(architecture.max_position_embeddings, asked.spec.model.max_context_tokens or longest)


def needed_tokens(asked, architecture, split):
    """KV tokens of one engine: one longest request, or B requests of p95 input and half of p95 output.

    With attention data parallelism of one of its ranks, which takes its share of B. B is the stated concurrency over all replicas that the budget allows (8 where nothing is stated). Specs
    with a shared prefix, a rate or a largest replica count are not covered.
    """
    resolved = resolve(asked.spec)
    traffic, least = resolved.traffic, resolved.scale.planned_replicas
    replicas = max(1, asked.spec.pool.max_gpus // split.gpus, least)
    each = 8 if traffic.concurrency is None else min(1024, ceil(traffic.concurrency / replicas))
    asked_for = asked.spec.model.max_context_tokens or architecture.max_position_embeddings
    request = min(
        traffic.input_p95_tokens + ceil(traffic.output_p95_tokens / 2),
        asked_for, architecture.max_position_embeddings,
    )  # fmt: skip
    return max(wanted_context(asked, architecture), max(1, ceil(each / split.data)) * request)


def overheads_gib(estimate):
    """Weights and everything beside the KV cache, from the lines of a bill."""
    return (
        estimate.weights_gib_per_gpu
        + estimate.activation_gib
        + estimate.non_torch_gib
        + estimate.cuda_graph_gib
    )


def cost(product, gpus):
    """Dollars an hour of a replica, or its GPUs where the product has no price."""
    return gpus if product.price_per_gpu_hour is None else product.price_per_gpu_hour * gpus
