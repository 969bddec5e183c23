"""A table of prices: which product each is of, and what is refused."""

import pytest

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import load_products
from shardwright.catalog.prices import read_prices, with_prices

H100, L4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"


def test_a_product_goes_by_any_of_its_names():
    assert read_prices({H100: 2, "L4": 0.5}) == {H100: 2.0, L4: 0.5}
    assert read_prices({"H100-SXM5": 2.5}) == {H100: 2.5}
    assert read_prices({}) == {}


@pytest.mark.parametrize(
    ("table", "field", "sentence"),
    [
        ({"H1000": 2}, "prices.H1000", "the nearest are"),
        ({"A100": 2}, "prices.A100", "is not a known GPU product"),
        ({H100: 2, "H100": 2}, "prices.H100", f"is the product of prices.{H100}"),
        ({"H100": 2, "H100-SXM": 3}, "prices.H100-SXM", "keep one of them"),
        ({"H100": 0}, "prices.H100", "of GPUs that you own"),
        ({"H100": -1}, "prices.H100", "from 0.01 to 1000"),
        ({"H100": 1001}, "prices.H100", "one GPU for one hour"),
        ({"H100": float("nan")}, "prices.H100", "from 0.01 to 1000"),
        ({"H100": float("inf")}, "prices.H100", "from 0.01 to 1000"),
        ({"H100": True}, "prices.H100", "not true or false"),
        ({"H100": "2.50"}, "prices.H100", "not the text '2.50'"),
        ({"H100": None}, "prices.H100", "not null"),
        ({"H100": {"perHour": 2}}, "prices.H100", "not an object"),
        ([2], "prices", "must be an object"),
        ("cheap", "prices", "must be an object"),
    ],
)
def test_what_is_no_price_is_refused_by_its_product(table, field, sentence):
    with pytest.raises(CatalogError) as refused:
        read_prices(table)
    assert refused.value.field == field
    assert sentence in refused.value.message


def test_stated_prices_take_the_place_of_defaults_under_every_name():
    products = load_products()
    priced = with_prices(products, {H100: 2.0, "NVIDIA-A10": 0.4})
    for name in (H100, "H100", "H100-SXM"):
        found = priced[name]
        assert (found.price_per_gpu_hour, found.price_origin, found.price_source) == (2.0, "Configured", "")
    assert (products["A10"].price_origin, priced["A10"].price_origin) == (None, "Configured")
    assert priced["L4"] is products["L4"]
    assert (priced["L4"].price_origin, priced["H20"].price_origin) == ("Default", None)
