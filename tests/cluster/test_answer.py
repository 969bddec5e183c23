"""Where an answer ends, however it arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.answer import Answer, AnswerReader, Headers

FIXED = b"HTTP/1.1 409 Conflict\r\nRetry-After: 3\r\nContent-Length: 11\r\n\r\n{\r\n\r\n0\r\n\r\n}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
    b'5\r\n0\r\n\r\n\r\n0A;name="v"\r\nabcdefghij\r\n000\r\nTrailer: x\r\nOther: y\r\n\r\n'
)
WHOLE = {FIXED: (409, b"{\r\n\r\n0\r\n\r\n}"), CHUNKED: (200, b"0\r\n\r\nabcdefghij")}


def read(*parts: bytes) -> tuple[Answer | None, AnswerReader]:
    """The answer, which must not be there before the last part."""
    reader = AnswerReader()
    for part in parts[:-1]:
        assert reader.feed(part) is None
    return reader.feed(parts[-1]), reader


@pytest.mark.parametrize("sent", WHOLE)
def test_an_answer_is_whole_with_its_last_byte_and_not_before(sent):
    answer, reader = read(*(sent[at : at + 1] for at in range(len(sent))))
    assert (answer.status, answer.body) == WHOLE[sent]
    assert reader.keeps


@pytest.mark.parametrize("sent", WHOLE)
def test_an_answer_may_be_cut_at_any_byte(sent):
    for at in range(1, len(sent)):
        answer, reader = read(sent[:at], sent[at:])
        assert (answer.status, answer.body, reader.keeps) == (*WHOLE[sent], True)


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=30),
)
def test_chunks_and_cuts_are_independent_of_each_other(chunks, sizes):
    sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent += b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    parts, at = [], 0
    while at < len(sent):
        size = sizes[len(parts) % len(sizes)]
        parts.append(sent[at : at + size])
        at += size
    answer, reader = read(*parts)
    assert answer.body == b"".join(chunks)
    assert reader.keeps


def test_interim_answers_are_passed_over():
    sent = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + FIXED
    for at in range(1, len(sent)):
        answer, _ = read(sent[:at], sent[at:])
        assert answer.status == 409
        assert "link" not in answer.headers


@pytest.mark.parametrize(
    "head",
    [b"204 No Content\r\n", b"304 Not Modified\r\nContent-Length: 9\r\n", b"200\r\nContent-Length: 0\r\n"],
)
def test_an_answer_may_have_no_body(head):
    answer, reader = read(b"HTTP/1.1 " + head + b"\r\n")
    assert answer.body == b""
    assert reader.keeps


@pytest.mark.parametrize(
    ("sent", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Connection: close\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nconnection: x, Close\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (FIXED + b"H", False),
        (CHUNKED + FIXED, False),
    ],
)
def test_a_connection_is_kept_when_both_sides_agree_where_the_answer_ended(sent, keeps):
    answer, reader = read(sent)
    assert answer is not None
    assert reader.keeps is keeps


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nup to the end of the connection",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused_at_once(sent):
    with pytest.raises(ValueError):
        AnswerReader().feed(sent)


def test_headers_are_found_in_any_case_and_joined():
    headers = Headers(b"HTTP/1.1 200 OK\r\nRetry-After:  7 \r\nA: 1\r\na: 2\r\nB: x:y\r\n")
    assert headers["retry-after"] == headers["RETRY-AFTER"] == "7"
    assert dict(headers) == {"retry-after": "7", "a": "1, 2", "b": "x:y"}
    assert headers.get("C", "") == ""
    assert len(headers) == 3
