"""The resource on a real API server: what it refuses and in which words, what it defaults, how it prints.

The examples are those of tests/api/cases.py, so that offline parsing and the server are held against each other. The
server is asked with dryRun where nothing needs to be stored.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from api.cases import RULES, SCHEMA, RuleCase, SchemaCase, service
from api.strategies import SPECS
from harness.api import ApiError
from harness.cluster import Cluster, CommandError
from shardwright.api.crd import crd, models_below
from shardwright.api.llmservice import LLMService
from shardwright.api.parse import InvalidSpec, parse_service

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[1]
CRD = ROOT / "crds/llmservices.shardwright.dev.yaml"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.shardwright.dev"
GROUP_PATH = "/apis/shardwright.dev/v1alpha1"
Json = dict[str, Any]
Answer = Callable[[Json], list[tuple[str, str]]]


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """Install the CRD of this checkout on the shared control plane."""
    cluster.define(yaml.safe_load(CRD.read_text()))
    return cluster


@pytest.fixture(scope="module")
def ask(served: Cluster) -> Answer:
    """Apply an object without storing it; the answer is each refused field with the server's words."""

    def ask(raw: Json) -> list[tuple[str, str]]:
        namespace = raw["metadata"]["namespace"]
        path = f"{GROUP_PATH}/namespaces/{namespace}/llmservices?dryRun=All&fieldValidation=Strict"
        try:
            served.api.post(path, raw)
        except ApiError as error:
            status = json.loads(error.body)
            causes = (status.get("details") or {}).get("causes") or [{"message": status["message"]}]
            return [(cause.get("field", ""), cause["message"]) for cause in causes]
        return []

    return ask


def offline(raw: Json) -> list[str]:
    try:
        parse_service(raw)
    except InvalidSpec as error:
        return [problem.field for problem in error.problems]
    return []


def test_the_server_stores_the_definition_as_generated(served: Cluster) -> None:
    live = served.api.get(CRD_PATH)
    assert live["spec"]["versions"] == crd()["spec"]["versions"]
    conditions = {each["type"]: each["status"] for each in live["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_every_rule_is_hit_by_a_rejected_example(served: Cluster, ask: Answer) -> None:
    """Count over the rules that the server holds, not over ours."""
    refused = "\n".join(words for case in RULES for _, words in ask(service(case.rejected, case.names[0])))
    held: list[str] = []

    def collect(node: object) -> None:
        if isinstance(node, dict):
            held.extend(rule["message"] for rule in node.get("x-kubernetes-validations", ()))
            for child in node.values():
                collect(child)
        elif isinstance(node, list):
            for child in node:
                collect(child)

    collect(served.api.get(CRD_PATH)["spec"]["versions"][0]["schema"])
    assert len(set(held)) == len(
        {rule.message for model in models_below(LLMService) for rule in model.cel_rules}
    )
    assert [message for message in held if message not in refused] == []


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.sentence)
def test_a_rule_refuses_in_its_exact_sentence_and_lets_the_neighbour_pass(
    ask: Answer, case: RuleCase
) -> None:
    rules = [rule for model in models_below(LLMService) for rule in model.cel_rules]
    (sentence,) = {rule.message for rule in rules if rule.message.startswith(case.sentence)}
    rejected, accepted = service(case.rejected, case.names[0]), service(case.accepted, case.names[1])
    ((field, words),) = ask(rejected)
    assert sentence in words
    assert offline(rejected) == [field.removeprefix("<nil>")]
    assert ask(accepted) == []
    assert offline(accepted) == []


@pytest.mark.parametrize("case", SCHEMA, ids=lambda case: case.name)
def test_types_and_bounds_are_refused(ask: Answer, case: SchemaCase) -> None:
    raw = service(case.spec)
    answers = ask(raw)
    assert any(case.at in f"{field} {words}" and case.words in words for field, words in answers), answers
    assert offline(raw) == [case.at]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(spec=SPECS)
def test_random_specs_are_judged_alike_here_and_offline(ask: Answer, spec: Json) -> None:
    raw = {**service({}), "spec": spec}
    # The server reports one refusal more than once where a rule sits on several items.
    assert {field.removeprefix("<nil>") for field, _ in ask(raw)} == set(offline(raw))


def test_the_largest_lists_stay_within_the_cost_limits(ask: Answer) -> None:
    words = ["-" + "x" * 2047] * 64
    env = [{"name": f"{'V' * 120}{index}", "value": "x" * 4096} for index in range(64)]
    labels = {f"{'e' * 240}.example/{'k' * 55}{index}": "v" * 63 for index in range(32)}
    tolerations = [{"key": f"k{index}", "operator": "Exists", "effect": "NoSchedule"} for index in range(16)]
    raw = service(
        {
            "engine": {"args": words, "env": env},
            "pool": {"nodeSelector": labels, "tolerations": tolerations},
            "model": {"variants": [{"id": f"a/{index}"} for index in range(8)]},
        }
    )
    assert ask(raw) == []


def test_without_strict_validation_an_unknown_field_is_dropped_with_a_warning(
    served: Cluster, namespace: str
) -> None:
    text = yaml.safe_dump(service({"pool": {"maxGpus": 9}}, namespace=namespace))
    with pytest.raises(CommandError, match=r'unknown field "spec\.pool\.maxGpus"'):
        served.kubectl("apply", "-f", "-", stdin=text)
    printed = served.kubectl("apply", "--validate=warn", "-f", "-", stdin=text, check=False)
    assert 'unknown field "spec.pool.maxGpus"' in printed
    stored = served.api.get(f"{GROUP_PATH}/namespaces/{namespace}/llmservices/chat")
    assert stored["spec"]["pool"] == {"maxGPUs": 8}


def test_nothing_is_defaulted_but_the_generation_that_was_never_observed(
    served: Cluster, namespace: str
) -> None:
    raw = service({}, namespace=namespace)
    path = f"{GROUP_PATH}/namespaces/{namespace}/llmservices"
    served.api.post(path, raw)
    stored = served.api.get(f"{path}/chat")
    assert stored["spec"] == raw["spec"]
    assert stored["status"] == {"observedGeneration": -1}
    assert parse_service(stored).status is not None
    # A status that the operator has begun keeps the default until it writes the field.
    served.api.merge(f"{path}/chat/status", {"status": {"replicas": 1, "observedGeneration": None}})
    assert served.api.get(f"{path}/chat")["status"] == {"replicas": 1, "observedGeneration": -1}


def test_a_null_is_dropped(served: Cluster, namespace: str) -> None:
    raw = service({"workload": None, "engine": {"args": None}}, namespace=namespace)
    stored = served.api.post(f"{GROUP_PATH}/namespaces/{namespace}/llmservices", raw)
    assert "workload" not in stored["spec"]
    assert stored["spec"]["engine"] == {}
    assert parse_service(stored).spec == parse_service(raw).spec


def test_scale_reads_and_writes_the_replicas(served: Cluster, namespace: str) -> None:
    path = f"{GROUP_PATH}/namespaces/{namespace}/llmservices"
    served.api.post(path, service({"replicas": 2, "scaling": {"mode": "External"}}, namespace=namespace))
    status = {"replicas": 2, "selector": "shardwright.dev/service=chat", "readyReplicas": 1}
    served.api.merge(f"{path}/chat/status", {"status": status})
    scale = served.api.get(f"{path}/chat/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": "shardwright.dev/service=chat"}
    served.kubectl("-n", namespace, "scale", "lsvc/chat", "--replicas=5")
    assert served.api.get(f"{path}/chat")["spec"]["replicas"] == 5
    # Without External the count is the operator's: /scale is refused in the rule's words.
    served.api.post(path, service({}, name="auto", namespace=namespace))
    with pytest.raises(CommandError, match=r"spec\.replicas goes with scaling\.mode External"):
        served.kubectl("-n", namespace, "scale", "lsvc/auto", "--replicas=5")


def test_columns(served: Cluster, namespace: str) -> None:
    path = f"{GROUP_PATH}/namespaces/{namespace}/llmservices"
    served.api.post(path, service({}, namespace=namespace))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Starting",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    served.api.merge(
        f"{path}/chat/status",
        {"status": {"conditions": [condition], "readySummary": "2/3", "endpoint": "http://chat/v1"}},
    )
    # An unknown short name makes kubectl read the server's resources again; an unknown category does not.
    assert "chat" in served.kubectl("-n", namespace, "get", "lsvc")
    head, row = served.kubectl("-n", namespace, "get", "llm").splitlines()
    assert head.split() == ["NAME", "READY", "REPLICAS", "PLAN", "REASON", "AGE"]
    assert row.split()[:4] == ["chat", "False", "2/3", "Starting"]
    head, row = served.kubectl("-n", namespace, "get", "lsvc", "-o", "wide").splitlines()
    assert head.split()[6:] == ["MODEL", "ENDPOINT", "PRICE", "PROPOSAL"]
    assert {"a/b", "http://chat/v1"} <= set(row.split())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("llmservice", "A model, its SLOs and a pool of GPUs"),
        ("llmservice.spec.pool.maxGPUs", "Upper bound of GPUs"),
        ("llmservice.spec.model.source.pvc.claimName", "Name of the PersistentVolumeClaim"),
        ("llmservice.status.plan.memoryBill", "Memory of the fullest GPU"),
    ],
)
def test_kubectl_explain(served: Cluster, path: str, words: str) -> None:
    assert words in served.kubectl("explain", path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_accepted_as_it_is(served: Cluster, namespace: str, path: Path) -> None:
    printed = served.kubectl("-n", namespace, "apply", "--dry-run=server", "-f", str(path))
    assert "llmservice.shardwright.dev/" in printed
    assert "Warning" not in printed


def test_two_managers_of_a_keyed_list_do_not_undo_each_other(served: Cluster, namespace: str) -> None:
    path = f"{GROUP_PATH}/namespaces/{namespace}/llmservices/chat"
    for manager, variable in (("team-a", "A"), ("team-b", "B")):
        raw = service({"engine": {"env": [{"name": variable, "value": "x"}]}}, namespace=namespace)
        served.api.apply(path, raw, manager=manager)
    names = [each["name"] for each in served.api.get(path)["spec"]["engine"]["env"]]
    assert names == ["A", "B"]
