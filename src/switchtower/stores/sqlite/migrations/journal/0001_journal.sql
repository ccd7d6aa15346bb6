-- A session as the index lists it. `card` holds all of it as JSON; state and updated_at_ms stand beside it to be searched by.
CREATE TABLE sessions (
    sid            INTEGER PRIMARY KEY,
    session_id     TEXT    NOT NULL UNIQUE,
    epoch          INTEGER NOT NULL,
    state          TEXT    NOT NULL,
    created_at_ms  INTEGER NOT NULL,
    updated_at_ms  INTEGER NOT NULL,
    card           BLOB    NOT NULL,
    pruned_through INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_update ON sessions (updated_at_ms);
CREATE INDEX sessions_by_state ON sessions (state, updated_at_ms);

-- Clustered by session, so that a replay reads neighbouring pages. A row may hold several neighbouring entries: `seq` is the
-- last one's, `count` says how many, `data` has a line for each.
CREATE TABLE events (
    sid    INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    ts_ms  INTEGER NOT NULL,
    run_id TEXT,
    kind   TEXT    NOT NULL,
    data   BLOB    NOT NULL,
    PRIMARY KEY (sid, seq)
) WITHOUT ROWID;

-- The folded session as of `seq`; only the latest is of use.
CREATE TABLE snapshots (
    sid  INTEGER PRIMARY KEY,
    seq  INTEGER NOT NULL,
    data BLOB    NOT NULL
);

CREATE TABLE receipts (
    scope          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    fingerprint    TEXT    NOT NULL,
    outcome        BLOB    NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    expires_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX receipts_by_expiry ON receipts (expires_at_ms);
