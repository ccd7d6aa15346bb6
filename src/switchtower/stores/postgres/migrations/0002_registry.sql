CREATE TABLE users (
    name             text   COLLATE "C" PRIMARY KEY,
    password_hash    text   NOT NULL,
    created_at_ms    bigint NOT NULL,
    last_login_at_ms bigint
);

-- Access tokens that were given out, until they expire. `owner` need not be in `users`: the owner and the environment's user are not.
CREATE TABLE tokens (
    token_id      text   COLLATE "C" PRIMARY KEY,
    owner         text   COLLATE "C" NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    client        text   NOT NULL,
    revoked_at_ms bigint
);
CREATE INDEX tokens_by_owner ON tokens (owner, created_at_ms);
CREATE INDEX tokens_by_expiry ON tokens (expires_at_ms);

-- Without a token_sha256, the next token that the host comes with is trusted.
CREATE TABLE hosts (
    host_id       text   COLLATE "C" PRIMARY KEY,
    name          text   NOT NULL,
    state         text   COLLATE "C" NOT NULL,
    first_seen_ms bigint NOT NULL,
    last_seen_ms  bigint NOT NULL,
    address       text   NOT NULL,
    token_sha256  text
);

CREATE TABLE hubs (
    hub      text   COLLATE "C" PRIMARY KEY,
    since_ms bigint NOT NULL
);

-- How far each hub has acknowledged each session of this host.
CREATE TABLE marks (
    hub           text   COLLATE "C" NOT NULL,
    session_id    text   COLLATE "C" NOT NULL,
    acked_seq     bigint NOT NULL,
    settled_at_ms bigint NOT NULL,
    PRIMARY KEY (hub, session_id)
);
