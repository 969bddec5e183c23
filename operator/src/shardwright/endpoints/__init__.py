"""The process beside each router that keeps its list of engines as the EndpointSlices have it."""
