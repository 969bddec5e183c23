"""The script of the Job against a hub's client that fails in every known way: what is fetched, and by which word it is told."""

import errno
import json
import sys
import types
from pathlib import Path

import pytest

from shardwright.render import fetch_script
from shardwright.render.fetch_script import asked_wait_s, code_of, left_out, main, verdict


class Response:
    def __init__(self, status, **headers):
        self.status_code, self.headers = status, headers


class HfHubHTTPError(OSError):
    """As of hub 0.x, where it is an OSError without a number."""

    def __init__(self, status, **headers):
        super().__init__(
            f"{status} Client Error. (Request ID: x) for url: https://user:pw@hub/api?sig=hf_secret"
        )
        self.response = Response(status, **headers)


class GatedRepoError(HfHubHTTPError):
    pass


class ConnectError(Exception):
    pass


class LocalEntryNotFoundError(FileNotFoundError):
    pass


FILES = ["config.json", "model.safetensors", "pytorch_model.bin", "original/consolidated.00.pth", "x.gguf"]


class Hub(types.ModuleType):
    """huggingface_hub with one repository."""

    def __init__(self, folder):
        super().__init__("huggingface_hub")
        self.folder, self.error, self.asked = folder, None, []

    def HfApi(self):  # noqa: N802 -- its name
        return self

    def list_repo_files(self, repository, revision=None):
        self.asked.append((repository, revision))
        if self.error is not None:
            raise self.error
        return FILES

    def snapshot_download(self, repository, **how):
        self.asked.append((repository, how))
        folder = self.folder / repository.replace("/", "--")
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    found = Hub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    monkeypatch.setattr(fetch_script, "RETRY_AT", tmp_path / "retry-at")
    return found


def last_line(capsys):
    return capsys.readouterr().out.strip().splitlines()[-1]


def test_it_leaves_a_link_for_each_repository(hub, tmp_path):
    model, tokenizer = tmp_path / "ours" / "model", tmp_path / "ours" / "tok"
    for _ in range(2):  # a second time the link is there
        assert main([f"a/m@v1={model}", f"a/t@={tokenizer}"]) == 0
    assert model.resolve() == tmp_path / "hub" / "a--m"
    assert not Path(model.readlink()).is_absolute(), "the claim may be mounted elsewhere"
    assert tokenizer.resolve() == tmp_path / "hub" / "a--t"
    assert hub.asked[0] == ("a/m", "v1")
    assert hub.asked[2] == ("a/t", None)
    assert "*.safetensors" not in hub.asked[1][1]["ignore_patterns"]
    assert "*.safetensors" in hub.asked[3][1]["ignore_patterns"], "a tokenizer has no weights"
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "tok"]


@pytest.mark.parametrize(
    ("files", "loaded", "left"),
    [
        (FILES, "*.safetensors", ["*.bin", "*.gguf", "original/*"]),
        (["a.bin", "b.pt"], "*.bin", ["*.pt", "*.safetensors"]),
        (["original/a.safetensors", "b.pt"], "*.pt", ["*.safetensors", "original/*"]),
    ],
)
def test_only_what_the_engine_loads_is_fetched(files, loaded, left):
    found = left_out(files)
    assert loaded not in found
    assert set(left) <= set(found)


def test_of_a_repository_without_known_weights_all_is_fetched():
    assert left_out(["x.gguf", "config.json"]) == ["original/*"]


def test_code_of_other_repositories_comes_too(hub, tmp_path):
    folder = tmp_path / "hub" / "a--m"
    folder.mkdir(parents=True)
    named = {
        "AutoConfig": "b/code--configuration.C",
        "AutoTokenizer": ["c/tok--t.T", None],
        "AutoModel": "modeling.M",
    }
    (folder / "config.json").write_text(json.dumps({"auto_map": named}))
    (folder / "tokenizer_config.json").write_text("[]")
    assert code_of(folder) == ["b/code", "c/tok"]
    assert main([f"a/m@={tmp_path / 'm'}"]) == 0
    assert [asked[0] for asked in hub.asked] == ["a/m", "a/m", "b/code", "c/tok"]


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "word", "wait_s"),
    [
        (GatedRepoError(401), "HubUnauthorized", 0),
        (HfHubHTTPError(403), "HubUnauthorized", 0),
        (HfHubHTTPError(404), "ModelNotFound", 0),
        (HfHubHTTPError(429), "HubRateLimited", 0),
        (HfHubHTTPError(429, **{"Retry-After": "120"}), "HubRateLimited", 120),
        (HfHubHTTPError(429, ratelimit='"api";r=0;t=55'), "HubRateLimited", 55),
        (HfHubHTTPError(429, **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), "HubRateLimited", 0),
        (HfHubHTTPError(500), "HubUnavailable", 0),
        (HfHubHTTPError(503, **{"Retry-After": "9"}), "HubUnavailable", 0),
        (ConnectError("refused"), "HubUnavailable", 0),
        (TimeoutError(), "HubUnavailable", 0),
        (LocalEntryNotFoundError("no connection"), "HubUnavailable", 0),
        (caused(LocalEntryNotFoundError("see above"), HfHubHTTPError(429)), "HubRateLimited", 0),
        (OSError(errno.ENOSPC, "No space left on device"), "CacheFull", 0),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "CacheFull", 0),
        (RuntimeError("Data processing error: IO Error: No space left on device (os error 28)"), "CacheFull", 0),
        (RuntimeError("CAS error: 429 Too Many Requests"), "HubRateLimited", 0),
        (PermissionError(errno.EACCES, "Permission denied"), "FetchFailed", 0),
        (ValueError("?"), "FetchFailed", 0),
    ],
)  # fmt: skip
def test_each_failure_has_its_word(hub, tmp_path, capsys, error, word, wait_s):
    assert verdict(error) == (word, wait_s)
    hub.error = error
    assert main([f"a/m@={tmp_path / 'm'}"]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"shardwright fetch: {word}\n")
    assert "hf_secret" not in out
    assert "pw@" not in out
    assert fetch_script.RETRY_AT.exists() is (wait_s > 0)


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_fetched_before_will_do_while_the_hub_does_not_answer(hub, tmp_path, status):
    path = tmp_path / "m"
    assert main([f"a/m@={path}"]) == 0
    hub.error = HfHubHTTPError(status)
    assert main([f"a/m@={path}"]) == 0
    path.resolve().rmdir()
    assert main([f"a/m@={path}"]) == 1, "somebody emptied the claim"


def test_a_refusal_is_told_though_the_weights_are_there(hub, tmp_path):
    """Whoever lost the right to a model is to know."""
    assert main([f"a/m@={tmp_path / 'm'}"]) == 0
    hub.error = GatedRepoError(401)
    assert main([f"a/m@={tmp_path / 'm'}"]) == 1


def test_it_asks_again_when_the_hub_said_so(hub, tmp_path, monkeypatch):
    slept, now = [], [1000.0]
    monkeypatch.setattr(fetch_script.time, "time", lambda: now[0])
    monkeypatch.setattr(fetch_script.time, "sleep", slept.append)
    hub.error = HfHubHTTPError(429, **{"Retry-After": "300"})
    assert main([f"a/m@={tmp_path / 'm'}"]) == 1
    now[0], hub.error = 1020.0, None
    assert main([f"a/m@={tmp_path / 'm'}"]) == 0
    assert slept == [280.0]


def test_it_does_not_wait_longer_than_its_own_bound(hub, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(fetch_script.time, "sleep", slept.append)
    monkeypatch.setattr(fetch_script.time, "time", lambda: 1000.0)
    hub.error = HfHubHTTPError(429, **{"Retry-After": "999999"})
    main([f"a/m@={tmp_path / 'm'}"])
    main([f"a/m@={tmp_path / 'm'}"])
    assert slept == [fetch_script.LONGEST_WAIT_S]


def test_headers_without_a_time():
    assert asked_wait_s({}) == 0.0
