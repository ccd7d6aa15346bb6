-- What people call a node, what it runs, and whether it gives its sessions away. Nodes of the version before write none of it.
ALTER TABLE nodes
    ADD COLUMN name     text    NOT NULL DEFAULT '',
    ADD COLUMN version  text    NOT NULL DEFAULT '',
    ADD COLUMN draining boolean NOT NULL DEFAULT false;

-- What all nodes must know and nobody else, such as the key that they know each other by. The first node makes it.
CREATE TABLE secrets (
    name    text        COLLATE "C" PRIMARY KEY,
    value   bytea       NOT NULL,
    made_at timestamptz NOT NULL
);

-- Whether a node has to see to a session: a run is active, or people run commands in it, and it is not another host's. It is
-- told from the card, so that it is right whichever version wrote that. A card is compact JSON, where a quote inside a text is
-- escaped: what is looked for can only be the card's own fields.
CREATE FUNCTION is_under_way(state text, card bytea) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (state IN ('running', 'awaiting_approval')
            OR (position('"shells":'::bytea IN card) > 0 AND position('"shells":0'::bytea IN card) = 0))
        AND position('"host":"'::bytea IN card) = 0
$$;
CREATE INDEX sessions_under_way ON sessions (session_id) WHERE is_under_way(state, card);
