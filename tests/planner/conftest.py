"""What the property tests of the planner share."""

import pytest

from planner.worlds import Mix, repeatable


@pytest.fixture
def mix(request):
    """The kinds of plans that a property was judged for, which must be rich in the end."""
    found = Mix()
    yield found
    if repeatable() and not request.session.testsfailed:
        found.assert_rich()
