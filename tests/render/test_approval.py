"""Which revision is in force: the rule alone, over every combination of policy, approval and record."""

import itertools
from typing import NamedTuple

import pytest

from render.planbuilder import service
from shardwright.render.approval import PROPOSED, Ruling, in_force, newest_first, on_record, rule

A, B, C, NONE = "aaaaaaaa", "bbbbbbbb", "cccccccc", ""


class Record(NamedTuple):
    revision: str
    number: int
    template_digest: str = ""


def spec(policy=None, approved=NONE):
    return service(
        ({"planPolicy": policy} if policy else {}) | ({"approvedRevision": approved} if approved else {})
    ).spec


RAN_A, PROPOSED_B, RAN_B = Record(A, 1), Record(B, PROPOSED), Record(B, 2)


@pytest.mark.parametrize(
    ("policy", "approved", "leads_to", "records", "expected"),
    [
        # The policies without approval take what the spec leads to.
        (None, NONE, A, [], Ruling(force=A)),
        ("OnSpecChange", NONE, B, [RAN_A], Ruling(force=B)),
        ("Auto", NONE, B, [RAN_A], Ruling(force=B)),
        (None, NONE, NONE, [RAN_A], Ruling(force=A)),
        (None, NONE, NONE, [], Ruling(force=NONE)),
        # Manual: nothing runs before approval, and what runs stays.
        ("Manual", NONE, A, [], Ruling(force=NONE, waits=A)),
        ("Manual", NONE, A, [Record(A, PROPOSED)], Ruling(force=NONE, waits=A)),
        ("Manual", NONE, A, [RAN_A], Ruling(force=A)),
        ("Manual", NONE, B, [RAN_A, PROPOSED_B], Ruling(force=A, waits=B)),
        ("Manual", NONE, NONE, [RAN_A, PROPOSED_B], Ruling(force=A)),
        ("Manual", NONE, NONE, [PROPOSED_B], Ruling(force=NONE)),
        # What is approved is in force.
        ("Manual", B, B, [RAN_A, PROPOSED_B], Ruling(force=B)),
        ("Manual", B, C, [RAN_A, PROPOSED_B], Ruling(force=B, waits=C)),
        ("Manual", A, B, [RAN_A, RAN_B], Ruling(force=A, waits=B)),
        ("Manual", A, NONE, [RAN_A, RAN_B], Ruling(force=A)),
        ("Manual", A, A, [], Ruling(force=A)),  # a new cluster, the same field in git, the same plan
        (None, A, B, [RAN_A, RAN_B], Ruling(force=A, waits=B)),
        (None, B, B, [RAN_A, RAN_B], Ruling(force=B)),
        # A name that nothing has changes nothing.
        ("Manual", C, B, [RAN_A, PROPOSED_B], Ruling(force=A, waits=B, unknown=True)),
        (None, C, B, [RAN_A], Ruling(force=A, waits=B, unknown=True)),
        (None, C, A, [RAN_A], Ruling(force=A, unknown=True)),
        (None, C, B, [], Ruling(force=NONE, waits=B, unknown=True)),
    ],
)  # fmt: skip
def test_rule(policy, approved, leads_to, records, expected):
    for order in itertools.permutations(records):
        assert rule(spec(policy, approved), leads_to=leads_to, records=order) == expected


def test_nothing_is_in_force_that_was_neither_approved_nor_let_by_the_policy():
    """Every combination: what comes into force is running, approved, or what a policy without approval takes."""
    records = [RAN_A, PROPOSED_B]
    for policy, approved, leads_to in itertools.product(
        (None, "OnSpecChange", "Auto", "Manual"), (NONE, A, B, C), (NONE, A, B, C)
    ):
        found = rule(spec(policy, approved), leads_to=leads_to, records=records)
        allowed = {A}
        if approved in {A, B, leads_to}:
            allowed = {approved} if approved else allowed
        if not approved and policy != "Manual" and leads_to:
            allowed = {leads_to}
        assert found.force in allowed, (policy, approved, leads_to)
        assert found.waits in {NONE, leads_to}
        assert (found.waits != NONE) == (leads_to not in {NONE, found.force})
        assert found.unknown == (approved == C and leads_to != C)


def test_a_proposal_is_never_in_force():
    assert in_force([PROPOSED_B]) is None
    assert in_force([PROPOSED_B, RAN_A]) == RAN_A
    assert [r.revision for r in newest_first([PROPOSED_B, RAN_A, Record(C, 7)])] == [C, A, B]


def test_a_spec_is_found_by_its_digest_and_else_by_what_the_status_says_of_this_generation():
    records = [Record(A, 1, "one"), Record(B, 2, "two"), Record(C, PROPOSED, "three")]
    assert on_record(records, "one", C) == records[0]
    assert on_record(records, "three", A) == records[2]
    assert on_record(records, "four", B) == records[1]
    assert on_record(records, "four", NONE) is None
    assert on_record([], "four", B) is None


RAN_AGAIN = Record(A, 3)


@pytest.mark.parametrize(
    ("approved", "leads_to", "records", "failed", "running", "expected"),
    [
        # What did not start waits, and what ran before it is in force, then and later.
        (NONE, B, [RAN_A, RAN_B], {B}, {A: 1, B: 0}, Ruling(force=A, waits=B, failed=B)),
        (NONE, B, [RAN_AGAIN, RAN_B], {B}, {A: 2}, Ruling(force=A, waits=B, failed=B)),
        (NONE, B, [RAN_AGAIN, RAN_B], {B}, None, Ruling(force=A, waits=B, failed=B)),
        # What is approved may fail, too.
        (B, C, [RAN_A, RAN_B], {B}, {A: 1, B: 0}, Ruling(force=A, waits=C, failed=B)),
        # Of several that still have a workload the one that answers, then the newest.
        (NONE, C, [RAN_A, RAN_B, Record(C, 4)], {C}, {A: 1, B: 0, C: 0}, Ruling(force=A, waits=C, failed=C)),
        (NONE, C, [RAN_A, RAN_B, Record(C, 4)], {C}, {A: 1, B: 1, C: 0}, Ruling(force=B, waits=C, failed=C)),
        # Without anything to go back to it stays.
        (NONE, B, [RAN_A, RAN_B], {A, B}, {A: 1, B: 0}, Ruling(force=B)),
        (NONE, B, [RAN_A, RAN_B], {B}, {B: 0}, Ruling(force=B)),
        # What failed and is not asked for is nobody's concern.
        (NONE, C, [RAN_A, RAN_B], {B}, {A: 1}, Ruling(force=C)),
    ],
)
def test_in_place_of_what_did_not_start_comes_what_ran_before(
    approved, leads_to, records, failed, running, expected
):
    for order in itertools.permutations(records):
        found = rule(spec(None, approved), leads_to=leads_to, records=order, failed=failed, running=running)
        assert found == expected
