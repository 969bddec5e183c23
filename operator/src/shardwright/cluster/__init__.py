"""The API server: server-side apply, lists, watches, a read-only store of small facts, events.

All I/O lives here.
"""
