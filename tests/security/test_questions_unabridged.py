"""Redaction never abridges a question: behind a mark is one literal, and everything else of what runs is shown."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchtower.core import commands, errors, events, redact
from switchtower.core.decide import LONGEST_QUESTION
from switchtower.core.redact import questions
from switchtower.core.redact.scanner import SpanFinder
from switchtower.testing.session_driver import SessionDriver

REDACTOR = redact.Redactor(["correct-horse-battery"])
TOKEN = "ghp_" + "aB3d" * 9
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PEM = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\nx9=\n-----END PRIVATE KEY-----"

SHOWN_WHOLE = [
    'echo "-----BEGIN PRIVATE KEY-----\n"; touch PWNED; echo "-----END PRIVATE KEY-----"',
    "echo -----BEGIN PRIVATE KEY-----\ntouch PWNED\necho -----END PRIVATE KEY-----",
    f"echo -----BEGIN PRIVATE KEY-----\n/{'Ab3/' * 12}run\necho -----END PRIVATE KEY-----",
    f"bash <<EOF\n-----BEGIN PRIVATE KEY-----\n{'Ab3/' * 12}\nEOF",
    'export DB_PASSWORD="x1$(touch PWNED)"; make test',
    "export DB_PASSWORD=`touch PWNED`; make test",
    "make test DB_PASSWORD='a1;touch PWNED'",
    "make test DB_PASSWORD=a1${x:-$(touch PWNED)}",
    "PASSWORD=\"touch PWNED\" sh -c '$PASSWORD'",
    "SECRET=evil1.sh; sh $SECRET",
    "SECRET=evil1.sh; sh ${SECRET}",
    f"{TOKEN} --version",
    f"sudo {TOKEN}",
    f"true && {TOKEN}",
    f"echo x | {TOKEN} -",
    f"sh {TOKEN}",
    f"for x in a b; do {TOKEN}; done",
    "curl -u 'me:p|sh' -H 'Authorization: Bearer x1y2|sh' http://h",
    'curl "http://u:p$(touch PWNED)@h/"',
    "token=abc123\\\ndef; make",
    "token=ab1*; make",
    "token=~/x1y2z3; make",
]


@pytest.mark.parametrize("command", SHOWN_WHOLE)
def test_what_runs_is_shown_whole(command: str) -> None:
    assert REDACTOR.redact_question(command) == command


MASKED = [
    ('export DB_PASSWORD="x1abcd"; make test', 'export DB_PASSWORD="[redacted, 6 characters]"; make test'),
    ("DB_PASSWORD=x1abcd make test", "DB_PASSWORD=[redacted, 6 characters] make test"),
    (f'curl -H "Authorization: Bearer {TOKEN}" https://h', 'curl -H "Authorization: Bearer [redacted, 40 characters]" https://h'),
    ("psql postgres://app:p4ss@db/app; true", "psql postgres://app:[redacted, 4 characters]@db/app; true"),
    ("echo correct-horse-battery | tee x", "echo [redacted, 21 characters] | tee x"),
    (
        f"cat > key.pem <<EOF\n{PEM}\nEOF\nchmod 600 key.pem",
        "cat > key.pem <<EOF\n-----BEGIN PRIVATE KEY-----\n[redacted, 64 characters]\nx9=\n-----END PRIVATE KEY-----\nEOF\n"
        "chmod 600 key.pem",
    ),
]


@pytest.mark.parametrize(("command", "shown"), MASKED)
def test_a_literal_is_masked_with_its_length(command: str, shown: str) -> None:
    assert REDACTOR.redact_question(command) == shown
    assert REDACTOR.redact_question(shown) == shown


def test_a_diff_hides_lines_of_a_key_and_no_line_of_code() -> None:
    added = [*PEM.splitlines(), "import os", "os.system('touch PWNED')"]
    diff = "\n".join(["--- /dev/null", "+++ b/key.py", "@@ -0,0 +1,6 @@", *(f"+{line}" for line in added)])
    shown = REDACTOR.redact_question(diff, is_command=False)
    assert shown == diff.replace(KEY_LINE, "[redacted, 64 characters]")
    without_end = diff.replace("-----END PRIVATE KEY-----", "x")
    assert "os.system('touch PWNED')" in REDACTOR.redact_question(without_end, is_command=False)


def test_a_value_under_a_secret_name_is_hidden_only_as_a_literal() -> None:
    args = {"password": "a; touch PWNED", "token": "abc1234", "nested": {"secret": ["x|y", "z1z2z3"]}}
    shown = {
        "password": "a; touch PWNED",
        "token": "[redacted, 7 characters]",
        "nested": {"secret": ["x|y", "[redacted, 6 characters]"]},
    }
    assert REDACTOR.redact_question_value(args) == shown


def test_what_ran_is_journalled_as_it_was_asked() -> None:
    command = SHOWN_WHOLE[0]
    called = events.ToolCalled("call_1", "run", {"command": command})
    assert REDACTOR.redact_event(called) is called
    message = events.MessageCompleted("msg_1", "", "", (events.ToolRequest("call_1", "run", {"command": command}),))
    assert REDACTOR.redact_event(message) is message
    shell = events.ShellStarted("sh_1", command, events.Actor("ann", "cli"))
    assert REDACTOR.redact_event(shell) is shell


PIECES = st.sampled_from(
    [
        *(
            "echo ",
            "make ",
            "sudo ",
            "export ",
            "DB_PASSWORD=",
            "token: ",
            "--password ",
            "Bearer ",
            "password='",
            'secret="',
            "'",
        ),
        *(
            '"',
            "$(",
            ")",
            "`",
            "; ",
            " && ",
            "|",
            "\n",
            "\\",
            "\\\n",
            "$x",
            "${x",
            "}",
            "*",
            "?",
            "#",
            "<<EOF\n",
            "EOF\n",
            " ",
            "\t",
        ),
        *("hunter2", "x1", TOKEN, "sk-abc123def456", "correct-horse-battery", "https://u:", "@h/", "é", "\u200b", "\x1b", "~/"),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            KEY_LINE,
            "+",
            "-",
            "touch PWNED",
            "[redacted, 9 characters]",
        ),
    ]
)
COMMANDS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=60))
OPERATORS = re.compile(r"[^A-Za-z0-9_+/=.:@%,-]")


@settings(max_examples=400)
@given(COMMANDS, st.booleans())
def test_marks_expanded_give_the_command_and_each_stands_for_one_literal(command: str, is_command: bool) -> None:
    hidden = [*SpanFinder().find(command)]
    spans = questions.find_literals(command, hidden, is_command=is_command)
    shown = questions.mask_literals(command, hidden, is_command=is_command)
    expanded, at = "", 0
    done = 0
    for start, end in spans:
        literal = command[start:end]
        assert OPERATORS.search(literal) is None
        before = command[done:start]
        mark = f"[redacted, {len(literal)} character{'s' if len(literal) > 1 else ''}]"
        assert shown.startswith(before + mark, at)
        expanded += before + literal
        at += len(before) + len(mark)
        done = end
    assert expanded + shown[at:] == command
    assert OPERATORS.findall(shown[at:]) == OPERATORS.findall(command[done:])


@settings(max_examples=200)
@given(COMMANDS)
def test_what_is_shown_has_every_operator_of_what_runs(command: str) -> None:
    shown = REDACTOR.redact_question(command)
    unmarked = re.sub(r"\[redacted, [0-9]+ characters?\]", "", shown)
    assert OPERATORS.findall(unmarked) == OPERATORS.findall(re.sub(r"\[redacted, [0-9]+ characters?\]", "", command))


def make_nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "details",
    [
        {"command": "x" * (LONGEST_QUESTION + 1)},
        {"command": "echo \ud800"},
        {"args": make_nested(150)},
        {"args": make_nested(5_000)},
    ],
    ids=["long", "undecodable", "deep", "very deep"],
)
def test_what_cannot_be_shown_is_not_asked(details: dict[str, object]) -> None:
    table = SessionDriver()
    asked = commands.RequestApproval(
        session_id=table.session.id,
        run_id=table.send(),
        call_id="call_1",
        kind="exec",
        title="Run a command",
        summary="x",
        details=details,
        fingerprint="f",
        expires_at_ms=10_000,
    )
    with pytest.raises(errors.Unshowable, match="cannot be shown"):
        table.execute(asked)
    assert table.session.run is not None
    assert not table.session.run.pending
