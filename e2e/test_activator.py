"""The real router with an activator as its one worker: who is held, who is refused, and what becomes of them at each end."""

import contextlib
import http.client
import http.server
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.api import Json
from harness.network import GATEWAY
from harness.ports import free_ports
from harness.waiting import PATIENCE_S, wait_until
from sim.router import why_not
from sim.world import LiveCluster
from test_endpoints import Pair, a_pair, get, say, urls

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
HELD = 6


class Answering(http.server.BaseHTTPRequestHandler):
    """An engine that answers each request with its own address."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(200 if self.path == "/health" else 404, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        rendered = self.path.endswith(("/render", "/tokenize"))
        self._say(404 if rendered else 200, b'{"answer": 1}')

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # what the base class prints
        pass


@dataclass
class Held:
    """A pair whose router may have no engine, the port of one that can come, and clients."""

    live: LiveCluster
    pair: Pair
    engine: int
    own: str
    clients: ThreadPoolExecutor

    def ask(self, prompt: str) -> "Future[tuple[int, str | None]]":
        """Send a request from a thread: its status, and when to come again; 0 when there was no answer."""
        return self.clients.submit(self._ask, prompt)

    def _ask(self, prompt: str) -> tuple[int, str | None]:
        connection, body = self.connection(), json.dumps({"model": "chat", "prompt": prompt})
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        return answer.status, answer.headers["Retry-After"]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.pair.router.removeprefix("http://"), timeout=PATIENCE_S)

    def told(self) -> Json:
        return json.loads(get(f"{self.pair.probes}/held") or "{}")

    def waiting(self, count: int) -> None:
        wait_until(lambda: self.told().get("waiting") == count, f"{count} requests that wait: {self.told()}")

    def serve(self, *, ready: bool) -> None:
        say(self.live, self.engine, ready=ready)


@contextlib.contextmanager
def held(live: LiveCluster, tmp_path: Path, *told: str) -> Iterator[Held]:
    engine = http.server.ThreadingHTTPServer((GATEWAY, 0), Answering)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    [port] = free_ports("127.0.0.1", 1)
    options = (f"--activator-port={port}", "--model=chat", f"--hold-requests={HELD}", *told)
    with (
        ThreadPoolExecutor(4 * HELD) as clients,
        a_pair(live, tmp_path, *options, holds=True) as pair,
    ):
        made = Held(live, pair, engine.server_address[1], f"http://127.0.0.1:{port}", clients)
        made.serve(ready=False)
        wait_until(pair.ready, "the router ready without an engine")
        assert pair.listed() == {made.own}
        yield made
        pair.neighbour.stop()
        pair.process.stop()
    engine.shutdown()
    engine.server_close()


def test_requests_wait_for_the_engine_and_what_is_too_many_is_refused(
    live: LiveCluster, tmp_path: Path
) -> None:
    with held(live, tmp_path) as this:
        asked = [this.ask(f"one of {n}") for n in range(HELD)]
        this.waiting(HELD)
        # Refused all at once, each is told when to come again: no circuit is open.
        refused = [this.ask(f"too many {n}").result() for n in range(HELD)]
        assert {status for status, _ in refused} == {503}
        assert all(10 <= int(after or 0) <= 30 for _, after in refused), refused
        assert this.told()["arrived"] == 2 * HELD, "the router's tries are no requests"
        this.serve(ready=True)
        assert {future.result() for future in asked} == {(200, None)}
        wait_until(lambda: this.pair.listed() == urls({this.engine}), "the engine alone")
        assert this.ask("now").result() == (200, None)
        this.serve(ready=False)
        wait_until(lambda: this.pair.listed() == {this.own}, "the activator alone")
        last = this.ask("later")
        this.waiting(1)
        this.serve(ready=True)
        assert last.result() == (200, None)


def test_who_gives_up_leaves_the_place_to_another(live: LiveCluster, tmp_path: Path) -> None:
    with held(live, tmp_path) as this:
        body, headers = '{"model": "chat", "prompt": "impatient"}', {"Content-Type": "application/json"}
        leaving = this.connection()
        leaving.request("POST", "/v1/completions", body, headers)
        this.waiting(1)
        leaving.close()
        this.waiting(0)
        assert this.told()["arrived"] == 1


def test_a_wait_that_is_over_is_told_and_not_waited_again(live: LiveCluster, tmp_path: Path) -> None:
    with held(live, tmp_path, "--hold-seconds=2") as this:
        answers = [future.result() for future in [this.ask(f"one of {n}") for n in range(HELD)]]
        assert {status for status, _ in answers} == {503}
        assert all(after for _, after in answers), answers
        assert this.told() == {"waiting": 0, "arrived": HELD}


def test_a_pod_that_goes_answers_what_it_holds(live: LiveCluster, tmp_path: Path) -> None:
    with held(live, tmp_path, "--drain-seconds=600") as this:
        asked = [this.ask(f"one of {n}") for n in range(3)]
        this.waiting(3)
        this.pair.process.signal(signal.SIGTERM)
        this.pair.neighbour.signal(signal.SIGTERM)
        wait_until(lambda: get(f"{this.pair.router}/liveness") is None, "a router that takes nothing new")
        this.serve(ready=True)
        assert {future.result() for future in asked} == {(200, None)}
        wait_until(lambda: this.pair.neighbour.pid is None, "its end")


def test_a_crash_of_the_activator_loses_what_it_holds_and_no_more(live: LiveCluster, tmp_path: Path) -> None:
    with held(live, tmp_path) as this:
        asked = this.ask("unlucky")
        this.waiting(1)
        this.pair.neighbour.kill()
        print(f"it got {asked.result()}")
        this.pair.neighbour.start()
        wait_until(this.pair.ready, "the next one")
        asked = this.ask("lucky")
        this.waiting(1)
        this.serve(ready=True)
        assert asked.result() == (200, None)
