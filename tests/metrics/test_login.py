"""Logins that cannot work are refused by the name of their option; secrets are read anew, and shown nowhere."""

import os

import pytest

from shardwright.metrics.login import Login, LoginError

URL = "https://prometheus.monitoring.svc:9090"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"url": "prometheus:9090"}, "--prometheus-url"),
        ({"url": "ftp://prometheus"}, "--prometheus-url"),
        ({"url": "http://me:hunter2@prometheus"}, "--prometheus-password-file"),
        ({"url": "http://prometheus/?token=hunter2"}, "--prometheus-url"),
        ({"bearer_token_file": "t", "username": "me", "password_file": "p"}, "give one of them"),
        ({"username": "me"}, "go together"),
        ({"password_file": "p"}, "go together"),
        ({"client_key_file": "k"}, "go together"),
        ({"pod_label": "pod) or vector(1"}, "--prometheus-pod-label"),
        ({"namespace_label": ""}, "--prometheus-namespace-label"),
    ],
)
def test_what_cannot_work_is_refused(given, named):
    with pytest.raises(LoginError, match=named) as refused:
        Login(**{"url": URL} | given)
    assert "hunter2" not in str(refused.value)


def test_secrets_are_read_each_time_and_shown_nowhere(tmp_path):
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text(" first \n")
    password.write_text("hunter2\n")
    login = Login(url=URL, bearer_token_file=str(token), tenant="team-a")
    first = login.secrets()
    assert first.headers == {"X-Scope-OrgID": "team-a", "Authorization": "Bearer first"}
    token.write_text("second")
    second = login.secrets()
    assert second != first
    basic = Login(url=URL, username="me", password_file=str(password)).secrets()
    assert basic.basic == ("me", "hunter2")
    for shown in (login, first, second, basic):
        assert not any(word in repr(shown) for word in ("first", "second", "hunter2"))


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff"])
def test_a_secret_that_cannot_be_used_names_the_file_and_not_what_is_in_it(tmp_path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(LoginError, match=str(file)) as refused:
        Login(url=URL, bearer_token_file=str(file)).secrets()
    assert "two" not in str(refused.value)


def test_a_certificate_that_was_renewed_is_noticed(tmp_path):
    files = {name: tmp_path / name for name in ("client_certificate_file", "client_key_file", "ca_file")}
    for file in files.values():
        file.write_text("x")
    login = Login(url=URL, **{name: str(file) for name, file in files.items()})
    before = login.secrets()
    os.utime(files["ca_file"], (1, 1))
    assert login.secrets() != before
