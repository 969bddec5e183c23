"""The page of /metrics: vLLM V1's families, labels and buckets, as a live 0.32 was seen to expose them.

It decides what is counted when. Seconds are those of the wall, as an engine would measure them: one at ten times the
speed shows a tenth. Families of vLLM that are not here are named in the test that holds this against the recorded list.
"""

import re
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector

from sim.engine.arguments import Arguments
from sim.engine.prefix import BLOCK_TOKENS
from sim.engine.queueing import Scheduler, Sequence, Step

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)  # fmt: skip
_TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_VALUE = re.compile(r"^(vllm:\S+(?:\{.*\})?) \S+$", re.MULTILINE)
_ENGINE = "0"


class Metrics:
    """The counters of one engine with one rank."""

    def __init__(self, arguments: Arguments, kv_tokens: int) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": arguments.served_name, "engine": _ENGINE}
        self._length = arguments.max_model_len
        self.nan = False
        ProcessCollector(registry=self.registry)
        self._gauges(arguments, kv_tokens)
        self._counters()
        self._histograms(arguments.buckets)

    def page(self) -> bytes:
        """Return the page."""
        text = generate_latest(self.registry)
        return _VALUE.sub(r"\1 NaN", text.decode()).encode() if self.nan else text

    def state(self, scheduler: Scheduler) -> None:
        """Show the queue and the cache."""
        self._running.set(len(scheduler.running))
        self._waiting.set(len(scheduler.waiting))
        self._capacity.set(len(scheduler.waiting))
        blocks = sum(-(-each.held // BLOCK_TOKENS) for each in scheduler.running)
        self._kv.set(min(1.0, blocks * BLOCK_TOKENS / scheduler.model.kv_tokens))

    def admitted(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count a look into the prefix cache."""
        self._queries.inc(prompt_tokens)
        self._hits.inc(cached_tokens)

    def rejected(self, reason: str) -> None:
        """Count a request that the queue limit refused."""
        self._rejections.labels(model_name=self._labels["model_name"], reason=reason).inc()

    def stepped(self, step: Step, now: float, preempted: int) -> None:
        """Count a step that ended: before the times of its tokens are renewed."""
        if step.computed:
            self._iteration.observe(step.computed)
        self._preemptions.inc(preempted)
        self._generated.inc(len(step.tokens))
        for sequence in step.tokens:
            if sequence.produced == 1:
                self._prompts.inc(sequence.prompt_tokens)
                self._cached.inc(sequence.cached_tokens)
                computed = sequence.prompt_tokens - sequence.cached_tokens
                self._source.labels(**self._labels, source="local_compute").inc(computed)
                self._source.labels(**self._labels, source="local_cache_hit").inc(sequence.cached_tokens)
                self._ttft.observe(now - sequence.arrived_s)
            elif sequence.last_token_s is not None:
                self._itl.observe(now - sequence.last_token_s)

    def ended(self, sequence: Sequence, reason: str, max_tokens: int, now: float) -> None:
        """Count a request that came to its end, or was given up."""
        self._success.labels(**self._labels, finished_reason=reason).inc()
        self._e2e.observe(now - sequence.arrived_s)
        self._of_prompt.observe(sequence.prompt_tokens)
        self._of_answer.observe(sequence.produced)
        self._of_limit.observe(max_tokens)
        self._most.observe(max_tokens)
        self._n.observe(1)
        if sequence.scheduled_s is None:
            return
        self._queue.observe(sequence.scheduled_s - sequence.arrived_s)
        self._inference.observe(now - sequence.scheduled_s)
        if sequence.first_token_s is None:
            return
        self._prefill.observe(sequence.first_token_s - sequence.scheduled_s)
        self._decode.observe(now - sequence.first_token_s)
        if sequence.produced > 1:
            self._tpot.observe((now - sequence.first_token_s) / (sequence.produced - 1))

    def _gauges(self, arguments: Arguments, kv_tokens: int) -> None:
        self._running = self._gauge("vllm:num_requests_running", "Requests in the batch.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests in the queue.")
        self._kv = self._gauge("vllm:kv_cache_usage_perc", "KV cache usage. 1 means 100 percent usage.")
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Requests in the queue by why.",
            [*self._labels, "reason"],
            registry=self.registry,
        )
        self._capacity = by_reason.labels(**self._labels, reason="capacity")
        by_reason.labels(**self._labels, reason="deferred").set(0)
        info = _cache_info(arguments, kv_tokens)
        known = Gauge("vllm:cache_config_info", "The KV cache.", [*info], registry=self.registry)
        known.labels(**info).set(1)

    def _counters(self) -> None:
        self._prompts = self._counter("vllm:prompt_tokens", "Prompt tokens.")
        self._cached = self._counter("vllm:prompt_tokens_cached", "Prompt tokens from a cache.")
        self._generated = self._counter("vllm:generation_tokens", "Tokens of answers.")
        self._preemptions = self._counter("vllm:num_preemptions", "Preemptions.")
        self._queries = self._counter("vllm:prefix_cache_queries", "Tokens looked up.")
        self._hits = self._counter("vllm:prefix_cache_hits", "Tokens found.")
        self._source = Counter(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens.",
            [*self._labels, "source"],
            registry=self.registry,
        )
        self._success = Counter(
            "vllm:request_success", "Requests.", [*self._labels, "finished_reason"], registry=self.registry
        )
        for reason in ("stop", "length", "abort", "error", "repetition"):
            self._success.labels(**self._labels, finished_reason=reason)
        self._rejections = Counter(
            "vllm:admission_rejections", "Refused requests.", ["model_name", "reason"], registry=self.registry
        )
        self.http = Counter(
            "http_requests", "Requests by answer.", ["handler", "method", "status"], registry=self.registry
        )

    def _histograms(self, custom: Mapping[str, list[float]]) -> None:
        tpot = tuple(custom.get("inter_token_latency", _TPOT))
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds", tuple(custom.get("time_to_first_token", _TTFT))
        )
        self._itl = self._histogram("vllm:inter_token_latency_seconds", tpot)
        self._tpot = self._histogram("vllm:request_time_per_output_token_seconds", tpot)
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", _REQUEST)
        self._queue = self._histogram("vllm:request_queue_time_seconds", _REQUEST)
        self._inference = self._histogram("vllm:request_inference_time_seconds", _REQUEST)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", _REQUEST)
        self._decode = self._histogram("vllm:request_decode_time_seconds", _REQUEST)
        # The last edge is the first of 1, 2, 5 … that is not above the longest context.
        lengths = tuple(edge for edge in _TOKENS if edge <= self._length)
        self._of_prompt = self._histogram("vllm:request_prompt_tokens", lengths)
        self._of_answer = self._histogram("vllm:request_generation_tokens", lengths)
        self._of_limit = self._histogram("vllm:request_params_max_tokens", lengths)
        self._most = self._histogram("vllm:request_max_num_generation_tokens", lengths)
        self._n = self._histogram("vllm:request_params_n", (1, 2, 5, 10, 20))
        self._iteration = self._histogram("vllm:iteration_tokens_total", _ITERATION)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(name, what, [*self._labels], registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(name, what, [*self._labels], registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, edges: tuple[float, ...]) -> Histogram:
        made = Histogram(name, name, [*self._labels], buckets=edges, registry=self.registry)
        return made.labels(**self._labels)


def _cache_info(arguments: Arguments, kv_tokens: int) -> dict[str, str]:
    """Give the labels that say something here; vLLM has some thirty more, of options that are not simulated."""
    blocks = kv_tokens // BLOCK_TOKENS
    return {
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": arguments.kv_cache_dtype,
        "enable_prefix_caching": str(arguments.prefix_caching),
        "engine": _ENGINE,
        "gpu_memory_utilization": str(arguments.gpu_memory_utilization),
        "kv_cache_max_concurrency": str(blocks * BLOCK_TOKENS / arguments.max_model_len),
        "kv_cache_size_tokens": str(blocks * BLOCK_TOKENS),
        "num_gpu_blocks": str(blocks),
    }
