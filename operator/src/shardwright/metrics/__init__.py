"""Prometheus in, exposition out."""
