"""When a start has failed: bounded by what Kubernetes counts, and never by what going back does not mend."""

import pytest

from shardwright.api.reasons import Reason
from shardwright.controller.starts import REFUSED_S, RESTARTS, Start, Starts, last_words
from shardwright.diagnose.facts import PodTrouble

ENDED = PodTrouble(reason="CrashLoopBackOff", message="ValueError: no\n\n", last_exit="Error", exit_code=1)
PULL = PodTrouble(reason="ImagePullBackOff", message="not found")


def judge(*starts, at=0.0, create_failure="", deadline_exceeded=False, memory=None):
    return (memory or Starts()).judge(
        "uid", starts, create_failure=create_failure, deadline_exceeded=deadline_exceeded, now_s=at
    )


def start(trouble=None, restarts=0, pod="p", bound=True):
    return Start(pod=pod, bound=bound, restarts=restarts, trouble=trouble)


def test_a_container_that_ends_is_tried_as_often_as_is_said():
    assert judge(start(ENDED, RESTARTS - 1)) == (None, None)
    trouble, look_s = judge(start(ENDED, RESTARTS))
    assert trouble.reason is Reason.CRASH_LOOP
    assert trouble.message.endswith("It said last: ValueError: no")
    assert look_s is None


def test_what_cannot_even_start_is_waited_for_so_long_and_looked_at_then():
    memory = Starts()
    assert judge(start(PULL), at=100, memory=memory) == (None, REFUSED_S)
    assert judge(start(PULL), at=150, memory=memory) == (None, REFUSED_S - 50)
    trouble, _ = judge(start(PULL), at=100 + REFUSED_S, memory=memory)
    assert trouble.reason is Reason.IMAGE_PULL
    # What has passed meanwhile begins anew.
    assert judge(start(), at=99 + REFUSED_S, memory=memory) == (None, None)
    assert judge(start(PULL), at=100 + REFUSED_S, memory=memory) == (None, REFUSED_S)


def test_pods_that_the_api_server_refuses_count_and_a_quota_does_not():
    refused = 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    quota = 'pods "x" is forbidden: exceeded quota: gpus, requested: 1, used: 4, limited: 4'
    for said, reason in [(refused, Reason.PODS_REFUSED), (quota, None)]:
        memory = Starts()
        judge(create_failure=said, memory=memory)
        trouble, _ = judge(create_failure=said, at=REFUSED_S, memory=memory)
        assert (trouble and trouble.reason) == reason


@pytest.mark.parametrize(
    "words",
    [
        "GatedRepoError: 401 Client Error",
        "429 Client Error: Too Many Requests for url",
        "503 Server Error: Service Unavailable for url",
        "Invalid repository ID or local directory specified: '/cache/huggingface/shardwright/a--b--main'",
    ],
)
def test_what_the_hub_refuses_is_never_a_failed_start(words):
    refused = PodTrouble(reason="CrashLoopBackOff", message=words, last_exit="Error", exit_code=1)
    assert judge(start(refused, 99), deadline_exceeded=True) == (None, None)


def test_the_deadline_counts_for_pods_that_have_a_node():
    assert judge(start(), deadline_exceeded=True)[0].reason is Reason.START_TOO_SLOW
    waiting = PodTrouble(reason="Unschedulable", message="0/1 nodes are available")
    assert judge(start(waiting, bound=False), deadline_exceeded=True) == (None, None)
    assert judge(deadline_exceeded=True) == (None, None)


def test_the_order_of_the_pods_changes_nothing():
    killed = PodTrouble(reason="OOMKilled", last_exit="OOMKilled", exit_code=137)
    both = [start(ENDED, 5, "a"), start(killed, 5, "b")]
    assert judge(*both) == judge(*reversed(both))
    assert judge(*both)[0].reason is Reason.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("a\nbad\n}\n \n", "bad"),
        ("", ""),
        ("back-off 40s restarting failed container", ""),
        ("token=hf_abcDEF123 refused", "… refused"),
        ("GET https://user:pass@hub/x: refused", "GET https://…@hub/x: refused"),
        ("Authorization: Bearer abc.def", "Authorization: …"),
        ("api_key='abc', model=x", "api_…', model=x"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_last_words_hold_no_secret_and_are_short(log, said):
    assert last_words(log) == said
