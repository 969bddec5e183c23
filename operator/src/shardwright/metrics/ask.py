"""One token asked of one engine, to see whether it still brings any.

Decides what an answer means. A full queue is no token. What comes from anything but the engine's own loop (no
connection, an unknown model, a login that is asked for) says nothing of it. Never sends more than a word,
nor a key, and keeps nothing of the answer.
"""

from enum import StrEnum
from typing import Final

import aiohttp

from shardwright.api.names import ENGINE_PORT, url_host

CONNECT_S: Final = 5.0
KEYLESS: Final = "/invocations"
"""Takes what /v1/completions and /v1/chat/completions take, and vLLM asks nobody for a key there
(vllm/entrypoints/sagemaker/routes.py; observed of 0.32)."""
LOGIN: Final = frozenset({401, 403})
_FULL: Final = frozenset({429, 503})


class Answer(StrEnum):
    """What became of the question."""

    TOKEN = "Token"  # noqa: S105 -- of a language model
    SILENCE = "Silence"
    """The engine's server took it, and no token came in time."""
    UNKNOWN = "Unknown"
    """It never reached the engine, or was refused."""


async def ask_for_a_token(address: str, model: str, timeout_s: float, *, port: int = ENGINE_PORT) -> Answer:
    """Ask the engine at an IP for one token. Raises nothing that a server can bring about."""
    url = f"http://{url_host(address)}:{port}"
    body = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            for path in ("/v1/completions", KEYLESS):
                async with session.post(url + path, json=body, allow_redirects=False) as answer:
                    if answer.status in _FULL:
                        return Answer.SILENCE
                    if answer.status not in LOGIN:
                        return Answer.TOKEN if answer.status == 200 else Answer.UNKNOWN
            return Answer.UNKNOWN
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError):
        return Answer.UNKNOWN
    except TimeoutError:
        return Answer.SILENCE
    except (aiohttp.ClientError, OSError, ValueError):
        return Answer.UNKNOWN
