-- Questions, decisions and deletions over all sessions, each bound to all before it by its hash. It outlives the sessions.
CREATE TABLE audit (
    number     INTEGER PRIMARY KEY,
    ts_ms      INTEGER NOT NULL,
    session_id TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    record     BLOB,
    hash       BLOB    NOT NULL
);
CREATE INDEX audit_by_session ON audit (session_id, seq);
-- Without a row, what was decided before there was a chain is yet to be added.
CREATE TABLE audit_head (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash   BLOB    NOT NULL
);
