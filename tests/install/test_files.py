"""Files that must agree with each other without being run: CRD copy, container file, licence, commit hooks."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds/llmservices.shardwright.dev.yaml"


def test_the_chart_carries_the_generated_crd():
    copy = ROOT / "charts/shardwright/files/crd.yaml"
    assert copy.read_bytes() == CRD.read_bytes(), "run make generate"


def test_the_chart_can_mark_the_crd():
    # The template inserts the annotation after the only top-level `metadata:`, and there must be none to clash with.
    text = CRD.read_text()
    assert text.count("\nmetadata:\n") == 1
    assert "annotations" not in yaml.safe_load(text)["metadata"]


def test_the_container_file_keeps_its_promises():
    text = (ROOT / "Containerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    last_stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert [line for line in last_stage if line.startswith("USER")] == ["USER 65532:65532"]
    assert not [line for line in last_stage if line.startswith("RUN")]
    installs = [line for line in lines if line.startswith("RUN") and " install " in line]
    assert installs
    # Either every file is checked by hash, or it is our own code without its dependencies.
    assert all("--require-hashes" in line or "--no-deps ." in line for line in installs)
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), f"Containerfile copies {source}, which does not exist"


def test_every_locked_package_has_a_hash():
    text = (ROOT / "requirements/runtime.lock").read_text()
    blocks = re.split(r"\n(?=[a-zA-Z])", text)
    assert len(blocks) > 20
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)


def test_the_licence_is_apache_2_in_full():
    words = " ".join((ROOT / "LICENSE").read_text().split())
    assert words.startswith("Apache License Version 2.0, January 2004")
    for landmark in (
        "3. Grant of Patent License.",
        "8. Limitation of Liability.",
        "END OF TERMS AND CONDITIONS",
    ):
        assert landmark in words


def test_commit_hooks_run_what_exists_and_download_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {entry["repo"] for entry in config["repos"]} == {"local"}
    makefile = (ROOT / "Makefile").read_text()
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        command, *arguments = hook["entry"].split()
        assert command.startswith(".venv/bin/") or command == "make"
        if command == "make":
            assert f"\n{arguments[-1]}:" in makefile
