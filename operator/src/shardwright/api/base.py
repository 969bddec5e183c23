"""What every API model shares: camelCase names, frozen values, bounded strings, validation rules.

Decides how Python names map to the resource's field names. Never decides a default of the resource: a field
that is absent stays absent (None) and the planner resolves it, so that an operator upgrade cannot change a
stored object.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

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
    """Spell a Python field as the resource does: camelCase, with the acronyms that the design capitalises."""
    camel = to_camel(python_name)
    return _ACRONYMS.get(camel, camel)


@dataclass(frozen=True, slots=True)
class CelRule:
    """One `x-kubernetes-validations` entry of the object that declares it.

    The same rule is written twice, in CEL for the API server and in Python for offline checks, because no CEL
    interpreter is a dependency; a test puts every example to both and they must agree.
    """

    rule: str
    message: str
    """What to write instead."""
    holds: Callable[[Any], bool]
    """The rule over the Python model. `Any`: the class that declares a rule cannot name itself in its
    body."""
    field: str = ""
    """Resource name of the child field at fault; empty for the object itself."""


class ApiModel(BaseModel):
    """Base of all resource models; unknown fields are dropped, `api.parse` and the API server judge them."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=field_name,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    cel_rules: ClassVar[tuple[CelRule, ...]] = ()


def keyed_by(key: str) -> dict[str, Any]:
    """Mark a list as keyed: its items are unique in `key`, and an apply merges them by it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Text = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^-\s].*$")]
"""Free text that ends up as a value on a command line, hence never starting with a dash."""
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$")]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
LabelMap = Annotated[dict[Annotated[str, Field(max_length=317)], LabelValue], Field(max_length=32)]


class SecretKeyRef(ApiModel):
    """A key of a Secret in the service's own namespace. The operator never reads its value."""

    name: Name
    """Name of the Secret."""
    key: Key
    """Key inside the Secret."""


class ConfigMapKeyRef(ApiModel):
    """A key of a ConfigMap in the service's own namespace."""

    name: Name
    """Name of the ConfigMap."""
    key: Key
    """Key inside the ConfigMap."""
