"""What every sentence that a user reads has to obey, whoever wrote it."""

import re

COMMANDS = {"kubectl", "shardwright", "helm"}
"""Names that are written small wherever they stand."""
_AFTER_A_STOP = re.compile(r"(?<![.\s])\. +([a-z][a-z'-]*)(?=[ ,;:]|$)", re.MULTILINE)


def small_after_a_stop(text: str) -> list[str]:
    """The words that begin a sentence, after a full stop, and are written small; names and fields may be."""
    return [word for word in _AFTER_A_STOP.findall(text) if word not in COMMANDS]
