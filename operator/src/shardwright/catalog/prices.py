"""What a GPU costs where a user says so, in the place of the catalogue's default.

Decides what a table of prices may say, and of which product each price is. A product that is not in it keeps
its default, or has no price: none is ever guessed.
"""

from collections.abc import Mapping
from dataclasses import replace

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import kind, mapping
from shardwright.catalog.gpus import find_product, unknown_product_message
from shardwright.catalog.types import GPUProduct

LOWEST, HIGHEST = 0.01, 1000
"""USD per GPU-hour. Figures have two decimals, and nothing costs 0: it would win against whatever does
better. What is above is a price per month, or of a whole machine."""


def read_prices(table: object) -> dict[str, float]:
    """Return the price per GPU-hour by product label. Raises CatalogError that names the product.

    A product goes by its label, short name or another spelling that the catalogue knows, and once only.
    """
    found: dict[str, float] = {}
    written: dict[str, str] = {}
    for name, value in mapping(table, "prices").items():
        where = f"prices.{name}"
        product = find_product(name)
        if product is None:
            raise CatalogError(where, unknown_product_message(name))
        if product.label in found:
            other = written[product.label]
            raise CatalogError(where, f"is the product of prices.{other} ({product.label}): keep one of them")
        found[product.label], written[product.label] = _price(where, value), name
    return found


def _price(where: str, value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    price = float(value) if isinstance(value, int | float) and number else 0.0
    if not LOWEST <= price <= HIGHEST:  # holds for no NaN
        raise CatalogError(
            where,
            f"must be a number from {LOWEST} to {HIGHEST}, the price of one GPU for one hour, not "
            f"{kind(value)}; of GPUs that you own, write what an hour costs you",
        )
    return price


def with_prices(products: Mapping[str, GPUProduct], prices: Mapping[str, float]) -> dict[str, GPUProduct]:
    """Return the products by every name with these prices, by label, in the place of their defaults."""
    stated = {
        label: replace(products[label], price_per_gpu_hour=price, price_source="", price_configured=True)
        for label, price in prices.items()
    }
    return {name: stated.get(product.label, product) for name, product in products.items()}
