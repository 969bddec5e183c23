"""The example pipelines: their shell steps, taken out of the files and run on a small repository."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from topology.cluster_objects import H100, node

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples/ci"
GITHUB = yaml.safe_load((CI / "github-actions.yaml").read_text())
GITLAB = yaml.safe_load((CI / "gitlab-ci.yaml").read_text())
SERVICE = """
apiVersion: shardwright.dev/v1alpha1
kind: LLMService
metadata: {name: NAME}
spec:
  model: {id: meta-llama/Llama-3.1-8B-Instruct}
  pool: {maxGPUs: 4}
  MORE
"""


def service(name="chat", more=""):
    return SERVICE.replace("NAME", name).replace("MORE", more)


class Repository:
    """A repository with a change on a branch, and the command on the path."""

    def __init__(self, root):
        self.work, self.bin, self.temp = root / "work", root / "bin", root / "temp"
        for folder in (self.work, self.bin, self.temp):
            folder.mkdir()
        command = self.bin / "shardwright"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardwright.cli.main "$@"\n')
        command.chmod(0o755)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("pool/nodes.yaml", yaml.safe_dump({"kind": "List", "items": [node("n1", H100, 8)]}))

    def write(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.work, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", "a change")
        return self.git("rev-parse", "HEAD")

    def run(self, script, **variables):
        environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "operator/src"),
            "HOME": str(self.temp), "TMPDIR": str(self.temp),
        } | variables  # fmt: skip
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=self.work, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip


def github(repository, base, labels):
    """Run the step as GitHub does: expressions become text beforehand."""
    [job] = GITHUB["jobs"].values()
    summary = repository.temp / "summary.md"
    refused = "" if "restart-ok" in labels else "--fail-on restart"
    values = {name: value for name, value in job["env"].items() if "${{" not in value}
    values |= {
        "BASE": base,
        "FAIL_ON": refused,
        "RUNNER_TEMP": str(repository.temp),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    assert set(job["env"]) <= set(values)
    [step] = [step for step in job["steps"] if step.get("name") == "Compare"]
    done = repository.run(step["run"], **values)
    assert summary.read_text().startswith("```\n") if done.returncode < 2 else True
    return done


def gitlab(repository, base, labels):
    """Run the script as GitLab does: its lines one after the other in one shell."""
    job = GITLAB["models-diff"]
    values = job["variables"] | {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_MERGE_REQUEST_LABELS": ",".join(labels),
    }
    return repository.run("\n".join(job["script"]), **values)


@pytest.mark.parametrize("pipeline", [github, gitlab])
@pytest.mark.parametrize(
    ("changes", "labels", "code", "said"),
    [
        ({}, [], 0, "No change in 1 service."),
        ({"models/chat.yaml": service(more="scaling: {minReplicas: 2}")}, [], 0, "1 pod is added, the others stay"),
        ({"models/chat.yaml": service(more="drain: {maxSeconds: 5}")}, [], 1, "restart-ok"),
        ({"models/chat.yaml": service(more="drain: {maxSeconds: 5}")}, ["x", "restart-ok"], 0, "pods restart"),
        ({"models/sub/other.yaml": service("other")}, [], 0, "new: H100 TP1 ×1"),
        ({"models/chat.yaml": service(more="parallelism: {tensor: 3}")}, [], 1, "new spec cannot run"),
        ({"models/chat.yaml": service(more="nothing: 1")}, [], 1, "new spec cannot run"),
        ({"models/chat.yaml": "a: ["}, [], 2, "is not YAML"),
    ],
)  # fmt: skip
def test_a_pipeline_says_what_a_change_does_and_ends_as_documented(
    tmp_path, pipeline, changes, labels, code, said
):
    repository = Repository(tmp_path)
    repository.write("models/chat.yaml", service())
    repository.commit()
    repository.git("checkout", "--quiet", "-b", "change")
    for name, text in changes.items():
        repository.write(name, text)
    repository.commit()
    repository.git("checkout", "--quiet", "main")
    repository.write("models/unrelated.yaml", service("unrelated"))  # main has gone on meanwhile
    base = repository.commit()
    repository.git("checkout", "--quiet", "change")
    done = pipeline(repository, base, labels)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "unrelated" not in done.stdout


@pytest.mark.parametrize("pipeline", [github, gitlab])
def test_a_first_folder_is_all_new(tmp_path, pipeline):
    repository = Repository(tmp_path)
    base = repository.commit()
    repository.write("models/chat.yaml", service())
    repository.commit()
    done = pipeline(repository, base, [])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "default/chat: new: H100 TP1 ×1" in done.stdout


def test_the_files_are_pipelines():
    """What the tools' documentation asks for at least: a trigger, a runner, steps that use or run something."""
    assert set(GITHUB) == {
        "name",
        True,
        "permissions",
        "jobs",
    }  # YAML 1.1 reads `on` as true, GitHub does not
    assert "pull_request" in GITHUB[True]
    for job in GITHUB["jobs"].values():
        assert job["runs-on"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
    [job] = GITLAB.values()
    assert {"image", "rules", "variables", "script"} <= set(job)
    assert all(isinstance(line, str) for line in [*job["before_script"], *job["script"]])
    assert all(isinstance(value, str) for value in job["variables"].values())
