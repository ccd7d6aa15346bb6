"""An exported page: what stands where, and that nothing said in a session becomes part of the page's own language."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.sessions import html_export

MODEL = event_messages.Model(
    id="gpt-6.1-terra",
    name="Terra",
    api="openai-completions",
    provider="openai",
    baseUrl="",
    reasoning=True,
    input=("text",),
    cost=event_messages.ModelCost(),
    contextWindow=100_000,
    maxTokens=8_000,
)
INFO = event_messages.SessionInfo(
    sessionId="sess_1",
    sessionName="Fix the tests",
    model=MODEL,
    thinkingLevel="low",
    isStreaming=False,
    messageCount=4,
    createdAt="2026-02-28T10:00:00.000Z",
)
FIGURES = event_messages.SessionStats(
    sessionId="sess_1",
    userMessages=1,
    assistantMessages=2,
    toolCalls=1,
    toolResults=1,
    totalMessages=4,
    tokens=event_messages.Tokens(input=1_000, output=200, cacheRead=500, cacheWrite=0, total=1_700),
    cost=0.1234,
)
AT = 1_772_272_800_000
HOSTILE = "</pre><script>alert(1)</script>\"' onload=x <img src=x onerror=alert(1)> &lt; \x00\x1b[31m\x85\u202e ]]> --> {{x}}"


def make_assistant_message(
    *content: event_messages.Text | event_messages.Thinking | event_messages.ToolCall, error: str | None = None
) -> event_messages.Assistant:
    plain = event_messages.Assistant(content=content, api="a", provider="openai", model="terra", timestamp=AT)
    if error is None:
        return plain
    return event_messages.Assistant(
        content=content, api="a", provider="openai", model="terra", timestamp=AT, stopReason="error", errorMessage=error
    )


class ExportOutlineParser(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_the_sessions_figures_and_each_result_with_its_call() -> None:
    call = event_messages.ToolCall("call_1", "run", {"command": "make test"})
    page = html_export.render_page(
        INFO,
        FIGURES,
        [
            event_messages.User((event_messages.Text("Please fix"), event_messages.Image("aGk=", "image/png")), AT),
            make_assistant_message(
                event_messages.Thinking("Hm"), event_messages.Text("I run it:\n```sh\nmake test\n```\nNow."), call
            ),
            event_messages.ToolResult("call_1", "run", (event_messages.Text("2 failed"),), True, AT),
            make_assistant_message(event_messages.Text("It fails"), error="the model went away"),
        ],
    )
    body = page[page.index("<main>") : page.index("</main>")]
    assert body.splitlines() == [
        "<main>",
        '<article class="user"><h2><span>User</span>'
        '<time datetime="2026-02-28T10:00:00.000Z">2026-02-28 10:00:00 UTC</time></h2>',
        '<p dir="auto">Please fix</p>',
        '<img alt="A picture" src="data:image/png;base64,aGk=">',
        "</article>",
        '<article class="assistant"><h2><span>Assistant (terra)</span>'
        '<time datetime="2026-02-28T10:00:00.000Z">2026-02-28 10:00:00 UTC</time></h2>',
        '<details><summary>Thinking</summary><p dir="auto">Hm</p></details>',
        '<p dir="auto">I run it:</p>',
        "<pre><code>make test</code></pre>",
        '<p dir="auto">Now.</p>',
        '<details class="failed"><summary>Failed: <code>run</code> make test</summary>',
        "<pre>{",
        "  &quot;command&quot;: &quot;make test&quot;",
        "}</pre>",
        "<pre>2 failed</pre>",
        "</details>",
        "</article>",
        '<article class="assistant"><h2><span>Assistant (terra)</span>'
        '<time datetime="2026-02-28T10:00:00.000Z">2026-02-28 10:00:00 UTC</time></h2>',
        '<p dir="auto">It fails</p>',
        '<p class="error">the model went away</p>',
        "</article>",
    ]
    outline = ExportOutlineParser(page)
    assert outline.open == []
    for shown in ("Fix the tests", "openai/gpt-6.1-terra", "1,500 in, 200 out", "$0.1234", "2026-02-28 10:00:00 UTC"):
        assert shown in outline.text


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    page = html_export.render_page(INFO, FIGURES, [event_messages.User((event_messages.Text("hi"),), AT)])
    assert (
        "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in page
    )
    outline = ExportOutlineParser(page)
    assert not {"script", "link", "iframe", "object"} & set(outline.tags)
    assert "url(" not in page
    assert "@import" not in page


@pytest.mark.parametrize(
    "hostile", [HOSTILE, "javascript:alert(1)", '"><svg onload=alert(1)>', "```\n</code></pre><script>x</script>"]
)
def test_hostile_content_stays_text_wherever_it_stands(hostile: str) -> None:
    call = event_messages.ToolCall(hostile, hostile, {hostile: hostile, "nested": [hostile]})
    messages: list[event_messages.Message] = [
        event_messages.User(
            (
                event_messages.Text(hostile),
                event_messages.Image(hostile, "image/png"),
                event_messages.Image("aGk=", f"image/png{hostile}"),
            ),
            AT,
        ),
        make_assistant_message(event_messages.Thinking(hostile), event_messages.Text(hostile), call, error=hostile),
        event_messages.ToolResult(hostile, hostile, (event_messages.Text(hostile),), False, AT),
        event_messages.ToolResult("orphan", hostile, (event_messages.Text(hostile),), False, AT),
    ]
    info = event_messages.SessionInfo(
        sessionId=hostile, sessionName=hostile, thinkingLevel=hostile, isStreaming=False, messageCount=0, createdAt=hostile
    )
    outline = ExportOutlineParser(html_export.render_page(info, FIGURES, messages))
    assert outline.open == []
    allowed = "html head meta title style body header h1 dl div dt dd main article h2 span time p pre code details summary footer"
    assert set(outline.tags) <= set(allowed.split())
    names = {name for name, _ in outline.attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "datetime", "dir"}


@given(st.text())
def test_any_text_gives_a_page_that_is_valid_utf_8_and_without_control_characters(text: str) -> None:
    page = html_export.render_page(
        INFO, FIGURES, [event_messages.User((event_messages.Text(text),), AT), make_assistant_message(event_messages.Text(text))]
    )
    page.encode()
    assert not any(ord(character) < 0x20 and character not in "\t\n" for character in page)
    assert ExportOutlineParser(page).open == []


def test_a_picture_that_is_none_is_said_to_be_one_that_cannot_be_shown() -> None:
    pictures = (event_messages.Image("<b>", "image/png"), event_messages.Image("aGk=", "image/svg+xml"))
    page = html_export.render_page(INFO, FIGURES, [event_messages.User(pictures, AT)])
    assert "<img" not in page
    assert page.count("A picture that cannot be shown.") == 2


def test_an_empty_session_says_so_and_unanswered_calls_do_too() -> None:
    assert "Nothing has been said yet." in html_export.render_page(INFO, FIGURES, [])
    assert "No result." in html_export.render_page(
        INFO, FIGURES, [make_assistant_message(event_messages.ToolCall("call_1", "run", {}))]
    )
