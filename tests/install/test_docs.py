"""Documents that must keep up with what they describe: dependencies, values, metrics, changelog, links, records.

`python tests/install/test_docs.py` writes the table of metrics into docs/operations.md.
"""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from shardwright.metrics.exposition import Exposition

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPERATIONS = ROOT / "docs/operations.md"
BEGIN = "<!-- metrics: kept in step by tests/install/test_docs.py -->\n"
END = "<!-- /metrics -->"
DOCUMENTS = sorted(
    [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/adr").glob("*.md"), ROOT / "CHANGELOG.md"],
    key=str,
)


def required_packages():
    groups = [PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"].values()]
    return sorted({re.match(r"[\w.-]+", line).group().lower() for lines in groups for line in lines})


@pytest.mark.parametrize("package", required_packages())
def test_every_dependency_has_a_reason(package):
    text = (ROOT / "docs/dependencies.md").read_text()
    row = re.search(rf"^\| `{re.escape(package)}` \|(.+)\|$", text, re.MULTILINE)
    assert row, f"docs/dependencies.md: add a line for {package} with the reason it is needed"
    reason = row.group(1).split("|")[-2].strip()
    assert len(reason) > 10, f"docs/dependencies.md: {package} needs a reason, not {reason!r}"


def leaves(values, prefix=""):
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path != "resources":
            yield from leaves(value, f"{path}.")
        else:
            yield path


def chart(name):
    return yaml.safe_load((ROOT / "charts/shardwright" / name).read_text())


@pytest.mark.parametrize("value", list(leaves(chart("values.yaml"))))
def test_every_chart_value_is_documented_and_in_the_schema(value):
    section = (ROOT / "docs/install.md").read_text().partition("## Values")[2].partition("\n## ")[0]
    assert f"`{value}`" in section, f"docs/install.md, Values: describe {value}"
    schema = chart("values.schema.json")
    for part in value.split("."):
        assert schema.get("additionalProperties") is False, f"{value}: a misspelt neighbour would be accepted"
        schema = schema["properties"][part]
    assert schema.get("description"), f"values.schema.json: describe {value}"


def metrics():
    """Name, kind, labels and meaning of each metric of ours; gauges that the controller adds are read from its source."""
    for family in Exposition().registry.collect():
        if family.name.startswith("shardwright_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield name, family.type, family.documentation
    for source in sorted((ROOT / "operator/src/shardwright/controller").glob("*.py")):
        for name, text in re.findall(r"""\.gauges?\(\s*"(\w+)",\s*"([^"]+)\"""", source.read_text()):
            yield name, "gauge", text


def metrics_table():
    rows = [f"| `{name}` | {kind} | {text} |" for name, kind, text in sorted(metrics())]
    return "\n".join(["| metric | kind | meaning |", "|---|---|---|", *rows]) + "\n"


def test_every_metric_is_documented():
    shown = OPERATIONS.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == metrics_table(), "run: python tests/install/test_docs.py"


def test_chart_and_package_carry_one_version():
    version = PROJECT["project"]["version"]
    assert chart("Chart.yaml")["version"] == version
    assert chart("Chart.yaml")["appVersion"] == version


def test_the_lowest_kubernetes_is_stated_alike():
    lowest = re.search(r"(\d+\.\d+)\.0", chart("Chart.yaml")["kubeVersion"]).group(1)
    text = (ROOT / "docs/install.md").read_text()
    assert f"**{lowest} is the oldest version supported.**" in text


def test_changelog_names_only_known_sections():
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## \[(.+?)\](.*)$", text, re.MULTILINE)
    assert releases[0] == ("Unreleased", "")
    assert all(re.fullmatch(r" - \d{4}-\d{2}-\d{2}", date) for _, date in releases[1:])
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def anchors(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    prose = re.sub(r"`[^`\n]*`", "", document.read_text())  # a pattern in code may look like a link
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), f"{document.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{document.name}: no heading for {target}"


@pytest.mark.parametrize("record", sorted((ROOT / "docs/adr").glob("*.md")), ids=lambda path: path.name)
def test_decision_records_have_their_parts_on_one_page(record):
    text = record.read_text()
    assert re.match(
        rf"# {record.name[:4]}: .+\n\nStatus: (accepted|superseded by \d+), \d{{4}}-\d\d-\d\d\n", text
    )
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= 50


if __name__ == "__main__":
    before, _, rest = OPERATIONS.read_text().partition(BEGIN)
    OPERATIONS.write_text(before + BEGIN + metrics_table() + END + rest.partition(END)[2])
