"""What the simulated engine shows: flags as a recorded vLLM takes them, metrics as a recorded one exposes them."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sim.engine import answers
from sim.engine.arguments import Arguments, parse
from sim.engine.behaviour import Fault, LoadFault, from_json
from sim.engine.metrics import Metrics
from sim.engine.queueing import Scheduler, Sequence

LIST = Path(__file__).parents[1] / "data" / "vllm_metrics.txt"
NOT_SIMULATED = {
    *(
        "vllm:estimated_flops_per_gpu",
        "vllm:estimated_read_bytes_per_gpu",
        "vllm:estimated_write_bytes_per_gpu",
    ),
    *("vllm:engine_sleep_state", "vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits"),
    *("vllm:mm_cache_queries", "vllm:mm_cache_hits", "vllm:prompt_tokens_cached_by_source"),
    *("vllm:request_num_preemptions", "vllm:request_prefill_kv_computed_tokens"),
}


def arguments(*more: str) -> Arguments:
    # The live vLLM of the list was started with this length.
    return parse(["serve", "m/x", "--served-model-name=chat", "--max-model-len=1024", *more], {})


def recorded() -> dict[str, tuple[str, set[str], str]]:
    """Give type, labels and edges of each family of the scrape, by the name without what the format appends."""
    found = {}
    for line in LIST.read_text().split("\n\n")[0].splitlines():
        if line.startswith("#") or not line.startswith("vllm:"):
            continue
        name, kind, labels, *edges = line.split("\t")
        if not name.endswith("_created"):
            stem = name.partition("_{")[0]
            found[stem.removesuffix("_total") if kind == "counter" else stem] = (
                kind,
                set(labels.split(",")) if labels else set(),
                edges[0] if edges else "",
            )
    return found


def used_metrics(*more: str) -> Metrics:
    metrics = Metrics(arguments(*more), 90_000)
    scheduler = Scheduler(from_json("").model)
    metrics.rejected("max_num_queued_reqs")
    sequence = Sequence(10, 2, 0.0)
    scheduler.add(sequence)
    for now in (1.0, 2.0):
        scheduler.begin(now - 1)
        metrics.stepped(scheduler.end(now), now, 0)
        sequence.last_token_s = now
    metrics.ended(sequence, "length", 2, 2.0)
    metrics.state(scheduler)
    return metrics


def test_families_labels_and_buckets_are_those_of_a_recorded_vllm() -> None:
    real = recorded()
    seen = set()
    for family in text_string_to_metric_families(used_metrics().page().decode()):
        if not family.name.startswith("vllm:") or family.name.endswith("_created"):
            continue
        # The parser takes a histogram's `_total` for part of its name, as the page has it.
        kind, labels, edges = real[family.name]
        seen.add(family.name)
        assert family.type == kind
        sample = next(each for each in family.samples if not each.name.endswith("_created"))
        shown = set(sample.labels) - {"le"}
        assert shown == labels or (family.name == "vllm:cache_config_info" and shown <= labels)
        if kind == "histogram":
            bounds = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
            assert ",".join(bounds) == edges, family.name
    assert seen == set(real) - NOT_SIMULATED


def test_what_a_request_counts() -> None:
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(used_metrics().page().decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    assert samples["vllm:prompt_tokens_total"] == 10
    assert samples["vllm:generation_tokens_total"] == 2
    assert samples["vllm:time_to_first_token_seconds_sum"] == 1.0
    assert samples["vllm:inter_token_latency_seconds_sum"] == 1.0
    assert samples["vllm:request_time_per_output_token_seconds_sum"] == 1.0
    assert samples["vllm:e2e_request_latency_seconds_sum"] == 2.0
    assert samples["vllm:num_requests_running"] == 0
    assert samples["vllm:admission_rejections_total"] == 1


def test_custom_buckets_and_nan() -> None:
    edges = json.dumps({"time_to_first_token": [0.05, 0.1], "inter_token_latency": [0.005]})
    metrics = used_metrics(f"--custom-histogram-buckets={edges}")
    page = metrics.page().decode()
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.05",model_name="chat"}' in page
    assert (
        'vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.005",model_name="chat"}' in page
    )
    metrics.nan = True
    lines = [line for line in metrics.page().decode().splitlines() if line.startswith("vllm:")]
    assert lines
    assert all(line.endswith(" NaN") for line in lines)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--max-model-length=3", "unrecognized arguments: --max-model-length=3"),
        ("--max-num-seqs=many", "invalid int value: 'many'"),
        ("--kv-cache-dtype=fp7", "invalid choice: 'fp7'"),
        ("--max-num-batched", "unrecognized arguments"),
    ],
)
def test_what_vllm_does_not_know_is_refused(flag: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["serve", "m/x", flag], {})
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_heeded_of_a_command_line() -> None:
    line = (
        "serve m/x --served-model-name chat --max-model-len=16K --max-num-seqs=8 -tp 2 --shutdown-timeout=300"
    )
    found = parse(
        [*line.split(), "--no-enable-prefix-caching", "--max-num-queued-reqs=4", "--port=8001"],
        {"VLLM_API_KEY": "secret"},
    )
    assert (found.served_name, found.max_model_len, found.max_num_seqs, found.port) == (
        "chat",
        16384,
        8,
        8001,
    )
    assert (found.shutdown_timeout_s, found.max_queued_requests, found.api_key) == (300.0, 4, "secret")
    assert not found.prefix_caching


def test_greedy_answers_are_a_versions_own() -> None:
    def said(*more: str, salt: str = "") -> str:
        model = answers.fingerprint(*parse(["serve", "m/x", *more], {}).identity)
        words = answers.words(model, "hello", salt)
        return " ".join(next(words) for _ in range(20))

    assert said() == said("-tp=2", "--max-num-seqs=7"), "how it is sharded changes no answer"
    different = [said(), said("--chat-template=/t/a"), said("--quantization=fp8"), said("--revision=b")]
    assert len(set(different)) == len(different)
    assert said() != said(salt="sample 1") != said(salt="sample 2")


def test_behaviour_as_json() -> None:
    found = from_json(
        '{"model": {"step_ms": 10}, "load_fault": "OutOfMemory", "faults": ["Hang"], "speed": 10}'
    )
    assert found.model.step_ms == 10
    assert found.load_fault is LoadFault.OUT_OF_MEMORY
    assert found.faults == (Fault.HANG,)
    with pytest.raises(TypeError):
        from_json('{"sped": 10}')
