"""The tests' client of the API server: what it sends arrives once, whatever the server did to a connection meanwhile."""

import contextlib
import http.server
import json
import socket
import ssl
import threading

import pytest

from harness import kubeconfig
from harness.api import Api, ApiError
from harness.certs import Authority

METHODS = ["GET", "POST", "PATCH", "DELETE"]


class Server(http.server.ThreadingHTTPServer):
    """A TLS server that keeps connections, and what it got on which."""

    daemon_threads = True

    def __init__(self, context):
        self.context, self.seen, self.status, self.handlers = context, [], 200, []
        super().__init__(("127.0.0.1", 0), Handler)

    def get_request(self):
        plain, address = super().get_request()
        return self.context.wrap_socket(plain, server_side=True), address

    def close_idle(self):
        """End every connection as the API server does after 90 s without a request, and wait until it is closed."""
        for handler in list(self.handlers):
            handler.ended.clear()
            handler.connection.shutdown(socket.SHUT_RDWR)
            assert handler.ended.wait(60)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.ended = threading.Event()
        self.server.handlers.append(self)

    def finish(self):
        self.server.handlers.remove(self)
        with contextlib.suppress(OSError):
            super().finish()
        self.connection.close()
        self.ended.set()

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, self.client_address))
        body = json.dumps({"kind": "Status"}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.serving("server", ["localhost"], ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    running = Server(context)
    running.authority = authority.certificate
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def api(server, tmp_path):
    path = kubeconfig.write(
        tmp_path / "kubeconfig",
        server_url=f"https://127.0.0.1:{server.server_port}",
        ca=server.authority,
        credentials="secret",
        user="tester",
    )
    with contextlib.closing(Api(path)) as client:
        yield client


@pytest.mark.parametrize("method", METHODS)
def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server, api, method):
    api.get("/first")
    server.close_idle()
    assert api.request(method, "/second", None if method == "GET" else {"a": 1}) == {"kind": "Status"}
    assert [(each, path) for each, path, _ in server.seen] == [("GET", "/first"), (method, "/second")]


def test_a_connection_is_kept(server, api):
    for _ in range(3):
        api.get("/again")
    assert len({address for _, _, address in server.seen}) == 1


@pytest.mark.parametrize("status", [302, 409, 429, 503])
def test_an_answer_is_given_as_it_came(server, api, status):
    server.status = status
    with contextlib.ExitStack() as refused:
        if status >= 400:
            refused.enter_context(pytest.raises(ApiError, match=str(status)))
        api.post("/once", {})
    assert len(server.seen) == 1


def test_a_server_that_is_away_is_told_with_what_was_asked(server, api):
    server.close_idle()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        api._server = f"https://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ConnectionError, match="POST /lost"):
            api.post("/lost", {})
