"""The HTTP face of the engine: OpenAI's completions, chat and models, vLLM's health, load and metrics.

It decides which answer a request gets and with which status, as vLLM 0.32 was seen to: 404 for another model, 400 for
a prompt that is too long, 401 without the key on /v1 and not on /invocations, 503 at the queue limit, 500 to what comes during the drain.
"""

import asyncio
import itertools
import json
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from sim.engine import answers
from sim.engine.arguments import Arguments
from sim.engine.behaviour import Behaviour
from sim.engine.core import Core, EngineDeadError, Request
from sim.engine.prefix import PrefixCache

_DRAINING = "cannot schedule new futures after shutdown"
_COMPLETION_TOKENS = 16  # OpenAI's default, of completions only
_VOCABULARY = 100_000
TOO_MANY = "max_num_queued_reqs"
_NOT_SIMULATED = ("n", "best_of", "logprobs", "echo", "tools", "guided_json", "structured_outputs")


@dataclass(frozen=True, slots=True)
class Question:
    """A request as it was understood."""

    chat: bool
    prompt: list[Any]
    text: str
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    salt: str
    stream: bool
    usage: bool


class Refusal(Exception):  # noqa: N818 - not a failure: what a client is told
    """A request that is not computed."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Server:
    """The handlers. `draining` is set by SIGTERM; `idle` is while no answer is on its way."""

    def __init__(self, arguments: Arguments, behaviour: Behaviour, core: Core) -> None:
        self.draining = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._active = 0
        self._arguments = arguments
        self._core = core
        self._natural = behaviour.natural_ends
        self._model = answers.fingerprint(*arguments.identity, behaviour.answers)
        self._cache = PrefixCache(behaviour.model.kv_tokens) if arguments.prefix_caching else None
        self._ids = itertools.count(1)
        self._started = int(time.time())

    def application(self) -> web.Application:
        """Make the application with vLLM's routes."""
        app = web.Application(client_max_size=64 * 2**20, middlewares=[self._middleware])
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/load", self._load)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_post("/invocations", self._completions)
        if self._arguments.scale_out:
            app.router.add_post("/v1/completions/render", self._render)
            app.router.add_post("/v1/chat/completions/render", self._render)
        return app

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        status = "5xx"
        try:
            key = self._arguments.api_key
            if (
                key
                and request.path.startswith("/v1")
                and request.headers.get("Authorization") != f"Bearer {key}"
            ):
                status = "4xx"
                return web.json_response({"error": "Unauthorized"}, status=401)
            response: web.StreamResponse = await handler(request)
        except Refusal as refusal:
            status = f"{refusal.status // 100}xx"
            return _error(refusal)
        except web.HTTPException as error:
            status = f"{error.status // 100}xx"
            raise
        else:
            status = f"{response.status // 100}xx"
            return response
        finally:
            if request.path not in {"/health", "/metrics"}:
                count = self._core.metrics.http.labels(
                    handler=request.path, method=request.method, status=status
                )
                count.inc()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._core.dead else 200)

    async def _load(self, _: web.Request) -> web.Response:
        load = self._core.in_flight if self._arguments.load_tracking else 0
        return web.json_response({"server_load": load})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.33.0"})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._core.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self._arguments.served_name,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": self._arguments.model,
            "max_model_len": self._arguments.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _render(self, http: web.Request) -> web.Response:
        """Give a prompt's tokens without computing: how a router counts them."""
        chat = "/chat/" in http.path
        question = self._understand(chat, await _json(http))
        rendered = {
            "request_id": f"{'chatcmpl' if chat else 'cmpl'}-{next(self._ids)}",
            "token_ids": [each if isinstance(each, int) else _token(each) for each in question.prompt],
            "sampling_params": {"max_tokens": question.max_tokens},
            "model": self._arguments.served_name,
        }
        return web.json_response(rendered if chat else [rendered])

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        body = await _json(http)
        question = self._understand(http.path.endswith("/chat/completions") or "messages" in body, body)
        self._check_room(question)
        if self.draining:
            raise Refusal(500, "InternalServerError", _DRAINING)
        request = self._start(question)
        self._active += 1
        self.idle.clear()
        try:
            if question.stream:
                return await self._stream(http, question, request)
            return await self._whole(question, request)
        finally:
            # A client that left, or a stream that broke: nobody waits for the rest.
            self._core.abort(request)
            self._active -= 1
            if not self._active:
                self.idle.set()

    def _understand(self, chat: bool, body: dict[str, Any]) -> Question:
        if body.get("model", self._arguments.served_name) != self._arguments.served_name:
            raise Refusal(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        for name in _NOT_SIMULATED:
            if body.get(name) not in (None, False, 1, [], {}):
                raise Refusal(400, "BadRequestError", f"the simulator does not simulate `{name}`")
        asked_for = body.get("prompt")
        prompt = _chat_tokens(body) if chat else _prompt_tokens(asked_for)
        room = self._arguments.max_model_len - len(prompt)
        if room < 1:
            message = (
                f"This model's maximum context length is {self._arguments.max_model_len} tokens. However, your "
                f"request has {len(prompt)} input tokens. Please reduce the length of the input messages."
            )
            raise Refusal(400, "BadRequestError", message)
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        most = int(asked or (room if chat else _COMPLETION_TOKENS))
        greedy = float(body.get("temperature", 1.0)) == 0.0
        seed = body.get("seed")
        return Question(
            chat=chat,
            prompt=prompt,
            text=" ".join(map(str, prompt)) if chat or not isinstance(asked_for, str) else asked_for,
            max_tokens=min(most, room),
            min_tokens=int(body.get("min_tokens") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            salt="" if greedy else f"sample {next(self._ids) if seed is None else f'seed {seed}'}",
            stream=bool(body.get("stream")),
            usage=bool((body.get("stream_options") or {}).get("include_usage")),
        )

    def _check_room(self, question: Question) -> None:
        """Refuse at the queue limit; the reason for tokens was not seen in a live vLLM."""
        most, tokens = self._arguments.max_queued_requests, self._arguments.max_queued_tokens
        for reason, full in (
            (TOO_MANY, most is not None and self._core.in_flight >= most),
            (
                "max_num_queued_tokens",
                tokens is not None and self._core.prompt_tokens_waiting + len(question.prompt) > tokens,
            ),
        ):
            if full:
                self._core.metrics.rejected(reason)
                raise Refusal(503, "ServiceUnavailableError", f"the queue is full ({reason})")

    def _start(self, question: Question) -> Request:
        cached = self._cache.hit(question.prompt) if self._cache else 0
        length = question.max_tokens
        if self._natural and not question.ignore_eos:
            own = answers.natural_length(self._model, question.text)
            length = min(length, max(own, question.min_tokens, 1))
        try:
            request = self._core.add(len(question.prompt), length, question.max_tokens, cached)
        except EngineDeadError:
            raise Refusal(500, "InternalServerError", "EngineCore encountered an issue.") from None
        if self._cache:
            self._cache.keep(question.prompt)
        return request

    async def _whole(self, question: Question, request: Request) -> web.Response:
        for _ in range(request.sequence.output_tokens):
            if await request.tokens.get() is None:
                raise Refusal(500, "InternalServerError", "EngineCore encountered an issue.")
        words = list(itertools.islice(self._words(question), request.sequence.output_tokens))
        body = self._frame(question, _message(question.chat, " ".join(words)), _reason(request))
        body["usage"] = _usage(request)
        return web.json_response(body)

    async def _stream(self, http: web.Request, question: Question, request: Request) -> web.StreamResponse:
        # As vLLM: the status is sent before the first token is there, so a failure after this cuts the stream.
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        words = self._words(question)
        size = request.sequence.output_tokens
        pending: list[str] = []
        for number in range(1, size + 1):
            if await request.tokens.get() is None:
                if http.transport is not None:
                    http.transport.abort()
                return response
            pending.append(next(words) if number == 1 else f" {next(words)}")
            if number in {1, size} or len(pending) >= self._arguments.stream_interval:
                reason = _reason(request) if number == size else None
                await _send(response, self._frame(question, _delta(question.chat, "".join(pending)), reason))
                pending.clear()
        if question.usage:
            frame = self._frame(question, None, None) | {"usage": _usage(request)}
            await _send(response, frame)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _words(self, question: Question) -> Iterator[str]:
        return answers.words(self._model, question.text, question.salt)

    def _frame(self, question: Question, choice: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
        kind = "chat.completion" if question.chat else "text_completion"
        if question.chat and question.stream:
            kind = "chat.completion.chunk"
        return {
            "id": f"{'chatcmpl' if question.chat else 'cmpl'}-{id(question):x}",
            "object": kind,
            "created": self._started,
            "model": self._arguments.served_name,
            "choices": [] if choice is None else [{"index": 0, "finish_reason": reason} | choice],
        }


def _token(word: str) -> int:
    return zlib.crc32(word.encode()) % _VOCABULARY


async def _json(http: web.Request) -> dict[str, Any]:
    if http.content_type != "application/json":
        raise Refusal(400, "BadRequestError", "Unsupported Media Type: Only 'application/json' is allowed")
    try:
        body = await http.json()
    except ValueError:
        raise Refusal(400, "BadRequestError", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "BadRequestError", "the body is not an object")
    return body


async def _send(response: web.StreamResponse, frame: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n")


def _error(refusal: Refusal) -> web.Response:
    error = {"message": str(refusal), "type": refusal.kind, "param": None, "code": refusal.status}
    return web.json_response({"error": error}, status=refusal.status)


def _prompt_tokens(prompt: object) -> list[Any]:
    if isinstance(prompt, str):
        return prompt.split() or [""]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    raise Refusal(400, "BadRequestError", "the simulator takes one prompt: a string or a list of token ids")


def _chat_tokens(body: dict[str, Any]) -> list[Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "BadRequestError", "messages: one at least")
    found: list[Any] = []
    for message in messages:
        content = message.get("content") or ""
        parts: Iterable[str] = (
            [content] if isinstance(content, str) else (str(part.get("text", "")) for part in content)
        )
        found += [f"<|{message.get('role', 'user')}|>", *(word for part in parts for word in part.split())]
    return found


def _message(chat: bool, text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}} if chat else {"text": text}


def _delta(chat: bool, text: str) -> dict[str, Any]:
    return {"delta": {"content": text}} if chat else {"text": text}


def _reason(request: Request) -> str:
    return "length" if request.sequence.output_tokens == request.max_tokens else "stop"


def _usage(request: Request) -> dict[str, Any]:
    prompt, answer = request.sequence.prompt_tokens, request.sequence.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": request.sequence.cached_tokens},
    }
