"""What is said where no router answers. Decides the sentence, never the condition."""

from shardwright.api.names import router_selector
from shardwright.diagnose.facts import RouterFacts, ServiceFacts


def unavailable(facts: ServiceFacts, router: RouterFacts) -> str:
    """Say who is selected meanwhile, and where to look."""
    selector = ",".join(f"{key}={value}" for key, value in sorted(router_selector(facts.name).items()))
    if facts.asleep:
        message = "No replica runs, and no router answers that would hold requests for one"
    elif router.in_front:
        message = "The engines answer, but no router does, and the Service selects the routers"
    else:
        message = "The Service selects the engines until a router answers"
    if router.create_failure:
        return f"{message}; their pods cannot be created: {router.create_failure}"
    if router.stuck:
        where = f"kubectl -n {facts.namespace} describe pods -l {selector}"
        return f"{message}; their pods have not become ready for long: see {where}"
    return message
