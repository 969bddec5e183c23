"""A kubeconfig that is none, or not whole: each command that reads a cluster says so and ends with 2."""

from pathlib import Path

import pytest
from kubernetes.aio.config import kube_config

from shardwright.cli.main import main

SERVICE = str(Path(__file__).parents[2] / "examples" / "smallest.yaml")
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
"""
SERVER = "server: 'https://127.0.0.1:1'"
NO_KUBECONFIGS = {
    "empty": "",
    "text": "hello",
    "a list": "[]",
    "no YAML": "a: [",
    "no text": b"\x00\xff",
    "contexts of another type": "current-context: a\ncontexts: 7",
    "no server": KUBECONFIG % ("", "token: x"),
    "a number for a server": KUBECONFIG % ("server: 7", "token: x"),
    "a port that is none": KUBECONFIG % ("server: 'https://127.0.0.1:99999999'", "token: x"),
    "no certificate": KUBECONFIG % (f"{SERVER}, certificate-authority-data: '!!!'", "token: x"),
    "a token file that is gone": KUBECONFIG % (SERVER, "tokenFile: /no/such"),
    "half a provider": KUBECONFIG % (SERVER, "auth-provider: {name: oidc}"),
}


@pytest.mark.parametrize("name", NO_KUBECONFIGS)
@pytest.mark.parametrize(
    "words",
    [
        ("approve", "chat"),
        ("rollback", "chat", "--list"),
        ("explain", "chat"),
        ("plan", "-f", SERVICE, "--cluster"),
        ("diff", "-f", SERVICE),
    ],
    ids=lambda words: words[0],
)
def test_what_is_no_kubeconfig_is_bad_usage(tmp_path, monkeypatch, capsys, name, words):
    found, file = NO_KUBECONFIGS[name], tmp_path / "config"
    file.write_bytes(found if isinstance(found, bytes) else found.encode())
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"shardwright {words[0]}: " in told.err
    assert "Traceback" not in told.err
