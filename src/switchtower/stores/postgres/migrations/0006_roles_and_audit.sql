-- needs: 0003
-- Until now every user could do everything, so those that are there are admins. A node of the version before adds operators.
ALTER TABLE users ADD COLUMN role text COLLATE "C" NOT NULL DEFAULT 'admin';
ALTER TABLE users ALTER COLUMN role SET DEFAULT 'operator';

-- A token that was made for a program has a name and is known by its digest; a login is signed, and has neither.
ALTER TABLE tokens
    ADD COLUMN name          text   NOT NULL DEFAULT '',
    ADD COLUMN scope         text   COLLATE "C",
    ADD COLUMN secret_sha256 text   COLLATE "C",
    ADD COLUMN last_used_ms  bigint;

-- Two chains, each link bound to all before it by its hash. `sessions`: questions, decisions and deletions over all sessions,
-- which it outlives. `accounts`: logins, and changes of users, tokens and hosts.
CREATE TABLE audit (
    chain      text   COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    ts_ms      bigint NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    kind       text   COLLATE "C" NOT NULL,
    digest     bytea  NOT NULL,
    record     bytea,
    hash       bytea  NOT NULL,
    PRIMARY KEY (chain, number)
);
CREATE INDEX audit_by_session ON audit (session_id, seq) WHERE chain = 'sessions';

-- A transaction that extends a chain holds its row to the end: that makes the order of commits the order of links.
CREATE TABLE audit_head (
    chain  text   COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    hash   bytea  NOT NULL
);

-- The same as `stores/audit_chain.py` does.
CREATE FUNCTION extend_audit(
    of_chain text, at_ms bigint, of_session text, at_seq bigint, of_kind text, data bytea, keeps boolean
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last      audit_head%ROWTYPE;
    of_data   bytea := sha256(data);
    next_hash bytea;
BEGIN
    SELECT * INTO last FROM audit_head WHERE chain = of_chain FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_head VALUES (
            of_chain,
            coalesce((SELECT max(number) FROM audit WHERE chain = of_chain), 0),
            coalesce(
                (SELECT hash FROM audit WHERE chain = of_chain ORDER BY number DESC LIMIT 1), decode(repeat('00', 32), 'hex'))
        ) ON CONFLICT DO NOTHING;
        SELECT * INTO STRICT last FROM audit_head WHERE chain = of_chain FOR UPDATE;
    END IF;
    next_hash := sha256(last.hash || of_data || convert_to(
        (last.number + 1)::text || E'\n' || at_ms::text || E'\n' || at_seq::text || E'\n' || of_kind || E'\n' || of_session,
        'UTF8'));
    INSERT INTO audit VALUES
        (of_chain, last.number + 1, at_ms, of_session, at_seq, of_kind, of_data, CASE WHEN keeps THEN data END, next_hash);
    UPDATE audit_head SET number = last.number + 1, hash = next_hash WHERE chain = of_chain;
END $$;

CREATE FUNCTION chain_event() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- A copy of another store brings that one's chain along.
    IF current_setting('switchtower.copying', true) = 'on' THEN
        RETURN NULL;
    END IF;
    PERFORM extend_audit(
            'sessions', NEW.ts_ms, sessions.session_id, NEW.seq, NEW.kind, NEW.data, NEW.kind <> 'approval.requested')
        FROM sessions WHERE sessions.sid = NEW.sid;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'an event of no session';
    END IF;
    RETURN NULL;
END $$;

-- What was decided before there was a chain.
DO $$
DECLARE
    event record;
BEGIN
    FOR event IN
        SELECT events.*, sessions.session_id FROM events JOIN sessions USING (sid)
        WHERE kind IN ('approval.requested', 'approval.decided', 'approval.expired', 'session.deleted')
        ORDER BY ts_ms, sid, seq
    LOOP
        PERFORM extend_audit(
            'sessions', event.ts_ms, event.session_id, event.seq, event.kind, event.data, event.kind <> 'approval.requested');
    END LOOP;
END $$;

-- At the end of the transaction: then the session's row is there too, and the chain is held for a moment only.
CREATE CONSTRAINT TRIGGER chain_events AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.kind IN ('approval.requested', 'approval.decided', 'approval.expired', 'session.deleted'))
    EXECUTE FUNCTION chain_event();
