"""Every reason a user can see is documented, and says what to do."""

import re
from enum import Enum
from pathlib import Path

import pytest

from shardwright.api.reasons import (
    ADVICE_SENTENCES,
    CALIBRATION_SENTENCES,
    CANDIDATE_SENTENCES,
    CONDITION_SENTENCES,
    REASON_SENTENCES,
    AdviceReason,
    CalibrationReason,
    CandidateReason,
    ConditionType,
    Reason,
)
from shardwright.api.scaling_reasons import (
    INFEASIBLE_SENTENCES,
    RULE_SENTENCES,
    UNKNOWN_SENTENCES,
    VETO_SENTENCES,
    InfeasibleTerm,
    ScalingRule,
    ScalingVeto,
    UnknownSignal,
)

ROOT = Path(__file__).resolve().parents[2]
TABLES = [
    (Reason, REASON_SENTENCES),
    (CandidateReason, CANDIDATE_SENTENCES),
    (CalibrationReason, CALIBRATION_SENTENCES),
    (AdviceReason, ADVICE_SENTENCES),
    (ConditionType, CONDITION_SENTENCES),
    (ScalingRule, RULE_SENTENCES),
    (ScalingVeto, VETO_SENTENCES),
    (InfeasibleTerm, INFEASIBLE_SENTENCES),
    (UnknownSignal, UNKNOWN_SENTENCES),
]


@pytest.mark.parametrize(("enum", "table"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_each_value_has_one_sentence_and_there_are_no_others(enum: type[Enum], table):
    assert list(table) == list(enum), "the table follows the order of the enum"
    assert len(set(table.values())) == len(table)
    text = (ROOT / "docs/reasons.md").read_text()
    for value, sentence in table.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]+", value.value)
        assert sentence[-1] == "."
        assert "\n" not in sentence
        assert f"| {value.value} | {sentence} |" in text


def test_fields_that_sentences_name_exist():
    known = (ROOT / "docs/api.md").read_text()
    for sentence in (
        *REASON_SENTENCES.values(),
        *CANDIDATE_SENTENCES.values(),
        *CALIBRATION_SENTENCES.values(),
        *ADVICE_SENTENCES.values(),
        *RULE_SENTENCES.values(),
        *VETO_SENTENCES.values(),
        *INFEASIBLE_SENTENCES.values(),
        *UNKNOWN_SENTENCES.values(),
    ):
        for path in re.findall(
            r"\b(?:spec|model|pool|workload|scaling|engine|interconnect)\.[a-zA-Z.]+\b", sentence
        ):
            assert f"`{path.rsplit('.', 1)[-1]}`" in known or path == "config.json", path
