"""What all tests share: property tests are judged by what they find, never by how fast a busy machine is.

Their inputs are the same in every run, so that a change is judged by its own doing; `make fuzz` draws new ones.
"""

import asyncio
import os

import pytest
from hypothesis import HealthCheck, settings

from patience import Clock

CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("project", derandomize=True, **CALM)
settings.register_profile("fuzz", derandomize=False, print_blob=True, **CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "project"))


@pytest.fixture
async def clock() -> Clock:
    """The clock of the loop that the test runs in."""
    return Clock(asyncio.get_running_loop())
