"""A real Kubernetes control plane on one machine, for the demo, the tests and the benchmarks.

It decides nothing about serving: it starts the upstream programs, gives them nodes with GPU labels, and takes
them away again. It never needs root or a container engine, and never touches a cluster it did not start.
"""
