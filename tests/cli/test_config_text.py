"""The configuration file's text: one key changes, and nothing else does."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.cli.configuration import config_file

FILE = '''\
# The first words
http = "127.0.0.1:0"   # mine
pass_env = [ # three
  "A", # the ] first
  "B]", 'C"',
]
"log_level" = 'info'
redaction_extra = """
a # no comment
policy = "yolo"
"""
host_name = \'\'\'it's "here"\'\'\'
  model="x=y"

# about the local one
[models.local]
provider = "openai-compatible"
policy = "a key of a table"

[[rules]]
effect = "allow"
'''


def test_a_value_is_replaced_where_it_stands_and_its_comment_stays() -> None:
    assert config_file.set_key(FILE, "http", '"off"') == FILE.replace('"127.0.0.1:0"   # mine', '"off"   # mine')


def test_a_list_over_several_lines_is_replaced_as_a_whole() -> None:
    changed = config_file.set_key(FILE, "pass_env", '["D"]')

    assert '\npass_env = ["D"]\n"log_level"' in changed
    assert tomllib.loads(changed)["pass_env"] == ["D"]


def test_a_quoted_key_is_the_same_key() -> None:
    assert '"log_level" = "debug"\n' in config_file.set_key(FILE, "log_level", '"debug"')


def test_text_that_looks_like_a_key_is_none() -> None:
    changed = config_file.set_key(FILE, "policy", '"auto"')

    assert changed.count('policy = "yolo"') == changed.count('policy = "a key of a table"') == 1
    assert tomllib.loads(changed)["policy"] == "auto"


def test_a_new_key_comes_behind_the_last_one_and_before_any_table() -> None:
    assert config_file.set_key(FILE, "policy", '"auto"') == FILE.replace('"x=y"\n', '"x=y"\npolicy = "auto"\n')


def test_where_only_tables_are_a_new_key_stands_above_them_and_their_comments() -> None:
    file = "# of the file\n\n# of the table\n[models.x]\nprovider = 'openai'\n"

    changed = config_file.set_key(file, "policy", '"auto"')

    assert changed == "# of the file\n\npolicy = \"auto\"\n\n# of the table\n[models.x]\nprovider = 'openai'\n"


@pytest.mark.parametrize(("before", "after"), [("", "a = 1\n"), ("# x", "# x\na = 1\n"), ("b = 2", "b = 2\na = 1\n")])
def test_a_file_without_a_last_line_end_gets_one(before: str, after: str) -> None:
    assert config_file.set_key(before, "a", "1") == after


def test_the_line_ends_of_the_file_are_kept() -> None:
    assert config_file.set_key('a = "x" # y\r\nb = 2\r\n', "c", "3") == 'a = "x" # y\r\nb = 2\r\nc = 3\r\n'
    assert config_file.set_key("a = 1\r\nb = 2\r\n", "a", "3") == "a = 3\r\nb = 2\r\n"


def test_a_key_goes_with_its_line_and_leaves_the_comments_above_it() -> None:
    assert config_file.remove_key(FILE, "http") == FILE.replace('http = "127.0.0.1:0"   # mine\n', "")
    assert config_file.remove_key(FILE, "policy") == FILE


def test_a_key_with_dots_is_not_ours() -> None:
    file = 'models.x.provider = "openai"\n'

    assert config_file.remove_key(file, "models") == file
    assert config_file.set_key(file, "policy", '"ask"') == 'models.x.provider = "openai"\npolicy = "ask"\n'


SECTIONED = """\
policy = "ask" # first
telemetry.otlp_endpoint = "http://a" # dotted

[models.notify]
webhook = "of a model"

[ "notify" ] # whom to tell
webhook = [ "https://x" ] # mine
format = "json"

[[rules]]
webhook = "of a rule"

[notify.deeper]
format = "of a deeper one"
"""


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("notify_webhook", 'webhook = [ "https://x" ] # mine', "webhook = 7 # mine"),
        ("notify_format", 'format = "json"', "format = 7"),
        ("telemetry_otlp_endpoint", '"http://a" # dotted', "7 # dotted"),
        ("policy", '"ask" # first', "7 # first"),
    ],
)
def test_a_key_of_a_section_is_found_there(key: str, before: str, after: str) -> None:
    sections = ("notify", "telemetry")

    assert config_file.set_key(SECTIONED, key, "7", sections) == SECTIONED.replace(before, after)
    gone = config_file.remove_key(SECTIONED, key, sections)
    assert [line for line in SECTIONED.splitlines() if line not in gone.splitlines()] == [
        line for line in SECTIONED.splitlines() if before in line
    ]
    assert gone.count("\n") == SECTIONED.count("\n") - 1


def test_a_new_key_of_a_section_is_written_at_the_top_by_its_whole_name() -> None:
    changed = config_file.set_key(SECTIONED, "notify_events", '["failed"]', ("notify", "telemetry"))

    assert changed.startswith('policy = "ask" # first\nnotify_events = ["failed"]\n')


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**15), 10**15),
    st.floats(0, 1e12).map(lambda number: float(f"{number:.6g}")),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3).map(tuple),
)


@given(VALUES)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    read = tomllib.loads(f"x = {config_file.encode_value(value)}")["x"]

    assert read == (list(value) if isinstance(value, tuple) else value)


KEYS = st.sampled_from(["a", "b", "c-d", "e_f"])
COMMENTS = st.sampled_from(["", " # note", "  # [x] = 'y'", "\t#"])
GAPS = st.sampled_from(["", "\n", "# between\n", "   \n", "# [no.table]\n"])


@given(
    st.lists(st.tuples(KEYS, VALUES, COMMENTS, GAPS), unique_by=lambda line: line[0]),
    st.sampled_from(["", "[t]\na = 5\n", "# of t\n[t]\n[[u]]\n"]),
    KEYS,
    VALUES,
)
def test_setting_and_unsetting_change_that_key_alone(
    lines: list[tuple[str, object, str, str]], tables: str, key: str, value: object
) -> None:
    file = "".join(f"{gap}{name} = {config_file.encode_value(old)}{comment}\n" for name, old, comment, gap in lines) + tables
    before = tomllib.loads(file)

    changed = config_file.set_key(file, key, config_file.encode_value(value))
    assert tomllib.loads(changed) == {**before, key: list(value) if isinstance(value, tuple) else value}
    assert [line for line in file.split("\n") if line.startswith("#")] == [
        line for line in changed.split("\n") if line.startswith("#")
    ]

    gone = config_file.remove_key(changed, key)
    assert tomllib.loads(gone) == {name: old for name, old in before.items() if name != key}
