"""Fetches a model from the hub into the cache claim. Its text runs in a Job, in the engine's own image.

Decides which files an engine needs, whether what is there will do while the hub does not answer, and by which
word a failure is told: the last line is `shardwright fetch: WORD`. Imports nothing of this project, and of
the image only huggingface_hub; prints no token and no address.
"""

import errno
import json
import os
import re
import sys
import time
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
"""What vLLM loads: the first of these that a repository has."""
OTHERS = ("*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ckpt", "*.tflite", "*.ot")
ORIGINAL = "original/*"
"""The same weights once more, in the author's own format."""
LONGEST_WAIT_S = 900
RETRY_AT = Path("/tmp/retry-at")  # noqa: S108 -- the pod's own volume, which outlives the container
WORDS = {401: "HubUnauthorized", 403: "HubUnauthorized", 404: "ModelNotFound", 429: "HubRateLimited"}
NO_ANSWER = re.compile("Connect|Timeout|Transport|RemoteProtocol|LocalEntryNotFound|ChunkedEncoding")


def main(repositories: list[str]) -> int:
    """Fetch each `ID@REVISION=PATH`, and of all but the first what is no weights; the exit code."""
    wait()
    hub = import_module("huggingface_hub")
    try:
        for index, what in enumerate(repositories):
            name, _, path = what.partition("=")
            fetch(hub, *name.rpartition("@")[::2], Path(path), weights=index == 0)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told by a word
        word, retry_s = verdict(error)
        if retry_s:
            RETRY_AT.write_text(str(time.time() + min(retry_s, LONGEST_WAIT_S)))
        print(f"{type(error).__name__}: {without_addresses(str(error))[:500]}")
        print(f"shardwright fetch: {word}", flush=True)
        return 1
    print("fetched", flush=True)
    return 0


def wait() -> None:
    """Wait until the time that the hub named when it answered 429."""
    try:
        seconds = float(RETRY_AT.read_text()) - time.time()
    except (OSError, ValueError):
        return
    time.sleep(max(0.0, min(seconds, LONGEST_WAIT_S)))


def fetch(hub: Any, repository: str, revision: str, path: Path, *, weights: bool) -> None:  # noqa: ANN401 -- a module
    """Fetch one repository and the code of others that it names, and let `path` lead to it."""
    try:
        named = revision or None
        files = hub.HfApi().list_repo_files(repository, revision=named)
        ignored = left_out(files) if weights else [*WEIGHTS, *OTHERS, ORIGINAL]
        folder = Path(hub.snapshot_download(repository, revision=named, ignore_patterns=ignored))
        for other in code_of(folder):
            hub.snapshot_download(other, allow_patterns=["*.py", "*.json"])
    except Exception as error:
        if verdict(error)[0] not in {"HubRateLimited", "HubUnavailable"} or not path.exists():
            raise
        print(f"{repository}: the hub does not answer, and what was fetched before is there")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    link = path.with_name(f".{path.name}.{os.getpid()}.{time.time_ns()}")
    link.symlink_to(os.path.relpath(folder, path.parent))
    link.replace(path)


def left_out(files: list[str]) -> list[str]:
    """Return the patterns of what vLLM does not load of these files."""
    ours = [name for name in files if not fnmatch(name, ORIGINAL)]
    loaded = next((p for p in WEIGHTS if any(fnmatch(name, p) for name in ours)), None)
    if loaded is None:
        return [ORIGINAL]
    return [*(pattern for pattern in (*WEIGHTS, *OTHERS) if pattern != loaded), ORIGINAL]


def code_of(folder: Path) -> list[str]:
    """Return the repositories whose code a configuration names, as `REPOSITORY--MODULE.CLASS`."""
    found: set[str] = set()
    for name in ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json"):
        try:
            named = json.loads((folder / name).read_text()).get("auto_map") or {}
        except (OSError, ValueError, AttributeError):
            continue
        found |= {part for part, dashes, _ in (text.partition("--") for text in texts(named)) if dashes}
    return sorted(found)


def texts(value: object) -> list[str]:
    """Return all texts in a value."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def verdict(error: BaseException) -> tuple[str, float]:
    """Return by which word an error is told, and after how many seconds the hub wants to be asked again."""
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain:
        chain.append(step)
        step = step.__cause__ or step.__context__
    said = " ".join(map(str, chain))
    codes = {getattr(each, "errno", None) for each in chain}
    if codes & {errno.ENOSPC, errno.EDQUOT} or re.search("No space left|quota exceeded", said, re.IGNORECASE):
        return "CacheFull", 0.0
    names = " ".join(cls.__name__ for each in chain for cls in type(each).__mro__)
    responses = [r for r in (getattr(each, "response", None) for each in chain) if r is not None]
    for response in responses:
        if response.status_code in WORDS:
            limited = response.status_code == 429
            return WORDS[response.status_code], asked_wait_s(response.headers) if limited else 0.0
    if responses and responses[0].status_code >= 500:
        return "HubUnavailable", 0.0
    if "Too Many Requests" in said:
        return "HubRateLimited", 0.0
    return ("HubUnavailable" if NO_ANSWER.search(names) else "FetchFailed"), 0.0


def asked_wait_s(headers: Any) -> float:  # noqa: ANN401 -- of requests or of httpx
    """Return the seconds of Retry-After, else those of `RateLimit: ...;t=SECONDS`; 0 without either."""
    after = re.fullmatch(r"\s*(\d+)\s*", headers.get("Retry-After") or "")
    after = after or re.search(r"\bt=(\d+)", headers.get("RateLimit") or headers.get("ratelimit") or "")
    return float(after[1]) if after else 0.0


def without_addresses(text: str) -> str:
    """Take out addresses, which may hold a login or a signature."""
    return re.sub(r"\w+://\S+", "(address)", " ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
