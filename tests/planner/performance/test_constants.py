"""The constants' table: what ships is whole, and a bad row is refused by its name."""

from copy import deepcopy

import pytest

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import read_data
from shardwright.catalog.gpus import load_products
from shardwright.catalog.performance import (
    load_performance_constants,
    load_performance_coverage,
    parse_constants,
    parse_coverage,
)

TABLE = read_data("performance_constants.json")


def changed(index, **values):
    table = deepcopy(TABLE)
    table["constants"][index].update(values)
    return table


def test_the_shipped_table_is_whole():
    assert parse_constants(TABLE) == load_performance_constants()
    coverage = load_performance_coverage()
    assert sum(row.rows for row in coverage.measured) == 597
    assert {row.gpu for row in coverage.measured} <= {p.short_name for p in load_products().values()}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"value": 40}, "value"),
        ({"value": None}, "value"),
        ({"value": "0.5"}, "value"),
        ({"unit": ""}, "unit"),
        ({"source": None}, "source"),
        ({"fit": None}, "fit"),
        ({"name": "magic"}, "name"),
        ({"name": "layer_ms"}, "name"),
        ({"low": None}, "low"),
    ],
)
def test_a_bad_row_is_refused(values, field):
    with pytest.raises(CatalogError) as refused:
        parse_constants(changed(0, **values))
    assert refused.value.field.endswith(f".{field}")


def test_a_missing_constant_is_named():
    table = deepcopy(TABLE)
    name = table["constants"].pop()["name"]
    with pytest.raises(CatalogError, match=name):
        parse_constants(table)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("bands", "same", "low"), 1.2, "low"),
        (("bands", "same"), None, "same"),
        (("bands", "source"), None, "source"),
        (("measured", 0, "format"), "FP9", "format"),
        (("measured", 0, "tensor"), [], "tensor"),
        (("bands",), None, "bands"),
    ],
)
def test_a_bad_band_is_refused(path, value, field):
    table = deepcopy(TABLE)
    place = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(CatalogError) as refused:
        parse_coverage(table)
    assert refused.value.field.endswith(field)
