"""The chart's rights: one table, shown in the documentation, and never more than a careful reviewer would allow.

`python tests/install/test_rights.py` writes the table into docs/install.md.
"""

from pathlib import Path

import yaml

from shardwright.cluster import kinds

ROOT = Path(__file__).resolve().parents[2]
RIGHTS = yaml.safe_load((ROOT / "charts/shardwright/files/rights.yaml").read_text())
INSTALL = ROOT / "docs/install.md"
BEGIN = "<!-- rights: kept in step by tests/install/test_rights.py -->\n"
END = "<!-- /rights -->"
TITLES = {
    "namespaced": "In the namespaces that are served",
    "pool": "Pods, in all namespaces (in the served ones with `nodeAccess: false`)",
    "cluster": "Cluster-wide (not with `nodeAccess: false`)",
}


def table() -> str:
    lines = []
    for group, title in TITLES.items():
        lines += ["", f"**{title}**", "", "| resource | verbs | for |", "|---|---|---|"]
        for rule in RIGHTS[group]:
            suffix = f".{rule['apiGroups'][0]}" if rule["apiGroups"][0] else ""
            names = ", ".join(f"`{resource}{suffix}`" for resource in rule["resources"])
            value = f" (`rbac.{rule['when']}`)" if "when" in rule else ""
            lines.append(f"| {names} | {', '.join(rule['verbs'])} | {rule['why']}{value} |")
    return "\n".join(lines) + "\n\n"


def rules():
    return [rule for group in RIGHTS.values() for rule in group]


def verbs_of(resource, *, always=False):
    """The verbs that can be granted; `always`: those without a value that withholds them."""
    asked = [rule for rule in rules() if not (always and "when" in rule)]
    return {verb for rule in asked if resource in rule["resources"] for verb in rule["verbs"]}


def test_the_documented_table_is_the_chart_s():
    text = INSTALL.read_text()
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert shown == table(), "run: python tests/install/test_rights.py"


def test_the_groups_are_the_documented_ones():
    assert list(RIGHTS) == list(TITLES)


def test_no_resource_is_granted_twice():
    triples = [
        (group, resource, verb)
        for rule in rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert len(triples) == len(set(triples))


def test_rules_are_complete_and_name_what_they_grant():
    for rule in rules():
        assert set(rule) <= {"apiGroups", "resources", "verbs", "why", "when"}
        assert len(rule["apiGroups"]) == 1
        assert rule["why"]
        for word in rule["resources"] + rule["verbs"] + rule["apiGroups"]:
            assert "*" not in word


def test_the_resources_are_those_that_the_adapter_knows():
    """The other direction, verb by verb, is e2e/test_rights.py: it reads the API server's audit log."""
    known = {
        (kind.api_version.rpartition("/")[0], kind.plural)
        for kind in vars(kinds).values()
        if isinstance(kind, kinds.Kind)
    }
    granted = {
        (rule["apiGroups"][0], resource)
        for rule in rules()
        for resource in rule["resources"]
        if "/" not in resource
    }
    assert granted == known


def test_what_must_never_be_granted():
    # The resource belongs to its users: the operator writes its status and nothing else of it.
    assert verbs_of("llmservices") == {"list", "watch"}
    assert verbs_of("llmservices/status") == {"patch"}
    assert not verbs_of("llmservices/finalizers")
    # A list or watch returns the values.
    assert verbs_of("secrets") == {"get"}
    assert verbs_of("nodes", always=True) == {"list", "watch"}
    assert verbs_of("nodes") == {"list", "watch", "patch"}
    # Pods are made and changed by Deployments alone; those of others are out of reach.
    assert verbs_of("pods", always=True) == {"list", "watch"}
    assert verbs_of("pods") == {"list", "watch", "delete", "patch"}
    assert not [rule for rule in RIGHTS["pool"] if "delete" in rule["verbs"]]
    # Server-side apply needs neither update nor deletecollection; nobody is impersonated and no role is made. What
    # may be bound is one role, which only reads EndpointSlices (e2e/test_chart.py).
    every = {verb for rule in rules() for verb in rule["verbs"]}
    assert every <= {"get", "list", "watch", "create", "patch", "delete"}
    groups = {rule["apiGroups"][0] for rule in rules()}
    assert not groups & {"apiextensions.k8s.io", "authentication.k8s.io"}
    ours = [rule["resources"] for rule in rules() if rule["apiGroups"] == ["rbac.authorization.k8s.io"]]
    assert ours == [["rolebindings"]]


if __name__ == "__main__":
    before, _, rest = INSTALL.read_text().partition(BEGIN)
    INSTALL.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
