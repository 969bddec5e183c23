"""`--prices FILE`: commands count with the user's prices, say whose they are, and take nothing else for prices."""

import json

import pytest
import yaml

from planner.plan_support import LLAMA_8B
from shardwright.cli.main import main

SERVICE = {
    "apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": "chat", "namespace": "team-a"},
    "spec": {"model": {"id": LLAMA_8B}, "pool": {"maxGPUs": 8}, "workload": {"requestsPerMinute": 30}},
}  # fmt: skip
CHEAP = {"prices": {"H100": 0.75, "A10": 5}}
NODES = ("--gpu", "L4:4", "--gpu", "H100:8", "--gpu", "A10:1", "--gpu", "H20:1")


@pytest.fixture
def run(tmp_path, capsys):
    def asked(command, given=None, *options):
        service, file = tmp_path / "svc.yaml", tmp_path / "prices.yaml"
        service.write_text(yaml.safe_dump(SERVICE))
        where = ["/dev/null", str(service)] if command == "diff" else ["-f", str(service)]
        args = [command, *where, *NODES, *options]
        if given is not None:
            file.write_text(given if isinstance(given, str) else yaml.safe_dump(given))
            args += ["--prices", str(file)]
        code = main(args)
        said = capsys.readouterr()
        return code, said.out if code < 2 else said.err

    return asked


def plan_of(command, text):
    found = json.loads(text)
    return {
        "plan": lambda: found["plan"], "explain": lambda: found["choice"], "diff": lambda: found["services"][0]["after"],
    }[command]()  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "explain", "diff"])
def test_commands_count_with_them(run, command):
    before = plan_of(command, run(command, None, "-o", "json")[1])
    after = plan_of(command, run(command, CHEAP, "-o", "json")[1])
    assert (before["summary"].split()[0], float(before["pricePerHour"])) == ("L4", 1.6)
    assert (after["summary"], float(after["pricePerHour"])) == ("H100 TP1 ×1", 0.75)
    if command != "diff":
        assert (before["priceOrigin"], after["priceOrigin"]) == ("Default", "Configured")


def test_the_explanation_says_whose_each_price_is(run):
    found = json.loads(run("explain", CHEAP, "-o", "json")[1])
    assert {price["gpu"]: (price["pricePerGpuHour"], price["origin"]) for price in found["prices"]} == {
        "H100": (0.75, "Configured"),
        "L4": (0.8, "Default"),
        "A10": (5, "Configured"),
        "H20": (None, None),
    }
    [listed] = [price["source"] for price in found["prices"] if price["source"]]
    assert "AWS g6.xlarge" in listed
    assert found["answer"]["costs"] == "0.75 USD an hour: 1 GPU at 0.75 (as configured)."
    text = run("explain", CHEAP)[1]
    assert "  H100    0.75  Configured\n" in text
    assert "  L4      0.80  Default (AWS g6.xlarge" in text
    assert "  H20        ?  not known\n" in text


def test_the_page_says_it_too(run, tmp_path):
    run("explain", CHEAP, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert 'data-path="/prices/0/origin">Configured' in page


@pytest.mark.parametrize("given", [{"prices": {}}, '{"prices": {"NVIDIA-A30": 1}}'])
def test_what_is_not_in_it_keeps_its_default(run, given):
    assert plan_of("explain", run("explain", given, "-o", "json")[1])["gpu"] == "L4"


def test_the_chart_s_config_map_is_read_as_kubectl_saves_it(run):
    saved = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"prices.yaml": yaml.safe_dump(CHEAP)}}
    assert run("explain", saved) == run("explain", CHEAP)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "write one map of products"),
        ("- H100", "write one map of products"),
        ("H100: 2.5", "H100: is not known here: write one map"),
        ("prices: {H100: 2}\n---\nprices: {L4: 2}", "write one map of products"),
        ({"prices": {"H100": 2}, "currency": "EUR"}, "currency: is not known here"),
        ({"prices": {"H1000": 2}}, "prices.H1000: 'H1000' is not a known GPU product"),
        ({"prices": {"H100": 2, "NVIDIA-H100-80GB-HBM3": 2}}, "keep one of them"),
        ("prices: {H100: 2, H100: 3}", "'H100' is given twice: keep one"),
        ("prices: {H100: .nan}", "prices.H100: must be a number from 0.01 to 1000"),
        ("prices: {H100: -2}", "not the number -2"),
        ("prices:", "prices: must be an object, not null"),
        ({"kind": "ConfigMap", "data": {"a": "b"}}, "has no key prices.yaml"),
        ({"kind": "ConfigMap"}, "has no key prices.yaml"),
        ({"kind": "ConfigMap", "data": {"prices.yaml": "kind: ConfigMap"}}, "kind: is not known here"),
        ("]", "is not YAML"),
    ],
)
def test_what_is_no_file_of_prices_is_refused(run, given, sentence):
    for command in ("plan", "explain", "diff"):
        code, complaint = run(command, given)
        assert code == 2
        assert sentence in complaint
        assert "--prices: " in complaint
        assert "prices.yaml" in complaint


def test_the_operator_does_not_start_with_prices_that_it_cannot_read(tmp_path, capsys):
    file = tmp_path / "prices.yaml"
    file.write_text("prices: {H1000: 2}")
    assert main(["run", "--prices", str(file)]) == 2
    assert "prices.H1000: 'H1000' is not a known GPU product" in capsys.readouterr().err
    assert main(["run", "--prices", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_live_object_tells_what_was_recorded(capsys, tmp_path):
    assert main(["explain", "chat", "--prices", str(tmp_path / "prices.yaml")]) == 2
    assert "--prices and --second-opinion go with -f" in capsys.readouterr().err
