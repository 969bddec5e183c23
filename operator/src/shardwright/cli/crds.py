"""`shardwright crds`: the CustomResourceDefinition as YAML.

Decides nothing; the definition is generated from the resource models.
"""

import argparse

import yaml

from shardwright.api.crd import crd


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    subparsers.add_parser("crds", help="print the CustomResourceDefinition", description=__doc__)


def run(args: argparse.Namespace) -> int:
    """Print the definition; always 0."""
    del args
    print(yaml.safe_dump(crd(), sort_keys=False, width=120), end="")
    return 0
