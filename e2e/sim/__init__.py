"""Stand-ins for what a test machine has not: GPUs under an engine, a kubelet, clients. Never part of the operator."""
