"""The scale benchmark: what the operator costs with a thousand services on a real API server."""
