"""A node agent: runs the pods bound to its nodes as local processes, each in a network namespace, as a kubelet would."""
