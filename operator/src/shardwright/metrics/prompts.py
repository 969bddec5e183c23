"""The same greedy prompts to two engines, for what no figure shows: what they answer.

Decides the prompts and how much of an answer is read. Never compares answers, never sends what a client sent,
and sends no key: an engine that demands one is asked where it demands none.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from shardwright.api.names import ENGINE_PORT, url_host
from shardwright.metrics.ask import KEYLESS, LOGIN

PROMPTS: Final = (
    "Which is the largest planet of the solar system?",
    "Write the numbers from one to ten in words.",
    "Translate into French: the house is by the river.",
    "What is 17 times 23?",
    "Name three primary colours.",
    "Write a Python function that adds two numbers.",
    "Who wrote Romeo and Juliet?",
    "Complete the sentence: the quick brown fox",
    "List the months of the year.",
    "What does HTTP stand for?",
    "Explain in one sentence why the sky is blue.",
    "Return a JSON object with the keys name and age.",
)
"""Plain questions whose answers begin in one way: our choice."""
ANSWER_TOKENS: Final = 24
TIMEOUT_S: Final = 60.0
"""Of one answer: a busy engine computes it between others."""
MOST_BYTES: Final = 1 << 20


class NotAskedError(Exception):
    """An engine gave no answers; the message says why."""


async def ask(address: str, *, port: int = ENGINE_PORT, prompts: Sequence[str] = PROMPTS) -> tuple[str, ...]:
    """Return the answer to each prompt. Raises NotAskedError."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(
            base_url=f"http://{url_host(address)}:{port}",
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        ) as session:
            try:
                model = (await _json(session, "/v1/models"))["data"][0]["id"]
            except _KeyError:
                model = None
            return tuple(await asyncio.gather(*(_one(session, model, prompt) for prompt in prompts)))
    except _KeyError as error:
        raise NotAskedError("the engine demands a key") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NotAskedError(f"the engine gave no answer: {type(error).__name__}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise NotAskedError("the engine's answer is not understood") from error


async def _one(session: aiohttp.ClientSession, model: str | None, prompt: str) -> str:
    """Ask as a chat, so that the template is seen too; a model without one completes.

    `model`: None where a key is demanded to learn it. An engine takes a request that names none as its own.
    """
    common = {"max_tokens": ANSWER_TOKENS, "temperature": 0, "seed": 0} | ({"model": model} if model else {})
    chat = common | {"messages": [{"role": "user", "content": prompt}]}
    chats, completes = ("/v1/chat/completions", "/v1/completions") if model else (KEYLESS, KEYLESS)
    try:
        message = (await _json(session, chats, chat))["choices"][0]["message"]
    except _RefusedError:
        return str((await _json(session, completes, common | {"prompt": prompt}))["choices"][0]["text"])
    # What a model thinks comes first, and under either name.
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    return f"{thought} {message.get('content') or ''}".strip()


class _RefusedError(ValueError):
    """The engine does not take such a request."""


class _KeyError(Exception):
    """The engine demands a key."""


async def _json(session: aiohttp.ClientSession, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
    method = "GET" if body is None else "POST"
    async with session.request(method, path, json=body, allow_redirects=False) as answer:
        if answer.status in LOGIN:
            raise _KeyError
        if answer.status in {400, 404}:
            raise _RefusedError
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        if (answer.content_length or 0) > MOST_BYTES:
            raise ValueError("the answer is too long")
        return await answer.json(content_type=None)
