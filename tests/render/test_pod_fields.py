"""What no pod can have is found without an API server, and nothing that a pod can have is."""

import json

import pytest

from render.cases import CASES
from render.pod_schema import KUBERNETES, table
from render.test_manifests import rendered
from render.test_validity import at, changed, places
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.fields import read_data
from shardwright.render import pod_fields

BODY = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "pool": {"maxGPUs": 1}}


def problems(pod) -> list[tuple[str, str]]:
    spec = LLMServiceSpec.model_validate(BODY | {"podTemplate": {"spec": pod}})
    return [
        (problem.field.removeprefix("spec.podTemplate."), problem.message)
        for problem in pod_fields.check(spec)
    ]


def test_the_table_is_the_published_schemas():
    assert read_data("pod_fields.json") == {"kubernetes": KUBERNETES, "types": table()}


# As the API server refuses each of them with the status 500.
REFUSED = {
    "spec.containers[0].livenesProbe": {"containers": [{"name": "engine", "livenesProbe": {}}]},
    "spec.hostNetworkk": {"hostNetworkk": True},
    "spec.hostNetwork": {"hostNetwork": "yes"},
    "spec.securityContext.fsGroup": {"securityContext": {"fsGroup": "abc"}},
    "spec.securityContext": {"securityContext": []},
    "spec.containers[0].ports[0].containerPort": {
        "containers": [{"name": "a", "ports": [{"containerPort": "http"}]}]
    },
    "spec.containers[0].resources.requests[cpu]": {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "many"}}}]
    },
    "spec.volumes[0].emptyDir.sizeLimit": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": True}}]},
    "spec.volumes": {"volumes": {"name": "v"}},
    "spec.containers[0].env[0].value": {"containers": [{"name": "a", "env": [{"name": "A", "value": 1}]}]},
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_no_pod_has_is_refused_by_its_field(field):
    [(found, message)] = problems(REFUSED[field])
    assert found == field
    assert "write" in message


def test_a_name_that_is_nearly_a_field_is_told_with_it():
    [(_, message)] = problems(REFUSED["spec.containers[0].livenesProbe"])
    assert "livenessProbe" in message


FINE = {
    "hostNetwork": True,
    "securityContext": {"fsGroup": 5, "sysctls": [{"name": "a", "value": "1"}]},
    "volumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        {"name": "x", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}},
    ],
    "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always"}],
    "containers": [
        {
            "name": "proxy",
            "image": "x",
            "resources": {"requests": {"cpu": 1, "memory": "1e9", "x.y/z": "2"}, "limits": {"cpu": 0.5}},
            "readinessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 3},
            "livenessProbe": {"tcpSocket": {"port": 80}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        }
    ],
}


def test_what_a_pod_can_have_is_let_through():
    assert problems(FINE) == []


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_rendered_is_let_through_and_a_wrong_name_or_type_anywhere_in_it_is_not(case):
    deployment, *_ = [obj for obj in rendered(*CASES[case]) if obj["kind"] == "Deployment"]
    pod = json.loads(json.dumps(deployment["spec"]["template"]["spec"]))
    assert problems(pod) == []
    for place in places(pod):
        found = at(pod, place)
        texts = {"requests", "limits", "nodeSelector", "labels", "matchLabels"}
        if isinstance(found, dict) and not texts & set(place[-1:]):
            assert problems(changed(pod, (*place, "bogus"), [1])), place
        if place:
            assert problems(changed(pod, place, {"bogus": [1]} if isinstance(found, list) else [1])), place
