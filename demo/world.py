"""What lies outside Runfold: a model behind OpenAI's HTTP interface, and a ticket system that honours keys.

Both are one real HTTP server on a free loopback port. It keeps the books that the checks compare with the log:
how often each model answer was asked for, and how often each key was posted and took effect.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

Json = Any
LOOPBACK: Final = "127.0.0.1"
PID_HEADER: Final = "X-Process-Id"
ATTEMPT_HEADER: Final = "X-Attempt"
_HELD_AT_MOST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says: a text, or calls (tool, arguments)."""

    text: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Json]]] = ()


Script = Callable[[str, int], Turn]
"""From a conversation (its first user message) and the number of answers already in it to the next answer."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One POST that arrived.

    Attributes:
        collection: What was posted to, e.g. ``tickets``.
        key: The ``Idempotency-Key`` header.
        pid: The process that sent it.
        is_new: It took effect; False: the key was known and the first answer was given again.
        attempt: Which attempt it said to be; 0: it said nothing.
        at_ms: When it arrived, milliseconds since 1970.
    """

    collection: str
    key: str
    pid: int
    is_new: bool
    attempt: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to the model: its conversation, the answers already in it, when it came (ms since 1970), from whom.

    ``pid`` 0: who asked did not say.
    """

    conversation: str
    answered: int
    at_ms: int
    pid: int = 0


@dataclass(slots=True)
class Hold:
    """An answer that is kept back after its effect was committed."""

    committed: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    pid: int = 0
    """The process that waits for the answer, once ``committed`` is set."""


class World:
    """The server, as a context manager. Its books may be read at any time.

    Args:
        script: What the model says.
        latency_s: Called for each answer of the model and each new effect: how long it takes, in seconds.
        keyless: Collections that know no keys: every POST takes effect. It can still be asked for by key.

    Attributes:
        questions: Every question to the model, in order of arrival.
        posts: Every POST with a key, in order of arrival.
        resources: Collection -> key -> the resource that was made for it.
    """

    def __init__(
        self,
        script: Script,
        latency_s: Callable[[], float] | None = None,
        keyless: Collection[str] = (),
    ) -> None:
        self.questions: list[Asked] = []
        self.posts: list[Posted] = []
        self.resources: dict[str, dict[str, Json]] = {}
        self._script = script
        self._latency_s = latency_s
        self._keyless = frozenset(keyless)
        self._holds: dict[str, Hold] = {}
        self._lock = threading.Lock()
        self._server = _Server((LOOPBACK, 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="world", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for hold in self._holds.values():
            hold.released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def hold(self, key: str) -> Hold:
        """Keep back the answer to the first POST with this key, after its effect."""
        with self._lock:
            return self._holds.setdefault(key, Hold())

    @property
    def asked(self) -> Counter[tuple[str, int]]:
        """Give (conversation, number of answers already in it) -> how often the model was asked exactly that."""
        with self._lock:
            return Counter((question.conversation, question.answered) for question in self.questions)

    def effects(self, collection: str) -> Counter[str]:
        """Give how often each key took effect in a collection."""
        with self._lock:
            return Counter(post.key for post in self.posts if post.is_new and post.collection == collection)

    def complete(self, request: Json, pid: int = 0) -> Json:
        """Answer a chat completion request."""
        messages = request["messages"]
        conversation = next(_text(message["content"]) for message in messages if message["role"] == "user")
        answered = sum(message["role"] == "assistant" for message in messages)
        with self._lock:
            self.questions.append(Asked(conversation, answered, _now_ms(), pid))
        self._take_time()
        return _completion(self._script(conversation, answered), request, answered)

    def post(self, collection: str, key: str, pid: int, body: Json, attempt: int = 0) -> tuple[HTTPStatus, Json]:
        """Make a resource, once for each key; and hold the answer if that was asked for."""
        with self._lock:
            known = self.resources.setdefault(collection, {})
            is_new = key not in known or collection in self._keyless
            if key not in known:
                known[key] = {"id": f"{collection[0].upper()}-{len(known) + 1}", "key": key, **body}
            resource = known[key]
            self.posts.append(Posted(collection, key, pid, is_new, attempt, _now_ms()))
            hold = self._holds.get(key) if is_new else None
        if {**body, "id": resource["id"], "key": key} != resource:
            return HTTPStatus.UNPROCESSABLE_ENTITY, {"error": f"key {key} was used with another body"}
        if is_new:
            self._take_time()
        if hold is not None:
            hold.pid = pid
            hold.committed.set()
            hold.released.wait(_HELD_AT_MOST_S)
        return (HTTPStatus.CREATED if is_new else HTTPStatus.OK), resource

    def _take_time(self) -> None:
        if self._latency_s is not None:
            time.sleep(self._latency_s())

    def find(self, collection: str, key: str) -> list[Json]:
        """Give the resource that was made for a key, if there is one."""
        with self._lock:
            found = self.resources.get(collection, {}).get(key)
        return [] if found is None else [found]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(content: Json) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _completion(turn: Turn, request: Json, answered: int) -> Json:
    calls = [
        {
            "id": f"call-{answered}-{index}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for index, (tool, arguments) in enumerate(turn.calls)
    ]
    message = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
    # About four bytes a token, as a provider would count them.
    read, written = len(json.dumps(request["messages"])) // 4, len(json.dumps(message)) // 4
    return {
        "id": f"chatcmpl-{answered}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Of hundreds of calls at once five may wait for a connection, by default. The kernel sends the others again after
    # 1, 3, 7, 15 s: such a call arrives, and takes effect, long after its caller has given up and gone.
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's signature
        """Report what goes wrong here, but not that a client was killed: that is what the demo is about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Routes of the model and of the ticket system."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            data = self.rfile.read(length)
            if len(data) < length:
                self.close_connection = True  # who sends was killed in the middle of it
                return
            body = json.loads(data)
            path = urlsplit(self.path).path
            key = self.headers.get("Idempotency-Key")
            if path == "/v1/chat/completions":
                self._answer(HTTPStatus.OK, world.complete(body, self._number(PID_HEADER)))
            elif key is None:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": "a POST needs the header Idempotency-Key"})
            else:
                pid, attempt = self._number(PID_HEADER), self._number(ATTEMPT_HEADER)
                self._answer(*world.post(path.strip("/"), key, pid, body, attempt))

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query)
            if asked.path == "/search":
                self._answer(HTTPStatus.OK, [f"{query['q'][0]}: finding {number}" for number in (1, 2)])
            else:
                self._answer(HTTPStatus.OK, world.find(asked.path.strip("/"), query["key"][0]))

        def _number(self, header: str) -> int:
            return int(self.headers.get(header, "0"))

        def _answer(self, status: HTTPStatus, value: Json) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Keep quiet: the books say more."""

    return Handler
