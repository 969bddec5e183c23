"""What every API model shares: camelCase names, frozen values, bounded strings, CEL rules.

Decides how Python names map to the resource's field names. Never decides a default of the resource: a field that is
absent stays absent (None) and the planner resolves it, so that an operator upgrade cannot change a stored object.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_ACRONYMS = {
    "maxGpus": "maxGPUs",
    "gpusPerNode": "gpusPerNode",
    "allowedKvCacheDtypes": "allowedKVCacheDtypes",
    "kvOffloadGib": "kvOffloadGiB",
    "weightsGib": "weightsGiB",
}


def field_name(python_name: str) -> str:
    """The resource's name of a Python field: camelCase, with the acronyms that the design writes in capitals."""
    camel = to_camel(python_name)
    return _ACRONYMS.get(camel, camel)


@dataclass(frozen=True, slots=True)
class CelRule:
    """One `x-kubernetes-validations` entry; `message` says what to write instead."""

    rule: str
    message: str


class ApiModel(BaseModel):
    """Base of all resource models. Unknown fields are ignored here because the API server's schema judges them."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=field_name, populate_by_name=True)

    cel_rules: ClassVar[tuple[CelRule, ...]] = ()


Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
LabelMap = Annotated[
    dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]], Field(max_length=32)
]


class SecretKeyRef(ApiModel):
    """A key of a Secret in the service's own namespace. The operator never reads its value."""

    name: Name
    key: Key


class ConfigMapKeyRef(ApiModel):
    """A key of a ConfigMap in the service's own namespace."""

    name: Name
    key: Key
