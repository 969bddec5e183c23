"""The answer of `shardwright diff`, as a document.

Decides which figures there are and what they are called. `docs/diff.schema.json` is generated from it: within
a version fields are only added. null is "not known" or "none", never zero. Never computes.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from shardwright.api.base import field_name

VERSION: Final = 1
"""Of the document: a change of meaning raises it."""


class Part(BaseModel):
    """Base of all parts: frozen, camelCase in JSON, nothing unknown."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=field_name,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class MixShare(Part):
    """One product's part in two that would take the load for less."""

    gpu_product: str
    """GPU product label."""
    parallelism: str
    """How one replica is split, such as TP2."""
    replicas: int
    """Replicas on this product."""
    gpus: int
    """GPUs of these replicas."""
    traffic_percent: int
    """Share of the traffic that they take."""
    price_per_hour: str | None
    """Price of these replicas, two decimals, in the price list's currency."""


class Running(Part):
    """A revision with its replicas. All but the name is null when only the cluster knows the rest."""

    revision: str
    """Its 8 hex digits."""
    summary: str | None = None
    """Its choice in short, such as `H100 TP2 ×4`."""
    replicas: int | None = None
    """Replicas that run, or would."""
    gpus: int | None = None
    """GPUs of all its replicas."""
    price_per_hour: str | None = None
    """Price of all its replicas, two decimals, in the price list's currency."""
    model: str | None = None
    """Checkpoint that is served."""
    gpu_product: str | None = None
    """GPU product label."""
    tensor: int | None = None
    """Tensor-parallel degree."""
    pipeline: int | None = None
    """Pipeline-parallel degree."""
    data: int | None = None
    """Attention data-parallel degree."""
    expert: bool | None = None
    """Whether experts are spread over the ranks."""
    max_context_tokens: int | None = None
    """Longest prompt plus answer that is served."""
    ttft_milliseconds: int | None = None
    """Predicted time to first token at the planned load."""
    tpot_milliseconds: str | None = None
    """Predicted time per output token at the planned load."""
    cheaper_mix: list[MixShare] | None = None
    """Two GPU products that would take the load together for less; advice, since a service runs on one."""


class FieldChange(Part):
    """A field of the spec that is different."""

    field: str
    """Its path, such as `spec.pool.maxGPUs`."""
    before: str | int | bool | None
    """Its value when it is a plain one; null when it is not, or is not written."""
    after: str | int | bool | None
    """Likewise."""
    effect: Literal["Template", "Arrangement", "Neither"]
    """What it feeds: the pods themselves; the planner's choice; neither, so that it never moves a pod."""


class Refusal(Part):
    """Why the new spec leads to nothing: what runs keeps running, and a new service does not start."""

    reason: str
    """One word from the table of reasons."""
    message: str
    """What is wrong, and what to write instead."""


class ServiceDiff(Part):
    """One service."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    change: Literal["Added", "Removed", "Changed", "Unchanged"]
    """What the manifests say."""
    pods: Literal["Stay", "Scale", "Restart", "Start", "Stop"]
    """What the operator does with the pods: none moves; some come or go while the others stay; all are
    replaced; all are new; all end."""
    summary: str
    """All of it in one line."""
    phrases: list[str]
    """The parts of that line."""
    before: Running | None
    """In force before; null when nothing was."""
    after: Running | None
    """In force afterwards; null when nothing is."""
    waits: Running | None
    """What the new spec leads to and does not run: it waits for approval, or another revision is pinned."""
    waits_phrases: list[str]
    """What would change if it were approved."""
    refused: Refusal | None
    """Why the new spec leads to nothing."""
    fields: list[FieldChange]
    """The fields of the spec that are different."""
    pod_changes: list[str]
    """What is different in the pods, or would be if what waits were approved."""
    notes: list[str]
    """What was assumed or is ignored."""


class Total(Part):
    """All services together."""

    gpus: int | None
    """GPUs; null when those of some service are not known."""
    price_per_hour: str | None
    """Price, two decimals; null when that of some service is not known."""


class DiffReport(Part):
    """What changes."""

    schema_version: Literal[1] = VERSION
    """Of this document."""
    verdict: Literal["NoChange", "Changes", "Refused"]
    """Nothing is different; something is; some new spec leads to nothing."""
    restarts: int
    """Services whose pods restart."""
    before: Total
    """Before."""
    after: Total
    """Afterwards."""
    services: list[ServiceDiff]
    """All services of both sides, by namespace and name."""
