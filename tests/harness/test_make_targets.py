"""The Makefile's targets that start programs of this repository start them with arguments that they take."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from harness.__main__ import _parser

ROOT = Path(__file__).resolve().parents[2]


def test_every_target_that_the_documents_name_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set()
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        named |= set(
            re.findall(r"^(?:eval \"\$\()?make (?:-s )?([a-z-]+)", document.read_text(), re.MULTILINE)
        )
        named |= set(re.findall(r"`make (?:-s )?([a-z-]+)", document.read_text()))
    assert {"demo", "cluster", "cluster-down"} <= named <= targets


@pytest.mark.parametrize("target", ["binaries", "cluster", "cluster-down"])
def test_the_clusters_own_command_takes_what_make_gives_it(target):
    shown = subprocess.run(
        ["make", "-n", target, "NAME=mine"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    commands = [shlex.split(line) for line in shown.splitlines() if re.search(r"-m harness\b", line)]
    assert commands
    for command in commands:
        options, rest = _parser().parse_known_args(command[command.index("harness") + 1 :])
        assert rest == []
        assert target == "binaries" or options.name == "mine"
