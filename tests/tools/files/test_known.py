"""What a session saw of a file, and no other session's."""

from switchtower.tools.files import files as files_files


def test_each_session_and_workspace_knows_its_own() -> None:
    files = files_files.KnownFiles()
    files.record("sess_a", "/ws", "x", "1")

    assert files.find_digest("sess_a", "/ws", "x") == "1"
    assert files.find_digest("sess_b", "/ws", "x") is None
    assert files.find_digest("sess_a", "/other", "x") is None


def test_what_was_seen_last_counts() -> None:
    files = files_files.KnownFiles()
    files.record("s", "/ws", "x", "1")
    files.record("s", "/ws", "x", "2")

    assert files.find_digest("s", "/ws", "x") == "2"


def test_what_was_not_seen_for_long_is_forgotten_first() -> None:
    files = files_files.KnownFiles(most_files=2)
    files.record("s", "/ws", "a", "1")
    files.record("s", "/ws", "b", "1")
    files.record("s", "/ws", "a", "1")
    files.record("s", "/ws", "c", "1")

    assert [name for name in "abc" if files.find_digest("s", "/ws", name)] == ["a", "c"]
