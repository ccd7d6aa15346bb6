-- Until now every user could do everything, so those that are there are admins.
ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'admin';

-- A token that was made for a program has a name and is known by its digest; a login is signed, and has neither.
ALTER TABLE tokens ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN scope TEXT;
ALTER TABLE tokens ADD COLUMN secret_sha256 TEXT;
ALTER TABLE tokens ADD COLUMN last_used_ms INTEGER;

-- Logins and changes of users, tokens and hosts, each bound to all before it by its hash.
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
CREATE TABLE audit_head (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash   BLOB    NOT NULL
);
