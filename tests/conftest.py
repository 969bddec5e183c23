"""What all tests share: property tests are judged by what they find, never by how fast a busy machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
