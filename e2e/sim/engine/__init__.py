"""A simulator of vLLM's server: its flags, its API, its metrics and its way to start and to end, with the time of a queueing model."""
