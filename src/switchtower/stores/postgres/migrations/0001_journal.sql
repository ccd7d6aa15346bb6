-- Where each session lives and how far it is. This is the row that every append takes and moves on, so it is narrow, and what
-- changes with an append is in no index. `epoch` is the fencing number of its home: it only grows. `node_id` is the home, and
-- none while nobody holds it. A row with head 0 is a session that somebody is about to begin.
CREATE TABLE homes (
    session_id text   COLLATE "C" PRIMARY KEY,
    sid        bigint GENERATED ALWAYS AS IDENTITY,
    epoch      bigint NOT NULL,
    head       bigint NOT NULL DEFAULT 0,
    node_id    text   COLLATE "C"
) WITH (fillfactor = 70);
CREATE INDEX homes_of_a_node ON homes (node_id, session_id) WHERE node_id IS NOT NULL;

-- The nodes by their heartbeat. A session's lease lasts as long as its node's: one row is renewed, however many sessions it has.
CREATE TABLE nodes (
    node_id    text COLLATE "C" PRIMARY KEY,
    address    text NOT NULL,
    joined_at  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Each open journal, with the number of its last committed batch. A connection that is made anew raises the generation: what
-- the lost one may still have on the way is refused from then on, and `batch` tells whether it had arrived before.
CREATE TABLE writers (
    writer     text   COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL,
    batch      bigint NOT NULL,
    since      timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A session as the index lists it. `card` holds all of it as JSON; the other columns stand beside it to be searched by.
CREATE TABLE sessions (
    sid            bigint  PRIMARY KEY,
    session_id     text    COLLATE "C" NOT NULL UNIQUE,
    state          text    COLLATE "C" NOT NULL,
    created_at_ms  bigint  NOT NULL,
    updated_at_ms  bigint  NOT NULL,
    loaded         boolean NOT NULL,
    pruned_through bigint  NOT NULL DEFAULT 0,
    card           bytea   NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX sessions_by_update ON sessions (updated_at_ms, sid);
CREATE INDEX sessions_by_state ON sessions (state, updated_at_ms, sid);
CREATE INDEX sessions_loaded ON sessions (updated_at_ms, sid) WHERE loaded;

-- A row may hold several neighbouring entries: `seq` is the last one's, `count` says how many, `data` has a line for each.
-- `data` is JSON as bytes: neither `text` nor `jsonb` can hold all that a string may.
CREATE TABLE events (
    sid    bigint  NOT NULL,
    seq    bigint  NOT NULL,
    count  integer NOT NULL,
    ts_ms  bigint  NOT NULL,
    run_id text,
    kind   text    COLLATE "C" NOT NULL,
    data   bytea   NOT NULL,
    PRIMARY KEY (sid, seq)
);

-- The folded session as of `seq`; only the latest is of use.
CREATE TABLE snapshots (
    sid  bigint PRIMARY KEY,
    seq  bigint NOT NULL,
    data bytea  NOT NULL
);

-- `identity` is a digest of scope and key, because an index entry has a limit and what clients choose has none.
CREATE TABLE receipts (
    identity       bytea  PRIMARY KEY,
    scope          text   COLLATE "C" NOT NULL,
    key            text   NOT NULL,
    fingerprint    text   NOT NULL,
    outcome        bytea  NOT NULL,
    recorded_at_ms bigint NOT NULL,
    expires_at_ms  bigint NOT NULL
);
CREATE INDEX receipts_by_scope ON receipts (scope, recorded_at_ms);
CREATE INDEX receipts_by_expiry ON receipts (expires_at_ms);

-- Large values are stored compressed, and lz4 costs a fraction of the default's time. Not every server was built with it.
DO $$
BEGIN
    ALTER TABLE events ALTER COLUMN data SET COMPRESSION lz4;
    ALTER TABLE snapshots ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END $$;

-- A batch of appends to many sessions: all of it, or an error and nothing. `place` is a session's position in `session_ids`.
-- TW001: the writer has a newer connection. TW002: a session is not where it is thought to be, or another node's.
-- TW003: a receipt with the same identity is there already.
CREATE FUNCTION append_batch(
    by_writer text, in_generation bigint, as_batch bigint,
    session_ids text[], befores bigint[], heads bigint[], epochs bigint[],
    event_places integer[], event_seqs bigint[], event_counts integer[], event_times bigint[], event_runs text[],
    event_kinds text[], event_data bytea[],
    card_places integer[], card_states text[], card_created bigint[], card_updated bigint[], card_loaded boolean[], cards bytea[],
    snapshot_places integer[], snapshot_seqs bigint[], snapshot_data bytea[],
    receipt_identities bytea[], receipt_scopes text[], receipt_keys text[], receipt_fingerprints text[], receipt_outcomes bytea[],
    receipt_times bigint[], receipt_expiries bigint[], receipt_replaces boolean[],
    notice text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    sids  bigint[];
    taken bigint;
BEGIN
    UPDATE writers SET batch = as_batch WHERE writer = by_writer AND generation = in_generation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the writer has a newer connection' USING ERRCODE = 'TW001';
    END IF;

    IF 0 = ANY (befores) THEN
        INSERT INTO homes (session_id, epoch)
            SELECT begun.session_id, begun.epoch FROM unnest(session_ids, befores, epochs) AS begun (session_id, before, epoch)
            WHERE begun.before = 0
            ON CONFLICT (session_id) DO NOTHING;
    END IF;
    -- The row lock makes the order of commits the order of seqs. Whoever had to wait for it sees the row as it is then.
    WITH moved AS (
        UPDATE homes SET head = step.head, epoch = step.epoch
            FROM unnest(session_ids, befores, heads, epochs) WITH ORDINALITY AS step (session_id, before, head, epoch, place)
            WHERE homes.session_id = step.session_id AND homes.head = step.before
                AND (homes.epoch = step.epoch OR (homes.node_id IS NULL AND homes.epoch < step.epoch))
            RETURNING step.place, homes.sid
    )
    SELECT array_agg(moved.sid ORDER BY moved.place), count(*) INTO sids, taken FROM moved;
    IF taken <> cardinality(session_ids) THEN
        RAISE EXCEPTION 'a session is elsewhere' USING ERRCODE = 'TW002';
    END IF;

    INSERT INTO events (sid, seq, count, ts_ms, run_id, kind, data)
        SELECT sids[row.place], row.seq, row.count, row.ts_ms, row.run_id, row.kind, row.data
        FROM unnest(event_places, event_seqs, event_counts, event_times, event_runs, event_kinds, event_data)
            AS row (place, seq, count, ts_ms, run_id, kind, data);
    IF cardinality(card_places) > 0 THEN
        INSERT INTO sessions AS known (sid, session_id, state, created_at_ms, updated_at_ms, loaded, card)
            SELECT sids[row.place], session_ids[row.place], row.state, row.created, row.updated, row.loaded, row.card
            FROM unnest(card_places, card_states, card_created, card_updated, card_loaded, cards)
                AS row (place, state, created, updated, loaded, card)
            ON CONFLICT (sid) DO UPDATE SET state = excluded.state, updated_at_ms = excluded.updated_at_ms,
                loaded = excluded.loaded, card = excluded.card;
    END IF;
    IF cardinality(snapshot_places) > 0 THEN
        INSERT INTO snapshots (sid, seq, data)
            SELECT sids[row.place], row.seq, row.data
            FROM unnest(snapshot_places, snapshot_seqs, snapshot_data) AS row (place, seq, data)
            ON CONFLICT (sid) DO UPDATE SET seq = excluded.seq, data = excluded.data;
    END IF;
    IF cardinality(receipt_identities) > 0 THEN
        INSERT INTO receipts AS known
            SELECT row.identity, row.scope, row.key, row.fingerprint, row.outcome, row.recorded, row.expires
            FROM unnest(receipt_identities, receipt_scopes, receipt_keys, receipt_fingerprints, receipt_outcomes,
                receipt_times, receipt_expiries) AS row (identity, scope, key, fingerprint, outcome, recorded, expires)
            ON CONFLICT (identity) DO UPDATE SET fingerprint = excluded.fingerprint, outcome = excluded.outcome,
                recorded_at_ms = excluded.recorded_at_ms, expires_at_ms = excluded.expires_at_ms
            WHERE known.expires_at_ms <= excluded.recorded_at_ms
                OR receipt_replaces[array_position(receipt_identities, excluded.identity)];
        GET DIAGNOSTICS taken = ROW_COUNT;
        IF taken <> cardinality(receipt_identities) THEN
            RAISE EXCEPTION 'a receipt is there already' USING ERRCODE = 'TW003';
        END IF;
    END IF;
    IF notice IS NOT NULL THEN
        PERFORM pg_notify('tower_moved', notice);
    END IF;
END $$;
