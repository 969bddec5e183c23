"""`spec.model`: which checkpoint to serve, from where, and what is known of it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, ConfigMapKeyRef, Name, SecretKeyRef, Text, keyed_by

ModelId = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")]
GitRevision = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")]
ServedName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$")]
Uri = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[a-z0-9+]+://\S+$")]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/.*$")]

Quantization = Literal["None", "FP8", "INT8", "AWQ", "GPTQ", "INT4", "MXFP4", "NVFP4"]
KVCacheDtype = Literal["Auto", "FP8"]


def _climbs(path: str | None) -> bool:
    return ".." in (path or "").split("/")


class Variant(ApiModel):
    """Another checkpoint of the same model that the planner may choose."""

    id: ModelId
    """Catalogue key or repository of the checkpoint."""
    revision: GitRevision | None = None
    """Branch, tag or commit of the checkpoint; the repository's default branch when absent."""


class HubSource(ApiModel):
    """A Hugging Face hub or a mirror of it."""

    endpoint: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^https?://\S+$")] | None = None
    """Base URL of a mirror; the public hub when absent."""
    token_secret_ref: SecretKeyRef | None = None
    """Access token, for gated models."""


class PvcSource(ApiModel):
    """Weights on an existing claim."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    path: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Directory of the checkpoint inside the claim; the claim's root when absent."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            r"!has(self.path) || !self.path.matches('^/|(^|/)\\.\\.(/|$)')",
            "source.pvc.path is a path inside the claim: write models/llama, without a leading '/' and "
            "without '..'",
            lambda s: not (s.path or "").startswith("/") and not _climbs(s.path),
            "path",
        ),
    )


class UriSource(ApiModel):
    """A location that vLLM itself loads from, such as s3://bucket/path."""

    uri: Uri
    """The location, with its scheme."""
    credentials_secret_ref: Name | None = None
    """Secret whose keys become the engine's environment, such as AWS_ACCESS_KEY_ID."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.uri.matches('^(s3|gs|az)://')",
            "vLLM loads from s3://, gs:// and az:// itself: write one of these, or put the weights on a "
            "claim and "
            "use source.type PVC",
            lambda s: s.uri.startswith(("s3://", "gs://", "az://")),
            "uri",
        ),
    )


class ModelSource(ApiModel):
    """Where the weights come from. Only the block that `type` names may be set."""

    type: Literal["Hub", "PVC", "URI"]
    """Hub downloads at start; PVC reads a claim; URI is loaded by vLLM itself."""
    hub: HubSource | None = None
    """The hub, with type Hub."""
    pvc: PvcSource | None = None
    """The claim, with type PVC."""
    uri: UriSource | None = None
    """The location, with type URI."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.type != 'PVC' || has(self.pvc)",
            "source.type PVC needs source.pvc: write pvc: {claimName: NAME, path: PATH}",
            lambda s: s.type != "PVC" or s.pvc is not None,
        ),
        CelRule(
            "self.type != 'URI' || has(self.uri)",
            "source.type URI needs source.uri: write uri: {uri: s3://BUCKET/PATH}",
            lambda s: s.type != "URI" or s.uri is not None,
        ),
        CelRule(
            "(self.type == 'Hub' || !has(self.hub)) && (self.type == 'PVC' || !has(self.pvc)) && "
            "(self.type == 'URI' || !has(self.uri))",
            "only the block that source.type names may be set: remove the others, or change source.type",
            lambda s: all(
                block is None or s.type == kind
                for kind, block in (("Hub", s.hub), ("PVC", s.pvc), ("URI", s.uri))
            ),
        ),
    )


class ModelCache(ApiModel):
    """Where downloaded weights and compiled kernels are kept between pod starts."""

    type: Literal["Ephemeral", "PVC", "HostPath"]
    """Ephemeral is lost with the pod; PVC and HostPath outlive it. Into a PVC, a Job fetches a hub's weights
    once for all engines."""
    claim_name: Name | None = None
    """The claim, with type PVC; it must be ReadWriteMany when more than one node is used."""
    path: AbsolutePath | None = None
    """The node's directory, with type HostPath."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(self.type == 'PVC') == has(self.claimName)",
            "cache.claimName goes with cache.type PVC, and only with it: write both, or neither",
            lambda s: (s.type == "PVC") == (s.claim_name is not None),
        ),
        CelRule(
            "(self.type == 'HostPath') == has(self.path)",
            "cache.path goes with cache.type HostPath, and only with it: write both, or neither",
            lambda s: (s.type == "HostPath") == (s.path is not None),
        ),
        CelRule(
            r"!has(self.path) || !self.path.matches('(^|/)\\.\\.(/|$)')",
            "cache.path must not contain '..': write the directory itself",
            lambda s: not _climbs(s.path),
            "path",
        ),
    )


class ModelConfig(ApiModel):
    """The model's own config.json for a model outside the catalogue."""

    config_map_ref: ConfigMapKeyRef
    """ConfigMap key that holds the checkpoint's config.json, unchanged."""
    weight_bytes: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Total bytes of the checkpoint's weight files; estimated from the dimensions when absent."""


class ChatTemplate(ApiModel):
    """A chat template file mounted into the engine."""

    config_map_ref: ConfigMapKeyRef
    """ConfigMap key that holds the Jinja template."""


class Adapter(ApiModel):
    """A LoRA adapter loaded beside the model."""

    name: Name
    """Model name under which clients ask for the adapter."""
    source: Text
    """Repository or path of the adapter."""
    rank: Annotated[int, Field(ge=1, le=512)] | None = None
    """LoRA rank; read from the adapter when absent."""


class ModelSpec(ApiModel):
    """The model to serve."""

    id: ModelId
    """Catalogue key such as meta-llama/Llama-3.3-70B-Instruct, or any id together with `config`."""
    revision: GitRevision | None = None
    """Branch, tag or commit on the hub; resolved to a commit once per plan."""
    served_name: ServedName | None = None
    """Model name in the OpenAI API; metadata.name when absent."""
    max_context_tokens: Annotated[int, Field(ge=128, le=16_777_216)] | None = None
    """Longest prompt plus answer; what the model declares when absent, clamped to what fits."""
    variants: Annotated[list[Variant], Field(max_length=8, json_schema_extra=keyed_by("id"))] | None = None
    """Other checkpoints of the same model that the planner may choose."""
    quantization: Quantization | None = None
    """Asserts the checkpoint's number format; a mismatch is a condition."""
    quantize_at_load: bool | None = None
    """Quantises a 16-bit checkpoint while loading; the load peak is part of the memory bill."""
    allowed_kv_cache_dtypes: Annotated[list[KVCacheDtype], Field(min_length=1, max_length=2)] | None = None
    """KV cache formats that the planner may use; [Auto] when absent."""
    source: ModelSource | None = None
    """Where the weights come from; the public hub when absent."""
    cache: ModelCache | None = None
    """Where downloads and compiled kernels are kept; Ephemeral when absent."""
    config: ModelConfig | None = None
    """The config.json of a model outside the catalogue."""
    chat_template: ChatTemplate | None = None
    """A chat template instead of the checkpoint's own."""
    tokenizer: ModelId | None = None
    """Repository of a tokenizer instead of the checkpoint's own."""
    trust_remote_code: bool | None = None
    """Lets the checkpoint run its own Python code in the engine; false when absent."""
    adapters: Annotated[list[Adapter], Field(max_length=32, json_schema_extra=keyed_by("name"))] | None = None
    """LoRA adapters loaded beside the model."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.quantizeAtLoad) || !self.quantizeAtLoad || "
            "(has(self.quantization) && self.quantization == 'FP8')",
            "quantizeAtLoad needs the format to quantize to, and FP8 is the only one: write quantization: "
            "FP8, or "
            "name an already quantized checkpoint in model.id",
            lambda s: not s.quantize_at_load or s.quantization == "FP8",
        ),
        CelRule(
            "!has(self.revision) || !has(self.source) || self.source.type == 'Hub'",
            "model.revision is a commit on the hub: leave it out when source.type is PVC or URI",
            lambda s: s.revision is None or s.source is None or s.source.type == "Hub",
            "revision",
        ),
        CelRule(
            "!has(self.variants) || !has(self.source) || self.source.type == 'Hub'",
            "model.variants are fetched from the hub: leave them out when source.type is PVC or URI",
            lambda s: s.variants is None or s.source is None or s.source.type == "Hub",
            "variants",
        ),
        CelRule(
            "!has(self.variants) || self.variants.all(v, v.id != self.id || has(v.revision))",
            "model.variants are other checkpoints: leave out the one that model.id names, or give it a "
            "revision",
            lambda s: all(v.id != s.id or v.revision is not None for v in s.variants or ()),
            "variants",
        ),
        CelRule(
            "!has(self.allowedKVCacheDtypes) || size(self.allowedKVCacheDtypes) < 2 || "
            "self.allowedKVCacheDtypes[0] != self.allowedKVCacheDtypes[1]",
            "allowedKVCacheDtypes names each format once: write [Auto], [FP8] or [Auto, FP8]",
            lambda s: len(set(s.allowed_kv_cache_dtypes or ())) == len(s.allowed_kv_cache_dtypes or ()),
            "allowedKVCacheDtypes",
        ),
    )
