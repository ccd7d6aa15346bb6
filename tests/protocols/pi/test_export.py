"""An exported page: what stands where, and that nothing said in a session becomes part of the page's own language."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.protocols.pi.view import shapes
from switchtower.protocols.pi.view.export import document

MODEL = shapes.Model(
    id="gpt-6.1-terra",
    name="Terra",
    api="openai-completions",
    provider="openai",
    baseUrl="",
    reasoning=True,
    input=("text",),
    cost=shapes.ModelCost(),
    contextWindow=100_000,
    maxTokens=8_000,
)
INFO = shapes.SessionInfo(
    sessionId="sess_1",
    sessionName="Fix the tests",
    model=MODEL,
    thinkingLevel="low",
    isStreaming=False,
    messageCount=4,
    createdAt="2026-02-28T10:00:00.000Z",
)
FIGURES = shapes.SessionStats(
    sessionId="sess_1",
    userMessages=1,
    assistantMessages=2,
    toolCalls=1,
    toolResults=1,
    totalMessages=4,
    tokens=shapes.Tokens(input=1_000, output=200, cacheRead=500, cacheWrite=0, total=1_700),
    cost=0.1234,
)
AT = 1_772_272_800_000
HOSTILE = "</pre><script>alert(1)</script>\"' onload=x <img src=x onerror=alert(1)> &lt; \x00\x1b[31m\x85\u202e ]]> --> {{x}}"


def make_assistant_message(
    *content: shapes.Text | shapes.Thinking | shapes.ToolCall, error: str | None = None
) -> shapes.Assistant:
    plain = shapes.Assistant(content=content, api="a", provider="openai", model="terra", timestamp=AT)
    if error is None:
        return plain
    return shapes.Assistant(
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
    call = shapes.ToolCall("call_1", "run", {"command": "make test"})
    page = document.render_page(
        INFO,
        FIGURES,
        [
            shapes.User((shapes.Text("Please fix"), shapes.Image("aGk=", "image/png")), AT),
            make_assistant_message(shapes.Thinking("Hm"), shapes.Text("I run it:\n```sh\nmake test\n```\nNow."), call),
            shapes.ToolResult("call_1", "run", (shapes.Text("2 failed"),), True, AT),
            make_assistant_message(shapes.Text("It fails"), error="the model went away"),
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
    page = document.render_page(INFO, FIGURES, [shapes.User((shapes.Text("hi"),), AT)])
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
    call = shapes.ToolCall(hostile, hostile, {hostile: hostile, "nested": [hostile]})
    messages: list[shapes.Message] = [
        shapes.User((shapes.Text(hostile), shapes.Image(hostile, "image/png"), shapes.Image("aGk=", f"image/png{hostile}")), AT),
        make_assistant_message(shapes.Thinking(hostile), shapes.Text(hostile), call, error=hostile),
        shapes.ToolResult(hostile, hostile, (shapes.Text(hostile),), False, AT),
        shapes.ToolResult("orphan", hostile, (shapes.Text(hostile),), False, AT),
    ]
    info = shapes.SessionInfo(
        sessionId=hostile, sessionName=hostile, thinkingLevel=hostile, isStreaming=False, messageCount=0, createdAt=hostile
    )
    outline = ExportOutlineParser(document.render_page(info, FIGURES, messages))
    assert outline.open == []
    allowed = "html head meta title style body header h1 dl div dt dd main article h2 span time p pre code details summary footer"
    assert set(outline.tags) <= set(allowed.split())
    names = {name for name, _ in outline.attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "datetime", "dir"}


@given(st.text())
def test_any_text_gives_a_page_that_is_valid_utf_8_and_without_control_characters(text: str) -> None:
    page = document.render_page(INFO, FIGURES, [shapes.User((shapes.Text(text),), AT), make_assistant_message(shapes.Text(text))])
    page.encode()
    assert not any(ord(character) < 0x20 and character not in "\t\n" for character in page)
    assert ExportOutlineParser(page).open == []


def test_a_picture_that_is_none_is_said_to_be_one_that_cannot_be_shown() -> None:
    pictures = (shapes.Image("<b>", "image/png"), shapes.Image("aGk=", "image/svg+xml"))
    page = document.render_page(INFO, FIGURES, [shapes.User(pictures, AT)])
    assert "<img" not in page
    assert page.count("A picture that cannot be shown.") == 2


def test_an_empty_session_says_so_and_unanswered_calls_do_too() -> None:
    assert "Nothing has been said yet." in document.render_page(INFO, FIGURES, [])
    assert "No result." in document.render_page(INFO, FIGURES, [make_assistant_message(shapes.ToolCall("call_1", "run", {}))])
