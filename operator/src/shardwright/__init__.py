"""shardwright: a Kubernetes operator that decides how to serve an LLM with vLLM, and says why."""

__version__ = "0.1.0"
