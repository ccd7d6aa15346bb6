"""A foreign hub in a separate thread: our host connects to it, and a test inspects the messages that it receives."""

import json
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from tests.conformance.relay import closed
from tests.conformance.relay.closed import Frame
from tests.conformance.relay.peers import TIMEOUT, matches
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync import server


class FakeHub:
    """A hub; `acks` decides whether it acknowledges everything at once, as a real hub does."""

    def __init__(self) -> None:
        self.acks = True
        self.refuses_with: int | None = None
        self.paths: list[str] = []
        """The paths of the received requests in order."""
        self.frames: list[Frame] = []
        self.closed_with: list[int | None] = []
        self._line: server.ServerConnection | None = None
        self._news = threading.Condition()
        self._problems: list[str] = []
        self._server = server.serve(self._serve, "127.0.0.1", 0, process_request=self._request, max_size=None)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    def close(self) -> None:
        self.cut()
        self._server.shutdown()
        self._thread.join(TIMEOUT)

    # The host's side

    def _request(self, connection: server.ServerConnection, request: Request) -> Response | None:
        with self._news:
            self.paths.append(request.path)
            self._news.notify_all()
        # relay, WebSocket Endpoints: the token is in the query. A hub that knows only the document does not check other places.
        refusal = self.refuses_with or (None if "host_token=" in request.path else 401)
        return None if refusal is None else Response(refusal, HTTPStatus(refusal).phrase, Headers(), b"")

    def _serve(self, line: server.ServerConnection) -> None:
        with self._news:
            self._line = line
            self._news.notify_all()
        try:
            for said in line:
                self._take(line, json.loads(said))
        except ConnectionClosed:
            pass
        finally:
            with self._news:
                if self._line is line:
                    self._line = None
                self.closed_with.append(line.close_code)
                self._news.notify_all()

    def _take(self, line: server.ServerConnection, frame: Frame) -> None:
        problem = None
        try:
            closed.check_hub_frame(frame)
        except Exception as found:  # passed to the waiting test, because an exception would end in this thread
            problem = f"{found!r} in {frame}"
        with self._news:
            self.frames.append(frame)
            if problem is not None:
                self._problems.append(problem)
            acks = self.acks
            self._news.notify_all()
        if acks and "seq" in frame:
            line.send(json.dumps(make_acknowledgement(frame["run_id"], frame["seq"])))

    # The test's side

    def wait(self, is_there: Callable[[], Any]) -> Any:
        """Waits until `is_there` returns something true, and returns it."""
        deadline = time.monotonic() + TIMEOUT
        with self._news:
            while not (found := is_there()):
                assert not self._problems, self._problems
                assert self._news.wait(deadline - time.monotonic()), f"it did not come; the last that came: {self.frames[-5:]}"
            assert not self._problems, self._problems
        return found

    def wait_for(self, type_: str, run_id: str | None = None, *, since: int = 0, **data: Any) -> Frame:
        found = self.wait(lambda: [frame for frame in self.frames[since:] if matches(frame, type_, run_id, data)][:1])
        return dict(found[0])

    def list_run_messages(self, run_id: str, *types: str, since: int = 0) -> list[Frame]:
        """Returns the numbered messages of a run."""
        with self._news:
            told = [frame for frame in self.frames[since:] if frame.get("run_id") == run_id and "seq" in frame]
        return [frame for frame in told if not types or frame["type"] in types]

    @property
    def line(self) -> server.ServerConnection:
        line: server.ServerConnection = self.wait(lambda: self._line)
        return line

    def send(self, type_: str, data: Any = None, **envelope: Any) -> None:
        said = {"type": type_, "ts": "2025-01-01T00:00:00Z", **envelope, "data": {} if data is None else data}
        self.line.send(json.dumps(said))

    def send_ack(self, run_id: str, last_seq: int) -> None:
        self.line.send(json.dumps(make_acknowledgement(run_id, last_seq)))

    def call(self, type_: str, run_id: str | None = None, **data: Any) -> Frame:
        request_id = data.setdefault("request_id", str(uuid4()))
        self.send(type_, data, **({} if run_id is None else {"run_id": run_id}))
        return self.wait_for("rpc.response", request_id=request_id)

    def request_result(self, type_: str, run_id: str | None = None, **data: Any) -> Any:
        answer = self.call(type_, run_id, **data)["data"]
        assert answer["ok"], answer
        return answer["result"]

    def request_error(self, type_: str, run_id: str | None = None, **data: Any) -> str:
        answer = self.call(type_, run_id, **data)["data"]
        assert not answer["ok"], answer
        return str(answer["error"])

    def start(self, cmd: str, cwd: Any, tool: str = "demo", **data: Any) -> str:
        return str(self.request_result("rpc.run.start", tool=tool, cmd=cmd, cwd=str(cwd), **data)["run_id"])

    def get_output(self, run_id: str) -> str:
        return "".join(frame["data"]["text"] for frame in self.list_run_messages(run_id, "run.output"))

    def wait_for_output(self, run_id: str, part: str) -> str:
        self.wait(lambda: part in "".join(f["data"]["text"] for f in self.frames if matches(f, "run.output", run_id, {})))
        return self.get_output(run_id)

    def cut(self) -> None:
        """Ends the connection like a broken network."""
        with self._news:
            line = self._line
        if line is not None:
            line.socket.close()

    def forget(self) -> int:
        """Returns the current end of `frames`, for tests that only concern later frames."""
        with self._news:
            return len(self.frames)


def make_acknowledgement(run_id: str, last_seq: int) -> Frame:
    return {"type": "run.ack", "ts": "2025-01-01T00:00:00Z", "data": {"run_id": run_id, "last_seq": last_seq}}
