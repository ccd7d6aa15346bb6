"""A remote model, called through pydantic-ai's direct streaming API. Text and thinking are passed on as they arrive; calls, usage
and carried data come at the end, when they are complete.

A stream that ends before the provider marks it as done is an error, however complete it reads. Closing the stream closes the
connection at once. Nothing is retried here, except when the provider refuses the requested output limit: no output was sent then,
and the call is made again with a smaller limit.

The stream's text stays encodable. Some servers cut a character between two deltas, and JSON lets a lone surrogate through; the
journal stores only valid text.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.models import connection, entries, port, provider_errors, request_encoder
from switchtower.models.providers import Dialect

if TYPE_CHECKING:
    from pydantic_ai import messages
    from pydantic_ai.models import Model, StreamedResponse


LONGEST_MESSAGE = 16 * 1_048_576
"""The most characters, arguments of calls included."""

_SILENCES = 10
"""A provider may send keep-alives without content, as some do while the model thinks, but only for this many timeouts."""
_THINKING_TIMEOUT_FACTOR = 5
"""Some models think without output, and more thinking takes longer."""
_DEEP_THOUGHT = ("high", "xhigh")
_CHARACTERS_A_TOKEN = 4
_SAFE_OUTPUT = 4_096
"""The tokens of one answer that every model in use supports."""
_ABOUT_THE_LIMIT = re.compile(r"max_?(?:completion_|output_|new_)?tokens|maxOutputTokens|completion", re.IGNORECASE)
_CONTEXT_FULL = "model_context_window_exceeded"


class RemoteModel:
    def __init__(
        self,
        entry: entries.ProviderEntry,
        model: "Model[Any]",
        origin: provider_errors.ErrorOrigin,
        *,
        silence: float,
        context_window: int | None,
        on_refused_key: Callable[[], None],
    ) -> None:
        self._entry = entry
        self._model = model
        self._origin = origin
        self._silence = silence
        self._context_window = context_window
        self._on_refused_key = on_refused_key
        self._most_output: int | None = None
        """The longest answer that the provider accepts in a request, once it has refused a longer one."""
        self._by = f"{entry.endpoint} {model.model_name}"
        self._encoder = request_encoder.ConversationEncoder(entry.provider.dialect, self._by, model.system, model.profile)

    def __repr__(self) -> str:
        return f"RemoteModel({self.provider!r}, {self.name!r})"

    @property
    def provider(self) -> str:
        return self._entry.name

    @property
    def name(self) -> str:
        return self._model.model_name

    @property
    def context_window(self) -> int | None:
        return self._context_window

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        limit = request.max_output_tokens
        if limit is not None and self._most_output is not None:
            limit = min(limit, self._most_output)
        while True:
            has_begun = False
            try:
                async with contextlib.aclosing(self._stream(request, limit)) as parts:
                    async for part in parts:
                        has_begun = True
                        yield part
                return
            except port.ModelError as trouble:
                lower = None if has_begun or limit is None else _find_lower_limit(trouble, limit)
                if lower is None:
                    raise
                limit = self._most_output = lower

    async def _stream(self, request: port.CompletionRequest, limit: int | None) -> AsyncGenerator[port.Part, None]:
        from pydantic_ai import direct

        level = request.thinking or self._entry.thinking
        settings = self._make_settings(level)
        if limit is not None and self._entry.provider.dialect is Dialect.OPENAI and self._entry.provider.kind != "openai":
            settings["extra_body"] = {"max_tokens": limit}  # OpenAI's newer name for it is not supported everywhere
        elif limit is not None:
            settings["max_tokens"] = limit
        history = self._encoder.encode(request.conversation)
        answer = _MessageBuilder(self._origin)
        opened = direct.model_request_stream(
            self._model,
            history,
            model_settings=settings,
            model_request_parameters=request_encoder.encode_parameters(request),
            instrument=False,
        )
        patience = settings["timeout"] * _SILENCES
        try:
            async with contextlib.AsyncExitStack() as stack:
                with connection.track_responses() as answers:
                    async with asyncio.timeout(patience):
                        response = await stack.enter_async_context(opened)
                for heard in answers:
                    stack.push_async_callback(heard.aclose)  # first of all: then the library has nothing left to wait for
                events = aiter(response)
                while True:
                    async with asyncio.timeout(patience):
                        event = await anext(events, None)
                    if event is None:
                        break
                    if (part := answer.take(event)) is not None:
                        yield part
                for part in self._finish_message(answer, response, request):
                    yield part
        except Exception as error:
            trouble = provider_errors.translate_error(error, self._origin)
            if answer.size:
                yield self._estimate_usage(answer, request)  # the provider counts what it sent, too
            if trouble.status == 401:
                self._on_refused_key()
            # Not chained: the libraries' exceptions contain requests, and those contain keys.
            raise trouble from None

    def _make_settings(self, level: str | None) -> Any:
        settings: dict[str, Any] = {"timeout": self._silence}
        if level is not None:
            if level not in entries.THINKING:
                raise port.ModelError(f"`{level}` is not a level of thinking", transient=False)
            settings["thinking"] = False if level == "off" else level
        if level in _DEEP_THOUGHT:
            settings["timeout"] = self._silence * _THINKING_TIMEOUT_FACTOR
        if self._entry.provider.dialect is Dialect.ANTHROPIC or self._entry.provider.kind == "openrouter":
            settings["cache"] = True  # others cache by themselves; a conversation is sent again with every call
        if self._entry.headers:
            settings["extra_headers"] = dict(self._entry.headers)
        return settings

    def _finish_message(
        self, answer: "_MessageBuilder", response: "StreamedResponse", request: port.CompletionRequest
    ) -> Iterator[port.Part]:
        """Yields the parts that are known only at the end. Raises `ModelError` when the message is incomplete."""
        details = response.provider_details or {}
        reason = details.get("finish_reason")
        if response.finish_reason == "content_filter":
            raise provider_errors.make_withheld_error(self._origin, details.get("refusal"))
        if reason is None or response.finish_reason == "error":
            raise provider_errors.make_cut_off_error(self._origin)
        if reason == _CONTEXT_FULL:
            raise provider_errors.make_context_error(self._origin)
        yield from answer.take_rest()
        at_limit = response.finish_reason == "length"
        parts = response.get().parts
        tools = {request_encoder.encode_tool_name(tool.name): tool.name for tool in request.tools}
        calls = [_make_call(part, tools, at_limit=at_limit) for part in parts if part.part_kind == "tool-call"]
        yield from calls
        if at_limit:
            yield port.EndingPart("length")
        yield self._make_usage(response, answer, request)
        if not at_limit and (kept := answer.build_carry(self._by, parts)) is not None:
            yield port.CarryPart(kept)

    def _make_usage(
        self, response: "StreamedResponse", answer: "_MessageBuilder", request: port.CompletionRequest
    ) -> port.UsagePart:
        counted = response.usage
        if counted.input_tokens or counted.output_tokens:
            usage = port.UsagePart(
                counted.input_tokens, counted.output_tokens, counted.cache_read_tokens, counted.cache_write_tokens
            )
        else:  # a server that does not count; without an estimate no budget would hold
            return self._estimate_usage(answer, request)
        told = (response.provider_details or {}).get("cost")
        cost = float(told) if isinstance(told, int | float) else entries.compute_cost(self._entry, self.name, usage)
        return msgspec.structs.replace(usage, cost=cost)

    def _estimate_usage(self, answer: "_MessageBuilder", request: port.CompletionRequest) -> port.UsagePart:
        going_in, coming_out = _estimate_size(request) // _CHARACTERS_A_TOKEN, -(-answer.size // _CHARACTERS_A_TOKEN)
        usage = port.UsagePart(going_in, coming_out, is_estimate=True)
        return msgspec.structs.replace(usage, cost=entries.compute_cost(self._entry, self.name, usage))


class _MessageBuilder:
    """Builds one message from its events."""

    def __init__(self, origin: provider_errors.ErrorOrigin) -> None:
        self._origin = origin
        self._text = SurrogateRepairer()
        self._thinking = SurrogateRepairer()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._lengths: dict[int, int] = {}
        """The characters that each part has emitted so far, by its index."""
        self.size = 0

    def take(self, event: "messages.ModelResponseStreamEvent") -> port.Part | None:
        if event.event_kind == "part_delta":
            delta = event.delta
            if delta.part_delta_kind == "text":
                return self._add_text(event.index, delta.content_delta)
            if delta.part_delta_kind == "thinking":
                return self._add_thinking(event.index, delta.content_delta)
            if delta.part_delta_kind == "tool_call" and isinstance(delta.args_delta, str):
                self._add_size(len(delta.args_delta))
        elif event.event_kind == "part_start":
            part = event.part
            if part.part_kind == "text":
                return self._add_text(event.index, part.content)
            if part.part_kind == "thinking":
                return self._add_thinking(event.index, part.content)
            if part.part_kind == "tool-call" and isinstance(part.args, str):
                self._add_size(len(part.args))
        return None

    def take_rest(self) -> Iterator[port.Part]:
        """Yields lone surrogates that nothing followed."""
        if left := self._thinking.close():
            yield port.ThinkingPart(left)
        if left := self._text.close():
            yield port.TextPart(left)

    def build_carry(self, by: str, parts: "Sequence[messages.ModelResponsePart]") -> dict[str, Any] | None:
        if self._text.changed or self._thinking.changed:
            return None
        pieces = []
        for index, part in enumerate(parts):
            length = self._lengths.get(index, 0)
            if part.part_kind == "text":
                pieces.append(request_encoder.CarryPiece("text", length, _collect_extras(part.provider_details)))
            elif part.part_kind == "thinking":
                extras = _collect_extras(part.provider_details, id=part.id, signature=part.signature)
                pieces.append(request_encoder.CarryPiece("thinking", length, extras))
            elif part.part_kind == "tool-call":
                pieces.append(request_encoder.CarryPiece("call", 0, _collect_extras(part.provider_details)))
        return request_encoder.pack_carry(by, "".join(self._texts), "".join(self._thoughts), pieces)

    def _add_text(self, index: int, piece: str) -> port.TextPart | None:
        text = self._repair_text(index, self._text.feed(piece), self._texts)
        return port.TextPart(text) if text else None

    def _add_thinking(self, index: int, piece: str | None) -> port.ThinkingPart | None:
        text = self._repair_text(index, self._thinking.feed(piece or ""), self._thoughts)
        return port.ThinkingPart(text) if text else None

    def _repair_text(self, index: int, text: str, whole: list[str]) -> str:
        self._lengths[index] = self._lengths.get(index, 0) + len(text)
        whole.append(text)
        self._add_size(len(text))
        return text

    def _add_size(self, characters: int) -> None:
        self.size += characters
        if self.size > LONGEST_MESSAGE:
            raise provider_errors.make_too_long_error(self._origin, LONGEST_MESSAGE)


def _make_call(part: "messages.ToolCallPart", tools: dict[str, str], *, at_limit: bool) -> port.ToolCallPart:
    name = part.tool_name.encode(errors="replace").decode()
    tool = tools.get(name, name)
    try:
        args = msgspec.json.decode(part.args) if isinstance(part.args, str) and part.args.strip() else part.args or {}
        if isinstance(args, dict):
            msgspec.json.encode(args)  # arguments that cannot be encoded cannot be run
            return port.ToolCallPart(tool, args)
        problem = "the arguments are not a JSON object"
    except RecursionError:
        problem = "the arguments are nested too deeply"
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        problem = f"the arguments are not valid JSON ({str(error)[:100]})"
    if at_limit:
        problem = "the model's limit for one answer was reached in the middle of this call; make a smaller one"
    return port.ToolCallPart(tool, {}, problem)


def _find_lower_limit(error: port.ModelError, limit: int) -> int | None:
    """Returns an output limit that the provider may accept, after it has refused this one; None when that was not its reason."""
    if error.status not in (400, 413, 422) or limit <= _SAFE_OUTPUT or not _ABOUT_THE_LIMIT.search(error.message):
        return None
    named = [int(number) for number in re.findall(r"\d{3,9}", error.message)]
    return max([number for number in named if _SAFE_OUTPUT < number < limit], default=_SAFE_OUTPUT)


_NOT_KEPT = ("citations", "annotations", "raw_content", "logprobs")
"""Fields that are large and never needed again."""


def _collect_extras(details: Any, **marks: str | None) -> dict[str, Any]:
    extras: dict[str, Any] = {name: mark for name, mark in marks.items() if mark}
    if isinstance(details, dict) and (kept := {key: value for key, value in details.items() if key not in _NOT_KEPT}):
        extras["details"] = kept
    return extras


def _estimate_size(request: port.CompletionRequest) -> int:
    """Estimates the characters of the input."""
    said = sum(len(message.text) + sum(len(str(call.args)) for call in message.calls) for message in request.conversation)
    pictured = sum(len(message.images) for message in request.conversation) * port.TOKENS * _CHARACTERS_A_TOKEN
    return (
        said + pictured + len(request.system) + sum(len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    )


_HIGH = ("\ud800", "\udbff")


class SurrogateRepairer:
    """Repairs one text that arrives in pieces. A high surrogate waits for its low one; a lone surrogate becomes U+FFFD."""

    def __init__(self) -> None:
        self._half = ""
        self.changed = False
        """A piece was not passed on unchanged."""

    def feed(self, piece: str) -> str:
        if not self._half and _is_encodable(piece):
            return piece
        self.changed = True
        text = self._half + piece
        self._half = ""
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            text, self._half = text[:-1], text[-1]
        return _repair(text)

    def close(self) -> str:
        left, self._half = self._half, ""
        return _repair(left)


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _repair(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
