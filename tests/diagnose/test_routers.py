"""What is told of routers: only where engines would answer, and never as if clients were served."""

import pytest

from diagnose.test_conditions import by_type, facts, load, trouble
from shardwright.diagnose.facts import RouterFacts

MOVING = {"desired": 2, "ready": 0, "in_front": False}
DOWN = {"desired": 2, "ready": 0, "in_front": True}


def told(router, **more):
    found = by_type(facts(router=RouterFacts(**router), **more))
    return {
        kind: (found[kind].status, found[kind].reason) for kind in ("Available", "Ready", "Stalled")
    }, found


@pytest.mark.parametrize(
    ("router", "more", "available", "ready"),
    [
        (DOWN | {"ready": 1}, {}, ("True", "Serving"), ("True", "Serving")),
        (DOWN, {}, ("False", "RouterUnavailable"), ("False", "RouterUnavailable")),
        # Who is served by the engines still is, until the endpoint has moved.
        (MOVING, {}, ("True", "Serving"), ("False", "RouterUnavailable")),
        (MOVING | {"ready": 1}, {}, ("True", "Serving"), ("False", "RouterUnavailable")),
        # The engines' own trouble comes first.
        (DOWN, {"workloads": trouble("ErrImagePull")}, ("False", "ImagePull"), ("False", "ImagePull")),
        (DOWN, {"workloads": (load(0),)}, ("False", "Starting"), ("False", "Starting")),
    ],
)
def test_available_and_ready(router, more, available, ready):
    found, _ = told(router, **more)
    assert (found["Available"], found["Ready"]) == (available, ready)


def test_the_message_says_where_to_look():
    _, found = told(DOWN | {"stuck": True})
    assert "kubectl -n team-a describe pods -l shardwright.dev/role=router,shardwright.dev/service=chat" in (
        found["Available"].message
    )
    _, found = told(DOWN | {"create_failure": "exceeded quota"})
    assert "exceeded quota" in found["Available"].message
    _, found = told(MOVING)
    assert "selects the engines until a router answers" in found["Ready"].message
