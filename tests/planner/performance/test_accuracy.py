"""The shipped constants on the measured rows, and the judge of the accuracy figures."""

from statistics import median

import pytest
from serving.fitting import fit, predictions
from serving.forms import FITTED, constants_of, reference_form, shipped_form
from serving.judge import errors, percentile, picks
from serving.rows import MODELS, PRODUCTS, load_rows

from shardwright.catalog.fields import read_data
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.catalog.performance import load_performance_constants
from shardwright.planner.performance.predict import predict

SHIPPED = {name: getattr(load_performance_constants(), name) for name in FITTED}


def test_every_name_of_the_file_is_in_the_catalogue():
    assert set(PRODUCTS.values()) <= set(load_products())
    assert set(MODELS.values()) <= set(load_models())
    assert len(load_rows()) == 597


def test_errors_in_sample_do_not_grow():
    rows = load_rows()
    found = errors(rows, predictions(shipped_form(), rows, SHIPPED))
    assert found.median[0] <= 14.5
    assert found.median[1] <= 10.0
    assert found.median[2] <= 10.0
    assert found.p90[1] <= 33


def test_the_reference_form_gives_its_published_errors():
    """Its own report: 20.3, 10.1, 10.0 on the other half of the rows, its unchanged constants."""
    form = reference_form()
    rows = load_rows()
    found = errors(rows, predictions(form, rows, form.start))
    assert found.median == pytest.approx((20.3, 10.1, 10.0), abs=2.0)


def test_scripts_and_operator_use_one_formula():
    rows = load_rows()[::40]
    for row, figures in zip(rows, predictions(shipped_form(), rows, SHIPPED), strict=True):
        found = predict(row.request, constants_of(SHIPPED))
        assert (found.ttft_ms, found.tpot_ms, found.output_tokens_per_s) == pytest.approx(figures)


def test_a_fit_finds_the_constants_that_made_the_figures():
    form = shipped_form()
    rows = [row for row in load_rows() if row.request.concurrency is not None][::6]
    truth = {**form.start, **SHIPPED}
    made = predictions(form, rows, truth)
    measured = [
        type(row)(**{**{n: getattr(row, n) for n in row.__slots__},
                     "ttft_ms": f[0], "tpot_ms": f[1], "tokens_per_s": f[2]})
        for row, f in zip(rows, made, strict=True)
    ]  # fmt: skip
    found = fit(form, measured)
    assert max(errors(measured, predictions(form, measured, found)).median) < 0.5
    assert found["layer_ms"] == pytest.approx(truth["layer_ms"], rel=0.05)


def test_a_perfect_prediction_picks_the_best():
    rows = load_rows()
    perfect = [(row.ttft_ms, row.tpot_ms, row.tokens_per_s) for row in rows]
    found = picks(rows, perfect, 1.0)
    assert found.questions > 500
    assert (found.finds_none, found.breaks) == (0, 0)
    assert found.efficiency == pytest.approx(100)
    blind = picks(rows, [(1.0, 1.0, row.tokens_per_s) for row in rows], 1.0)
    assert blind.breaks_by_10 > 50
    assert picks(rows, perfect, 1.3).finds_none > 0


def test_percentiles():
    assert percentile([1, 2, 3, 4, 5], 50) == median([1, 2, 3, 4, 5])
    assert percentile([0, 10], 90) == 9


def test_no_constant_is_fitted_that_the_table_holds_fixed():
    table = read_data("performance_constants.json")
    fitted = {row["name"] for row in table["constants"] if "make fit" in row["fit"]}
    assert fitted == set(FITTED)
    bounds = {row["name"]: (row["low"], row["high"]) for row in table["constants"] if row["name"] in FITTED}
    assert bounds == {name: (low, high) for name, (_, low, high) in FITTED.items()}
