"""What a pod lacks is told by name with the remedy, from the words in which Kubernetes says it."""

import pytest

from diagnose.test_conditions import facts, load
from shardwright.cluster.facts import pod_trouble
from shardwright.diagnose.conditions import conditions

CONFIG_ERROR, LOOP = "CreateContainerConfigError", "CrashLoopBackOff"
EARLIER = {
    "terminated": {"reason": "Error", "exitCode": 1, "message": "INFO the last lines of an earlier run"}
}


def told(reason: str, message: str, last: dict | None = None) -> tuple[str, str]:
    """Reason and message of Degraded for a pod whose container waits so."""
    container = {"state": {"waiting": {"reason": reason, "message": message}}, "lastState": last or {}}
    trouble = pod_trouble({"status": {"phase": "Pending", "containerStatuses": [container]}})
    assert trouble is not None
    found = conditions(facts(workloads=(load(0, troubles=(trouble,)),)))
    [degraded] = [condition for condition in found if condition.type == "Degraded"]
    assert degraded.status == "True"
    return degraded.reason, degraded.message


# The kubelet's words: kubernetes/kubernetes, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
@pytest.mark.parametrize("last", [{}, EARLIER])
@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "couldn't find key token in Secret team-a/hf",
            ("Secret hf has no key token", "add the key", "another one"),
        ),
        ("couldn't find key a.b in ConfigMap team-a/c", ("ConfigMap c has no key a.b", "add the key")),
        ('secret "hf" not found', ("there is no Secret hf", "create it", "another one")),
        ('configmap "c-1" not found', ("there is no ConfigMap c-1", "create it")),
    ],
)
def test_a_missing_object_or_key_is_named_with_the_remedy(message, words, last):
    reason, said = told(CONFIG_ERROR, message, last)
    assert reason == "PodConfig"
    for word in (*words, "starts by itself"):
        assert word in said


def test_other_words_are_carried_on():
    assert (
        "container has runAsNonRoot"
        in told(CONFIG_ERROR, "container has runAsNonRoot and image will run as root")[1]
    )


@pytest.mark.parametrize(
    "line",
    [
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
        "azure.core.exceptions.ClientAuthenticationError: DefaultAzureCredential failed to retrieve a token",
    ],
)
def test_an_object_store_without_credentials_names_the_field_of_its_secret(line):
    last = {"terminated": {"reason": "Error", "exitCode": 1, "message": f"Traceback ...\n{line}\n"}}
    reason, said = told(LOOP, "back-off 5m0s restarting failed container", last)
    assert reason == "HubUnauthorized"
    assert "spec.model.source.uri.credentialsSecretRef" in said
    assert "AWS_SECRET_ACCESS_KEY" in said


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_that_cannot_be_pulled_names_what_the_secret_must_be(reason):
    said = told(reason, "failed to pull: 401 Unauthorized")[1]
    assert "spec.engine.imagePullSecrets" in said
    assert "kubernetes.io/dockerconfigjson" in said


def test_a_missing_priority_class_is_told_with_the_field_that_names_it():
    """In the words of kubernetes/kubernetes, plugin/pkg/admission/priority/admission.go."""
    said = 'pods "chat-1-5f-" is forbidden: no PriorityClass with name gold was found'
    found = conditions(facts(workloads=(load(0, create_failure=said),)))
    [degraded] = [condition for condition in found if condition.type == "Degraded"]
    assert degraded.reason == "PodsRefused"
    assert "no PriorityClass gold" in degraded.message
    assert "spec.pool.priorityClassName" in degraded.message
    assert "podTemplate" not in degraded.message
