"""`--prices FILE`: what GPUs cost, as the operator's configuration says it.

Decides how the file is written: one map `prices`, or the ConfigMap of the chart that holds it. What a price
may be is `catalog.prices`'.
"""

import argparse
from typing import Final

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import load_products
from shardwright.catalog.prices import read_prices, with_prices
from shardwright.catalog.types import GPUProduct
from shardwright.cli.files import InputError, name_of, read_text
from shardwright.cluster.documents import DocumentError, parse_objects

KEY: Final = "prices.yaml"
"""Of the chart's ConfigMap."""
_SHAPE: Final = "write one map of products and USD per GPU-hour, such as prices: {H100: 2.50, NVIDIA-L4: 0.6}"


def add_option(parser: argparse._ActionsContainer) -> None:
    """Add the option."""
    parser.add_argument(
        "--prices",
        metavar="FILE",
        help="what one GPU costs for an hour, in USD, such as prices: {H100: 2.50}; products that it leaves "
        "out have the catalogue's default, where there is one",
    )


def read(path: str | None) -> dict[str, GPUProduct]:
    """Return the products by every name, with the prices of the option's file. Raises InputError."""
    products = load_products()
    if path is None:
        return products
    try:
        return with_prices(products, read_prices(_table(read_text(path))))
    except (CatalogError, DocumentError) as error:
        raise InputError(f"--prices: {name_of(path)}: {error}") from error


def _table(text: str, *, nested: bool = False) -> object:
    objects = parse_objects(text)
    found = objects[0] if len(objects) == 1 else None
    if not isinstance(found, dict):
        raise DocumentError(_SHAPE)
    if found.get("kind") == "ConfigMap" and not nested:
        data = found.get("data")
        held = data.get(KEY) if isinstance(data, dict) else None
        if not isinstance(held, str):
            raise DocumentError(f"the ConfigMap has no key {KEY}: give the chart's, <release>-prices")
        return _table(held, nested=True)
    for name in found:
        if name != "prices":
            raise DocumentError(f"{name}: is not known here: {_SHAPE}")
    if "prices" not in found:
        raise DocumentError(_SHAPE)
    return found["prices"]
