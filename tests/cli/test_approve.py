"""`shardwright approve` and `rollback`: which revision is meant, what is asked, who may write, what is printed."""

import asyncio
import copy
import json

import pytest
import yaml
from msgspec import Raw

from shardwright.cli import live as live_module
from shardwright.cli.main import main
from shardwright.cluster.errors import Gone
from shardwright.render.failed_start import FailedStart, annotation

A, B, C = "aaaaaaaa", "12345678", "cccccccc"


def revision(name, number):
    owner = {"kind": "LLMService", "name": "chat", "uid": "u1", "controller": True}
    labels = {"shardwright.dev/service": "chat", "shardwright.dev/revision": name}
    return {
        "metadata": {"name": f"chat-{name}", "labels": labels, "ownerReferences": [owner]},
        "revision": number, "data": Raw(json.dumps({"report": {"summary": f"H100 TP{number + 1} ×2"}, "digest": name * 4}).encode()),
    }  # fmt: skip


class Cluster:
    """One LLMService with its revisions, and what was written."""

    def __init__(self):
        self.service = {
            "metadata": {"name": "chat", "namespace": "team-a", "uid": "u1", "generation": 4},
            "spec": {"planPolicy": "Manual"},
            "status": {
                "observedGeneration": 4,
                "proposal": {"revision": B, "summary": "H100 TP1 ×2", "changes": ["+2 GPUs", "pods restart"]},
            },
        }
        foreign = revision("dddddddd", 9)
        foreign["metadata"]["ownerReferences"][0]["uid"] = "u0"  # of a former service of this name
        self.revisions = [revision(C, 1), revision(A, 2), revision(B, 0), foreign]
        self.written = []

    async def get(self, _kind, namespace, name):
        if (namespace, name) != ("team-a", "chat"):
            raise Gone(f"GET llmservices/{name}: 404 NotFound", status=404)
        return copy.deepcopy(self.service)

    async def list_pages(self, _kind, _namespace, *, labels):
        assert labels == "shardwright.dev/service=chat"
        yield copy.deepcopy(self.revisions), "1"

    async def merge_as(self, kind, namespace, name, patch, *, manager):
        assert (kind.plural, namespace, name, manager) == ("llmservices", "team-a", "chat", "shardwright-cli")
        assert patch["metadata"] == {"uid": "u1"}
        self.written.append(patch["spec"])


@pytest.fixture
def cluster(monkeypatch):
    found = Cluster()

    def ask(_context, _what, question):
        try:
            return asyncio.run(question(found))
        except Gone as error:
            raise live_module.InputError(str(error)) from error

    monkeypatch.setattr(live_module, "ask", ask)
    return found


def run(*words, name="chat"):
    return main([words[0], name, "-n", "team-a", *words[1:]])


def test_what_was_shown_is_approved_by_its_name(cluster, capsys):
    assert run("approve", "--revision", B) == 0
    assert cluster.written == [{"approvedRevision": B}]
    out = capsys.readouterr().out
    assert f"revision {A} (H100 TP3 ×2) is in force" in out
    assert "+2 GPUs" in out
    assert "pods restart" in out


def test_without_a_name_somebody_has_to_be_asked(cluster, capsys, monkeypatch):
    assert run("approve") == 2
    assert f"--revision {B}" in capsys.readouterr().err
    assert not cluster.written
    for answer, code in (("n\n", 1), ("\n", 1), ("y\n", 0)):
        monkeypatch.setattr(
            "sys.stdin", type("Terminal", (), {"isatty": lambda _: True, "readline": lambda _, a=answer: a})()
        )
        assert run("approve") == code
        assert len(cluster.written) == (code == 0)
    assert run("approve", "--yes") == 0
    assert cluster.written == [{"approvedRevision": B}] * 2


def test_nothing_is_approved_that_was_not_looked_at_or_is_not_there(cluster, capsys):
    cluster.service["metadata"]["generation"] = 5
    assert run("approve", "--yes") == 2
    assert "has not looked at the newest spec" in capsys.readouterr().err
    assert run("approve", "--revision", B) == 0  # a name is a name, whatever the spec says by now
    assert run("approve", "--revision", "ffffffff") == 2
    assert f"there are: {A}, {C}, {B}" in capsys.readouterr().err
    assert run("approve", "--revision", "dddddddd") == 2
    del cluster.service["status"]["proposal"]
    cluster.service["metadata"]["generation"] = 4
    assert run("approve", "--yes") == 2
    assert f"nothing waits for approval in chat; revision {A}" in capsys.readouterr().err
    assert run("approve", name="other") == 2
    assert cluster.written == [{"approvedRevision": B}]


def test_approving_again_and_clearing(cluster, capsys):
    assert run("approve", "--clear") == 1
    cluster.service["spec"]["approvedRevision"] = B
    assert run("approve", "--revision", B) == 0
    assert "is approved already" in capsys.readouterr().out
    assert not cluster.written
    assert run("approve", "--clear") == 0
    assert cluster.written == [{"approvedRevision": None}]


def test_the_printed_line_is_text_in_yaml_whatever_its_digits(cluster, capsys):
    for name in (B, "1234e567", "00000000", "aaaaaaaa"):
        cluster.revisions[2] = revision(name, 0)
        cluster.service["status"]["proposal"]["revision"] = name
        assert run("approve", "--print") == 0
        out = capsys.readouterr().out
        assert yaml.safe_load(out) == {"approvedRevision": name}
        assert len(out.splitlines()) == 1
    assert not cluster.written


def test_a_rollback_goes_to_what_was_in_force_before_and_never_to_a_proposal(cluster, capsys):
    assert run("rollback", "--yes") == 0
    assert cluster.written == [{"approvedRevision": C}]
    assert "shardwright approve chat -n team-a --clear" in capsys.readouterr().out
    assert run("rollback", "--to", f"chat-{C}") == 0
    assert run("rollback", "--print") == 0
    assert yaml.safe_load(capsys.readouterr().out.splitlines()[-1]) == {"approvedRevision": C}
    cluster.revisions = cluster.revisions[1:]
    assert run("rollback", "--yes") == 2
    assert "no earlier revision" in capsys.readouterr().err


def test_revisions_are_listed_with_the_one_in_force_first(cluster, capsys):
    cluster.service["spec"]["approvedRevision"] = A
    assert run("rollback", "--list") == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [(row[0], row[-1].strip()) for row in rows[1:]] == [
        (A, "in force, approved"), (C, "earlier"), (B, "waits"),
    ]  # fmt: skip


def test_a_rollback_passes_over_what_did_not_start_and_the_list_says_so(cluster, capsys):
    failed = FailedStart(reason="ImagePull", message="no such image", at="2026-11-30T00:00:00Z", spec="x/")
    bad = revision("eeeeeeee", 2)
    bad["metadata"]["annotations"] = annotation(failed)
    cluster.revisions = [revision(C, 1), bad, revision(A, 3)]
    assert run("rollback", "--list") == 0
    assert "did not start (ImagePull)" in capsys.readouterr().out
    assert run("rollback", "--yes") == 0
    assert cluster.written == [{"approvedRevision": C}]


MARKS = {
    "Argo CD, by label": {"labels": {"argocd.argoproj.io/instance": "models"}},
    "Argo CD, by annotation": {"annotations": {"argocd.argoproj.io/tracking-id": "x"}},
    "Flux, by label": {"labels": {"kustomize.toolkit.fluxcd.io/name": "models"}},
    "Flux, by manager": {"managedFields": [{"manager": "kustomize-controller", "fieldsV1": {}}]},
    "Helm, by annotation": {"annotations": {"meta.helm.sh/release-name": "models"}},
}


@pytest.mark.parametrize("mark", MARKS)
def test_an_object_from_git_is_written_with_a_word_about_git(cluster, capsys, mark):
    cluster.service["metadata"] |= MARKS[mark]
    assert run("approve", "--revision", B) == 0
    assert f"note: {mark.partition(',')[0]} manages chat: commit this line too" in capsys.readouterr().out
    assert cluster.written == [{"approvedRevision": B}]


@pytest.mark.parametrize(
    "words", [("approve", "--revision", B), ("rollback", "--to", C), ("approve", "--clear")]
)
def test_what_git_states_is_not_written_here(cluster, capsys, words):
    fields = {"f:spec": {"f:approvedRevision": {}}}
    cluster.service["spec"]["approvedRevision"] = A
    cluster.service["metadata"] |= {
        "labels": {"argocd.argoproj.io/instance": "models"},
        "managedFields": [{"manager": "argocd-controller", "operation": "Apply", "fieldsV1": fields}],
    }
    assert run(*words) == 1
    err = capsys.readouterr().err
    assert "Argo CD manages chat and states spec.approvedRevision (argocd-controller)" in err
    assert not cluster.written
    assert run(*words, "--force") == 0
    assert len(cluster.written) == 1


def test_what_a_person_applied_by_hand_is_written_over(cluster):
    fields = json.loads('{"f:spec": {"f:approvedRevision": {}}}')
    cluster.service["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": fields}
    ]
    assert run("approve", "--revision", B) == 0
    assert cluster.written == [{"approvedRevision": B}]
