"""`spec.model`: which checkpoint to serve, from where, and what is known of it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, ConfigMapKeyRef, Name, SecretKeyRef, Text

ModelId = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")]
Uri = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[a-z0-9+]+://.+$")]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/.*$")]

Quantization = Literal["None", "FP8", "INT8", "AWQ", "GPTQ", "INT4", "MXFP4", "NVFP4"]
KVCacheDtype = Literal["Auto", "FP8"]


class Variant(ApiModel):
    """Another checkpoint of the same model that the planner may choose."""

    id: ModelId
    revision: Text | None = None


class HubSource(ApiModel):
    """A Hugging Face hub or a mirror of it."""

    endpoint: Uri | None = None
    token_secret_ref: SecretKeyRef | None = None


class PvcSource(ApiModel):
    """Weights on an existing claim; `path` is inside the claim."""

    claim_name: Name
    path: Annotated[str, Field(max_length=512)] | None = None


class UriSource(ApiModel):
    """A location that vLLM itself loads from, such as s3://bucket/path."""

    uri: Uri
    credentials_secret_ref: Annotated[Name, Field()] | None = None


class ModelSource(ApiModel):
    """Where the weights come from. Exactly the block that `type` names is set."""

    type: Literal["Hub", "PVC", "URI"]
    hub: HubSource | None = None
    pvc: PvcSource | None = None
    uri: UriSource | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.type != 'PVC' || has(self.pvc)",
            "source.type PVC needs source.pvc: write pvc: {claimName: NAME, path: PATH}",
        ),
        CelRule(
            "self.type != 'URI' || has(self.uri)",
            "source.type URI needs source.uri: write uri: {uri: s3://BUCKET/PATH}",
        ),
        CelRule(
            "(self.type == 'Hub' || !has(self.hub)) && (self.type == 'PVC' || !has(self.pvc)) && "
            "(self.type == 'URI' || !has(self.uri))",
            "only the block that source.type names may be set: remove the others, or change source.type",
        ),
    )


class ModelCache(ApiModel):
    """Where downloaded weights and compiled kernels are kept between pod starts."""

    type: Literal["Ephemeral", "PVC", "HostPath"]
    claim_name: Name | None = None
    path: AbsolutePath | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("(self.type == 'PVC') == has(self.claimName)", "cache.claimName goes with cache.type PVC, and only with it"),
        CelRule("(self.type == 'HostPath') == has(self.path)", "cache.path goes with cache.type HostPath, and only with it"),
    )


class ModelConfig(ApiModel):
    """The model's own config.json for a model outside the catalogue, with its weight bytes when they are known."""

    config_map_ref: ConfigMapKeyRef
    weight_bytes: Annotated[int, Field(ge=1, le=2**53)] | None = None


class ChatTemplate(ApiModel):
    """A chat template file mounted into the engine."""

    config_map_ref: ConfigMapKeyRef


class Adapter(ApiModel):
    """A LoRA adapter loaded beside the model."""

    name: Name
    source: Text
    rank: Annotated[int, Field(ge=1, le=512)] | None = None


class ModelSpec(ApiModel):
    """The model to serve."""

    id: ModelId
    revision: Text | None = None
    served_name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    max_context_tokens: Annotated[int, Field(ge=128, le=16_777_216)] | None = None
    variants: Annotated[list[Variant], Field(max_length=8)] | None = None
    quantization: Quantization | None = None
    quantize_at_load: bool | None = None
    allowed_kv_cache_dtypes: Annotated[list[KVCacheDtype], Field(min_length=1, max_length=2)] | None = None
    source: ModelSource | None = None
    cache: ModelCache | None = None
    config: ModelConfig | None = None
    chat_template: ChatTemplate | None = None
    tokenizer: ModelId | None = None
    trust_remote_code: bool | None = None
    adapters: Annotated[list[Adapter], Field(max_length=32)] | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.quantizeAtLoad) || !self.quantizeAtLoad || has(self.quantization)",
            "quantizeAtLoad needs the format to quantize to: write quantization: FP8",
        ),
    )
