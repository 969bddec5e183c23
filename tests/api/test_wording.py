"""Golden texts and tables obey `wording`; what is written in other tests is held to it where it is made."""

from pathlib import Path

import pytest

from shardwright.api.reasons import (
    CALIBRATION_SENTENCES,
    CANDIDATE_SENTENCES,
    CONDITION_SENTENCES,
    REASON_SENTENCES,
)
from wording import small_after_a_stop

GOLDEN = sorted((Path(__file__).parents[1] / "cli/__snapshots__").glob("*.ambr"))


def test_the_rule_finds_a_small_word_and_leaves_names_alone():
    assert small_after_a_stop("pinned to TP8. a replica takes. All is well. then") == ["a", "then"]
    for fine in (
        "so. spec.replicas asks",
        "0.5 GiB",
        "a.b c",
        "so... it goes",
        "so. kubectl get",
        "so. Qwen/x",
    ):
        assert small_after_a_stop(fine) == []


@pytest.mark.parametrize(
    "table", [REASON_SENTENCES, CANDIDATE_SENTENCES, CALIBRATION_SENTENCES, CONDITION_SENTENCES]
)
def test_sentences_of_the_tables_begin_large(table):
    for sentence in table.values():
        assert small_after_a_stop(f"x. {sentence}") == []


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_texts_begin_their_sentences_large(path):
    assert small_after_a_stop(path.read_text()) == []
