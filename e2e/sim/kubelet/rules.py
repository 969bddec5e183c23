"""What a test asks for pods before they start: an engine's behaviour, an image that cannot be pulled.

It decides which rules a pod matches; later ones win key by key. The file is read at every start of a container, so a
test may change it at any time.
"""

import json
from pathlib import Path
from typing import Any

Json = Any


class Rules:
    """Rules in a file: a list of `{"match": {…}, "engine": {…}, "pull": "…"}`.

    `match` may name `namespace`, `labels`, `image` and `argument` (part of the image, of one argument); all must hold.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def engine(self, pod: Json, container: Json) -> dict[str, Any]:
        """Return the behaviour of an engine in this container."""
        found: dict[str, Any] = {}
        for rule in self._matching(pod, container):
            found |= rule.get("engine", {})
        return found

    def pull_error(self, pod: Json, container: Json) -> str:
        """Return why the image cannot be had; empty when it can."""
        said = [rule["pull"] for rule in self._matching(pod, container) if "pull" in rule]
        return said[-1] if said else ""

    def _matching(self, pod: Json, container: Json) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        rules = json.loads(self._path.read_text())
        return [rule for rule in rules if _matches(rule.get("match", {}), pod, container)]


def write(path: Path, rules: list[dict[str, Any]]) -> None:
    """Write the file at once: the agent never sees half of it."""
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(rules))
    partial.rename(path)


def _matches(match: dict[str, Any], pod: Json, container: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    words = [*container.get("command", []), *container.get("args", [])]
    return (
        match.get("namespace") in (None, pod["metadata"]["namespace"])
        and all(labels.get(key) == value for key, value in match.get("labels", {}).items())
        and match.get("image", "") in container["image"]
        and any(match.get("argument", "") in word for word in (*words, ""))
    )
