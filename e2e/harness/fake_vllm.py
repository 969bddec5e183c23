"""A fake exporter of vLLM's metrics: many engines behind one port, each with counters that a test sets.

It decides nothing: no engine runs, and no figure means anything beyond what the test gave it. Its names are held
against the committed list of those that a real vLLM exposes (`tests/data/vllm_metrics.txt`).
"""

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

LABELS = '{engine="0",model_name="chat"}'
TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"
GAP = "vllm:inter_token_latency_seconds"
PROMPT = "vllm:request_prompt_tokens"
OUTPUT = "vllm:request_generation_tokens"
BUCKETS = {
    TTFT: (0.5, 1.0, 2.0),
    TPOT: (0.05, 0.06),
    GAP: (0.05,),
    PROMPT: (200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0),
    OUTPUT: (),
}


@dataclass
class Engine:
    """What one engine has counted."""

    requests: float = 0.0
    failed: float = 0.0
    """Requests answered with a status of 500 or more."""
    refused: float = 0.0
    """Of those, by the bound of the queue."""
    ttft_s: float = 0.1
    tpot_s: float = 0.01
    input_tokens: float = 500.0
    output_tokens: float = 100.0
    running: float = 0.0
    waiting: float = 0.0
    kv_share: float = 0.0
    blocks: int | None = 1000
    block_tokens: int = 16
    started: float = field(default_factory=time.time)
    sums: dict[str, float] = field(default_factory=dict)

    def serve(self, requests: float) -> None:
        """Count so many more requests, each with the lengths and times of now."""
        self.requests += requests
        tokens = requests * (self.output_tokens - 1)
        for name, count, each in (
            (TTFT, requests, self.ttft_s),
            (TPOT, requests, self.tpot_s),
            (GAP, tokens, self.tpot_s),
            (PROMPT, requests, self.input_tokens),
            (OUTPUT, requests, self.output_tokens),
        ):
            self._add(f"{name}_sum", count * each)
            self._add(f"{name}_count", count)
            for edge in BUCKETS[name]:
                self._add(f"{name}_bucket{edge}", count if each <= edge else 0.0)
        self._add("vllm:prompt_tokens_total", requests * self.input_tokens)
        self._add("vllm:generation_tokens_total", requests * self.output_tokens)

    def _add(self, name: str, more: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + more

    def restart(self) -> None:
        """Begin at zero, as a new process does."""
        self.requests, self.refused, self.sums, self.started = 0.0, 0.0, {}, time.time()

    def page(self) -> str:
        """Give the page of /metrics."""
        lines = [f"process_start_time_seconds {self.started}"]
        for name, value in (
            ("vllm:num_requests_running", self.running),
            ("vllm:num_requests_waiting", self.waiting),
            ("vllm:kv_cache_usage_perc", self.kv_share),
        ):
            lines.append(f"{name}{LABELS} {value}")
        for name, edges in BUCKETS.items():
            count = self.sums.get(f"{name}_count", 0.0)
            for edge in edges:
                within = self.sums.get(f"{name}_bucket{edge}", 0.0)
                lines.append(f'{name}_bucket{LABELS[:-1]},le="{edge}"}} {within}')
            lines.append(f'{name}_bucket{LABELS[:-1]},le="+Inf"}} {count}')
            lines += [
                f"{name}_count{LABELS} {count}",
                f"{name}_sum{LABELS} {self.sums.get(f'{name}_sum', 0.0)}",
            ]
        for reason, share in (("stop", 0.75), ("length", 0.25)):
            labels = f'{LABELS[:-1]},finished_reason="{reason}"}}'
            lines.append(f"vllm:request_success_total{labels} {self.requests * share}")
        for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
            lines.append(f"{name}{LABELS} {self.sums.get(name, 0.0)}")
        lines.append(f"vllm:prefix_cache_hits_total{LABELS} 0.0")
        lines.append('http_requests_total{handler="/load",method="GET",status="2xx"} 7')
        for status, count in (("2xx", self.requests), ("5xx", self.failed)):
            if count:  # no series before the first such answer
                of = f'handler="/v1/chat/completions",method="POST",status="{status}"'
                lines.append(f"http_requests_total{{{of}}} {count}")
        if self.refused:  # nor before the first refusal
            for reason, share in (("max_num_queued_reqs", 0.75), ("max_num_queued_tokens", 0.25)):
                of = f'model_name="chat",reason="{reason}"'
                lines.append(f"vllm:admission_rejections_total{{{of}}} {self.refused * share}")
        if self.blocks is not None:
            lines.append(
                f'vllm:cache_config_info{{block_size="{self.block_tokens}",engine="0",'
                f'num_gpu_blocks="{self.blocks}"}} 1.0'
            )
        return "\n".join(lines) + "\n"


class FakeVLLM:
    """The server: /NAMESPACE/POD is the page of one engine."""

    def __init__(self) -> None:
        self.engines: dict[tuple[str, str], Engine] = {}
        self.asked = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def targets(self) -> list[dict[str, Any]]:
        """Give the engines as Prometheus' file_sd and static_configs take them."""
        return [
            {
                "targets": [self.address],
                "labels": {
                    "__metrics_path__": f"/{namespace}/{pod}",
                    "namespace": namespace,
                    "pod": pod,
                    "instance": pod,
                },
            }
            for namespace, pod in self.engines
        ]

    def write(self, file: Path) -> None:
        """List the engines in a file for Prometheus, which never sees half of it."""
        text = json.dumps(self.targets())
        if not file.exists() or file.read_text() != text:
            partial = file.with_suffix(".new")
            partial.write_text(text)
            partial.rename(file)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                _, namespace, pod, *_ = (*self.path.split("/"), "", "")
                engine = outer.engines.get((namespace, pod))
                body = engine.page().encode() if engine else b""
                self.send_response(200 if engine else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
