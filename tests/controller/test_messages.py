"""A condition's message names the field that is wrong, once, whoever found it."""

import asyncio
import json

import pytest

from shardwright.api.llmservice import LLMServiceSpec, ServiceKey
from shardwright.api.reasons import Reason
from shardwright.cluster.errors import Forbidden
from shardwright.controller.reconcile import RECHECK_S
from shardwright.controller.references import references

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}
NAMED = {"name": "none", "key": "key"}
HUB = {"type": "Hub", "hub": {"tokenSecretRef": NAMED}}
CACHE = {"type": "PVC", "claimName": "none"}
OWN = {"id": "some/model", "maxContextTokens": 4096, "config": {"configMapRef": NAMED}}


def model(**more):
    return {"model": SMALL | more}


# The field, and a spec that names something missing there.
MISSING = {
    "spec.model.source.hub.tokenSecretRef": model(source=HUB),
    "spec.model.source.uri.credentialsSecretRef": model(
        source={"type": "URI", "uri": {"uri": "s3://bucket/model", "credentialsSecretRef": "none"}}
    ),
    "spec.model.source.pvc.claimName": model(
        source={"type": "PVC", "pvc": {"claimName": "none", "path": "model"}}
    ),
    "spec.model.cache.claimName": model(cache=CACHE),
    "spec.model.chatTemplate.configMapRef": model(chatTemplate={"configMapRef": NAMED}),
    "spec.engine.imagePullSecrets[0]": {"engine": {"imagePullSecrets": [{"name": "none"}]}},
    "spec.engine.env[0].secretRef": {"engine": {"env": [{"name": "A", "secretRef": NAMED}]}},
    "spec.podTemplate.spec.volumes[0]": {
        "podTemplate": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}}
    },
    "spec.model.config.configMapRef": {"model": OWN},
    "spec.model.id": {"model": {"id": "some/model", "maxContextTokens": 4096}},
}


def said(fake, condition, field):
    """The message, once it is sure that it names the field once."""
    message = fake.message("chat", condition)
    assert message.count(field.removeprefix("spec.")) == 1, message
    return message


@pytest.mark.parametrize("field", MISSING)
async def test_what_is_missing_is_told_with_its_field_once(fake, field):
    fake.node("n1")
    fake.put("chat", **MISSING[field])
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted")[0] == "False"
    assert said(fake, "Accepted", field).startswith(f"{field}: ")
    assert fake.message("chat", "Ready") == fake.message("chat", "Accepted")


@pytest.mark.parametrize("part", ["data", "binaryData"])
async def test_a_key_that_a_config_map_lacks_is_told_before_a_pod_hangs_on_it(fake, part):
    field = "spec.model.chatTemplate.configMapRef"
    fake.node("n1")
    fake.objects["ConfigMap", "team", "none"] = {part: {"other": "x"}}
    fake.put("chat", **MISSING[field])
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted") == ("False", "MissingConfigMap")
    message = said(fake, "Accepted", field)
    assert message.startswith(f"{field}: ConfigMap none in namespace team has no key key: add the key")
    fake.objects["ConfigMap", "team", "none"][part]["key"] = "x"
    await asyncio.sleep(RECHECK_S + 5)
    assert fake.condition("chat", "Accepted")[0] == "True"


@pytest.mark.parametrize(
    ("field", "kind", "plural"),
    [
        ("spec.model.cache.claimName", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ("spec.model.source.pvc.claimName", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ("spec.model.chatTemplate.configMapRef", "ConfigMap", "configmaps"),
        ("spec.model.config.configMapRef", "ConfigMap", "configmaps"),
    ],
)
async def test_a_right_to_read_that_is_missing_is_named_as_long_as_it_is(fake, field, kind, plural):
    needed = field == "spec.model.config.configMapRef"
    fake.node("n1")
    fake.fail[f"get {kind}"] = Forbidden(f"GET {plural}/none: 403 Forbidden", status=403)
    fake.put("chat", **MISSING[field])
    for _ in range(3):
        await asyncio.sleep(5)
        assert fake.condition("chat", "Accepted") == ("False" if needed else "True", "ReadForbidden")
        assert f"no right to get {plural} in namespace team" in said(fake, "Accepted", field)
        fake.run_pods("n1")
        fake.parts.dispatch._undecide(ServiceKey(("team", "chat")))  # kept from now on, as after a restart
    assert bool(fake.deployments()) is not needed
    fake.fail.clear()
    fake.objects[kind, "team", "none"] = {"data": {"key": "x"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    fake.parts.dispatch._undecide(ServiceKey(("team", "chat")))
    await asyncio.sleep(RECHECK_S + 10)
    assert fake.condition("chat", "Accepted")[1] == ("InvalidModelConfig" if needed else "Valid")


async def test_secrets_that_may_not_be_looked_at_are_somebodys_choice(fake):
    fake.node("n1")
    fake.fail["look Secret"] = Forbidden("GET secrets/none: 403 Forbidden", status=403)
    fake.put("chat", **MISSING["spec.model.source.hub.tokenSecretRef"])
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted") == ("True", "Valid")


async def test_every_reference_is_among_those_that_are_tested():
    for field, spec in MISSING.items():
        parsed = LLMServiceSpec.model_validate({"model": SMALL, "pool": {"maxGPUs": 1}} | spec)
        found = [reference.field for reference in references(parsed)]
        # The model's own facts are read apart, and are no plain reference.
        assert found == [field] or field in {"spec.model.id", "spec.model.config.configMapRef"}


@pytest.mark.parametrize("text", [None, "{not json", "[1]", json.dumps({"model_type": "llama"})])
async def test_an_unusable_config_is_told_with_field_and_key_once(fake, text):
    fake.node("n1")
    fake.objects["ConfigMap", "team", "none"] = {"data": {} if text is None else {"key": text}}
    fake.put("chat", model=OWN)
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted") == ("False", "InvalidModelConfig")
    message = said(fake, "Accepted", "spec.model.config.configMapRef")
    assert message.count("ConfigMap none") == message.count("key key") == 1, message
    assert "key: key" not in message


@pytest.mark.parametrize("field", ["spec.model.cache.claimName", "spec.model.source.pvc.claimName"])
async def test_a_claim_for_one_node_is_told_with_its_field_once(fake, field):
    fake.node("n1")
    fake.objects["PersistentVolumeClaim", "team", "none"] = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    fake.put("chat", scaling={"minReplicas": 2, "maxReplicas": 2}, **MISSING[field])
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted") == ("False", "CacheNotShareable")
    assert said(fake, "Accepted", field).startswith(f"{field}: claim none is ReadWriteOnce")


async def test_an_unknown_variant_keeps_nothing_from_running_and_stays_told(fake):
    fake.node("n1")
    fake.put("chat", **model(variants=[{"id": "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a8"}]))
    for _ in range(3):
        await asyncio.sleep(5)
        assert fake.condition("chat", "Accepted") == ("True", "UnknownModel")
        message = said(fake, "Accepted", "spec.model.variants[0].id")
        assert "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16" in message, "a name that exists"
        assert "config.json" not in message, "a variant has none"
        fake.run_pods("n1")
        fake.parts.dispatch._undecide(ServiceKey(("team", "chat")))  # kept from now on, as after a restart
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_stored_spec_of_another_schema_is_told_with_its_fields_once(fake):
    fake.node("n1")
    fake.put("chat", pool={"maxGPUs": "many"})
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted") == ("False", Reason.INVALID_SPEC.value)
    assert fake.message("chat", "Accepted").count("maxGPUs") == 1


BAD_REQUESTS = {
    "model.maxContextTokens": model(maxContextTokens=200_000),
    "model.quantization": model(quantization="FP8"),
    "model.quantizeAtLoad": {
        "model": {
            "id": "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
            "maxContextTokens": 8192,
            "quantization": "FP8",
            "quantizeAtLoad": True,
        }
    },
    "parallelism.expert": {"parallelism": {"expert": "Enabled"}},
    "parallelism.tensor": {"parallelism": {"tensor": 3}},
    "pool.gpuProducts": {"pool": {"maxGPUs": 8, "gpuProducts": ["NVIDIA-X900"]}},
}


@pytest.mark.parametrize("field", BAD_REQUESTS)
async def test_what_no_pool_can_serve_is_told_with_its_field_once(fake, field):
    fake.node("n1")
    fake.put("chat", **BAD_REQUESTS[field])
    await asyncio.sleep(3)
    assert fake.condition("chat", "Planned")[0] == "False"
    said(fake, "Planned", field)
