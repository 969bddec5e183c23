"""Prompts to engines: what is read of an answer, and what an engine that gives none is told of."""

import pytest
from aiohttp import web

from shardwright.metrics.prompts import ANSWER_TOKENS, PROMPTS, NotAskedError, ask

pytestmark = pytest.mark.asyncio
MODELS = {"data": [{"id": "chat"}]}


class Server:
    """An engine that answers as a test says."""

    def __init__(self, chat=None, completion=None, status=200, models=MODELS, keyless=True):
        self.chat, self.completion, self.status, self.models = chat, completion, status, models
        self.keyless, self.bodies = keyless, []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/invocations", self._invoke)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port = self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    async def _models(self, _):
        return web.json_response(self.models, status=self.status)

    async def _invoke(self, request):
        if not self.keyless:
            return web.json_response({}, status=401)
        body = await request.json()
        return await (self._chat if "messages" in body else self._complete)(request)

    async def _chat(self, request):
        self.bodies.append(await request.json())
        if self.chat is None:
            return web.json_response({"error": "no chat template"}, status=400)
        return web.json_response({"choices": [{"message": self.chat}]})

    async def _complete(self, request):
        body = await request.json()
        if self.completion is None:
            return web.json_response({}, status=500)
        return web.json_response({"choices": [{"text": f"{self.completion} {body['prompt']}"}]})


async def test_each_prompt_is_asked_greedily_of_the_model_that_is_there():
    async with Server(chat={"content": "blue"}) as server:
        assert await ask("127.0.0.1", port=server.port) == ("blue",) * len(PROMPTS)
    assert {b["messages"][0]["content"] for b in server.bodies} == set(PROMPTS)
    assert {(b["model"], b["temperature"], b["seed"], b["max_tokens"]) for b in server.bodies} == {
        ("chat", 0, 0, ANSWER_TOKENS)
    }


async def test_what_a_model_thinks_is_a_part_of_its_answer():
    for name in ("reasoning_content", "reasoning"):
        async with Server(chat={"content": None, name: "let me see"}) as server:
            assert await ask("127.0.0.1", port=server.port, prompts=["x"]) == ("let me see",)


async def test_a_model_without_a_chat_template_completes():
    async with Server(completion="so:") as server:
        assert await ask("127.0.0.1", port=server.port, prompts=["a", "b"]) == ("so: a", "so: b")


async def test_who_demands_a_key_is_asked_where_none_is_demanded():
    async with Server(chat={"content": "blue"}, status=401) as server:
        assert await ask("127.0.0.1", port=server.port, prompts=["x"]) == ("blue",)
    assert "model" not in server.bodies[0], "it cannot be learnt without a key"
    async with Server(completion="so:", status=403) as server:
        assert await ask("127.0.0.1", port=server.port, prompts=["a"]) == ("so: a",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"chat": {"content": "x"}, "status": 401, "keyless": False}, "demands a key"),
        ({"chat": {"content": "x"}, "status": 500}, "not understood"),
        ({"chat": {"content": "x"}, "models": {"data": []}}, "not understood"),
        ({}, "not understood"),
    ],
)
async def test_an_engine_without_answers_is_told_of(given, why):
    async with Server(**given) as server:
        with pytest.raises(NotAskedError, match=why):
            await ask("127.0.0.1", port=server.port)
    with pytest.raises(NotAskedError, match="gave no answer"):
        await ask("127.0.0.1", port=server.port)
