"""The prefix cache: which leading blocks of a prompt were computed before.

It decides how many tokens of a prompt need no computing. Blocks are kept in the order of their last use, as many as
the KV cache holds; those of running sequences are not set apart, so under pressure it keeps more than vLLM would.
"""

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 16


class PrefixCache:
    """Hashes of full blocks, each of its tokens and all before them."""

    def __init__(self, kv_tokens: int) -> None:
        self._most = kv_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def hit(self, tokens: Sequence[object]) -> int:
        """Return the leading tokens that are there; the last token is always computed."""
        found = 0
        for block in _hashes(tokens[:-1]):
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            found += BLOCK_TOKENS
        return found

    def keep(self, tokens: Sequence[object]) -> None:
        """Take in a prompt that was computed."""
        for block in _hashes(tokens):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)


def _hashes(tokens: Sequence[object]) -> list[int]:
    found, before = [], 0
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        before = hash((before, tuple(tokens[start : start + BLOCK_TOKENS])))
        found.append(before)
    return found
