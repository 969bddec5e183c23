"""What the engine answers: words that depend on the model as it was loaded, and on the prompt.

It decides the text and where it ends. Greedy answers are the same in every replica of a version, however it is
sharded and batched; whatever changes the model, its tokenizer, its template or its quantisation changes them. Sampled
answers differ from one time to the next unless a seed is given. One word is one token.
"""

import hashlib
import random
from collections.abc import Iterator

_WORDS = (
    *(
        "answer",
        "batch",
        "cache",
        "decode",
        "engine",
        "first",
        "graph",
        "head",
        "input",
        "join",
        "kernel",
        "layer",
    ),
    *(
        "model",
        "node",
        "output",
        "prompt",
        "queue",
        "rank",
        "step",
        "token",
        "unit",
        "vector",
        "weight",
        "width",
    ),
)
_SHORTEST, _LONGEST = 16, 256
"""Where an answer ends by itself, which a prompt decides."""


def fingerprint(*parts: object) -> str:
    """Return what stands for a model as it was loaded."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()


def natural_length(model: str, prompt: str) -> int:
    """Return the tokens after which the model ends by itself."""
    return _source(model, prompt, "length").randint(_SHORTEST, _LONGEST)


def words(model: str, prompt: str, salt: str = "") -> Iterator[str]:
    """Give the words of an answer without end; `salt` is empty for a greedy one."""
    source = _source(model, prompt, salt)
    while True:
        yield source.choice(_WORDS)


def _source(*parts: str) -> random.Random:
    return random.Random(hashlib.sha256("\x1f".join(parts).encode()).digest())
