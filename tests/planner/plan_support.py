"""Requests to the planner, written shortly: assumed nodes, catalogue models, a spec as a dict."""

from dataclasses import replace
from functools import cache

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import case_of, explain
from shardwright.planner.explanation.document import Service
from shardwright.planner.explanation.text import short_text, whole_text
from shardwright.planner.types import ModelChoice, NoPlan, PlanRequest
from shardwright.render.revision import revision_data
from shardwright.topology.pool import pool_of_shapes
from wording import small_after_a_stop

H100, H200, A100_40, A100_80 = (
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H200",
    "NVIDIA-A100-SXM4-40GB",
    "NVIDIA-A100-SXM4-80GB",
)
L40S, A6000, L4, V100, B200, T4 = (
    "NVIDIA-L40S", "NVIDIA-RTX-A6000", "NVIDIA-L4", "Tesla-V100-SXM2-32GB", "NVIDIA-B200", "Tesla-T4",
)  # fmt: skip
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
LLAMA_70B_FP8 = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"
QWEN_32B = "Qwen/Qwen3-32B"
QWEN_MOE_FP8 = "Qwen/Qwen3-30B-A3B-FP8"


@cache
def products():
    return load_products()


def without_prices(known, labels=None):
    """The products without the prices of some labels, or of all."""
    return {
        name: replace(product, price_per_gpu_hour=None, price_source="")
        if labels is None or product.label in labels
        else product
        for name, product in known.items()
    }


def shapes(*wanted, bridges="None"):
    """A pool of (product, GPUs a node[, nodes])."""
    return pool_of_shapes([(*w, 1)[:3] for w in wanted], products(), bridges)


def request(model_id, nodes, *, architecture=None, version="0.33.0", **spec):
    """A PlanRequest; keyword arguments are blocks of the spec."""
    models = load_models()
    found = LLMServiceSpec.model_validate(
        {
            **spec,
            "model": {"id": model_id, **spec.get("model", {})},
            "pool": {"maxGPUs": 16, **spec.get("pool", {})},
        }
    )
    choices = [ModelChoice(model_id=model_id, revision=None, architecture=architecture or models[model_id])]
    choices += [
        ModelChoice(model_id=v.id, revision=v.revision, architecture=models[v.id])
        for v in found.model.variants or ()
    ]
    return PlanRequest(
        spec=found, models=tuple(choices), pool=nodes, engine=engine_class(version), products=products()
    )


def decide(model_id, nodes, **spec):
    """The decision for a model on a pool."""
    found = plan(request(model_id, nodes, **spec))
    told = [found.message] if isinstance(found, NoPlan) else [found.binding_constraint, *found.notes]
    for text in (*told, *(c.message for c in found.candidates)):
        assert small_after_a_stop(text) == [], text
    return found


def explained(asked, decision=None, placement=None):
    """The explanation of a request, without curves and costs."""
    found = plan(asked) if decision is None else decision
    return explain(case_of(Service(namespace="team-a", name="chat"), asked, found, placement))


def written(decision, placement=None, *, short=False):
    """A decision as text; targets and load are those of a spec that states none."""
    asked = request(LLAMA_8B, shapes((H100, 8)))
    found = explained(asked, decision, placement)
    return short_text(found) if short else whole_text(found)


def reasons(decision):
    """Candidate reasons by arrangement without the model's name."""
    return {f"{c.product} {c.parallelism}": c.reason.value for c in decision.candidates}


def on_record(plan, revision_hash="0123abcd"):
    """The data of a ControllerRevision that holds a plan, with nothing beside it."""
    return revision_data(
        plan, revision_hash=revision_hash, digest="d", template={}, progress_deadline_s=1, startup_s=1,
        pod_monitor=False,
    )  # fmt: skip
