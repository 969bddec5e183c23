"""The class of an error: what a caller should do about an answer."""

import json

import pytest

from shardwright.cluster.errors import Invalid, Transient, error_of

HEAD = "(default/x; apps/v1, Kind=Deployment)"
# As the API server 1.36 answers them, each with the status 500 and no reason.
UNTYPED = {
    f'failed to create typed patch object {HEAD}: .spec.template.spec.containers[name="engine"].livenesProbe: '
    "field not declared in schema": 'spec.template.spec.containers[name="engine"].livenesProbe: field not',
    f"failed to create typed patch object {HEAD}: .spec.template.spec.hostNetwork: expected boolean, got &{{yes}}": (
        "spec.template.spec.hostNetwork: expected boolean"
    ),
    f'failed to create typed patch object {HEAD}: .spec.template.spec.volumes: duplicate entries for key [name="v"]': (
        "spec.template.spec.volumes: duplicate entries"
    ),
    f"failed to convert new object {HEAD} to proper version: unable to convert unstructured object to apps/v1, "
    "Kind=Deployment: cannot convert float64 to int64": "unable to convert unstructured object",
}


@pytest.mark.parametrize("said", UNTYPED)
def test_an_object_that_is_none_of_its_kind_is_invalid_whatever_its_status(said):
    error = error_of(500, json.dumps({"message": said, "code": 500}).encode(), {}, "PATCH deployments/x")
    assert isinstance(error, Invalid)
    assert error.said.startswith(UNTYPED[said])


@pytest.mark.parametrize(
    "said",
    [
        "Internal error occurred: etcdserver: leader changed",
        f"failed to create typed live object {HEAD}: .spec: expected map",
        'Internal error occurred: failed calling webhook "a": failed to create typed patch object (a): b',
    ],
)
def test_any_other_fault_of_the_server_may_pass(said):
    assert isinstance(error_of(500, json.dumps({"message": said}).encode(), {}, "PATCH x"), Transient)
