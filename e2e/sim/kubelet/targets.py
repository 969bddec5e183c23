"""The list of pods to scrape, as a file that Prometheus reads: Debian's has no discovery of Kubernetes.

It decides by the usual annotations, as a cluster's scrape configuration would. A pod is on the list from its address
to the end of its object.
"""

import json
from pathlib import Path
from typing import Any

Json = Any
_ANNOTATION = "prometheus.io"


class Targets:
    """The file, written when it changes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._groups: dict[str, Json] = {}

    def put(self, pod: Json) -> None:
        """Take in a pod's newest version."""
        address = pod.get("status", {}).get("podIP")
        annotations = pod["metadata"].get("annotations", {})
        if not address or annotations.get(f"{_ANNOTATION}/scrape") != "true":
            return
        group = {
            "targets": [f"{address}:{annotations.get(f'{_ANNOTATION}/port', '80')}"],
            "labels": {
                "__metrics_path__": annotations.get(f"{_ANNOTATION}/path", "/metrics"),
                "namespace": pod["metadata"]["namespace"],
                "pod": pod["metadata"]["name"],
            },
        }
        if self._groups.get(pod["metadata"]["uid"]) != group:
            self._groups[pod["metadata"]["uid"]] = group
            self._write()

    def drop(self, uid: str) -> None:
        """Take a pod off."""
        if self._groups.pop(uid, None) is not None:
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            partial = self._path.with_suffix(".new")
            partial.write_text(json.dumps(list(self._groups.values())))
            partial.rename(self._path)
