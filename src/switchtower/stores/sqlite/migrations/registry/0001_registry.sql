CREATE TABLE users (
    name             TEXT    PRIMARY KEY,
    password_hash    TEXT    NOT NULL,
    created_at_ms    INTEGER NOT NULL,
    last_login_at_ms INTEGER
) WITHOUT ROWID;

-- Access tokens that were given out, until they expire. `user` need not be in `users`: the owner and the environment's user are not.
CREATE TABLE tokens (
    token_id      TEXT    PRIMARY KEY,
    user          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    client        TEXT    NOT NULL,
    revoked_at_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX tokens_by_user ON tokens (user, created_at_ms);
CREATE INDEX tokens_by_expiry ON tokens (expires_at_ms);

-- Without a token_sha256, the next token that the host comes with is trusted.
CREATE TABLE hosts (
    host_id       TEXT    PRIMARY KEY,
    name          TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    first_seen_ms INTEGER NOT NULL,
    last_seen_ms  INTEGER NOT NULL,
    address       TEXT    NOT NULL,
    token_sha256  TEXT
) WITHOUT ROWID;

CREATE TABLE hubs (
    hub      TEXT    PRIMARY KEY,
    since_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- How far each hub has acknowledged each session of this host.
CREATE TABLE marks (
    hub           TEXT    NOT NULL,
    session_id    TEXT    NOT NULL,
    acked_seq     INTEGER NOT NULL,
    settled_at_ms INTEGER NOT NULL,
    PRIMARY KEY (hub, session_id)
) WITHOUT ROWID;
