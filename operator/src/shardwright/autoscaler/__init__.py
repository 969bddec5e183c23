"""Signals, plan and time to desired replicas, and why. Pure."""
