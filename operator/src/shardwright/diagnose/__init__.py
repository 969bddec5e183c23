"""Observed facts to conditions and next steps. Pure."""
