"""The command line as an ordinary user of one namespace runs it.

It decides that the user has the built-in role `edit`, with what the chart adds to it, and no other right.
"""

import os
import subprocess
import sys
from pathlib import Path

from controller_world import World
from harness.waiting import wait_until
from operator_process import ROOT


def log_in(world: World) -> Path:
    """Make the user, and give a kubeconfig whose context has the world's namespace."""
    cluster, namespace = world.cluster, world.namespace
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dev", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "dev", "namespace": namespace}, "roleRef": role, "subjects": [subject],
        },
    )  # fmt: skip
    kubeconfig = cluster.service_account_kubeconfig(namespace, "dev")
    # The server believes a binding a moment after it has stored it.
    question = ("-n", namespace, "auth", "can-i", "patch", "llmservices.shardwright.dev")
    wait_until(
        lambda: cluster.kubectl(*question, check=False, kubeconfig=kubeconfig).strip().endswith("yes"),
        "the user's rights",
    )
    return kubeconfig


def shardwright(kubeconfig: Path, *words: str, code: int = 0) -> str:
    """Run a command that has to exit with `code`, with nobody at its terminal; what it printed, errors last."""
    environment = {
        "PYTHONPATH": str(ROOT / "operator/src"),
        "KUBECONFIG": str(kubeconfig),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "shardwright.cli.main", *words],
        env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
