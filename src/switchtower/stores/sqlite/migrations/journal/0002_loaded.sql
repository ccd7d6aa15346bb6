-- The few sessions that somebody wants at hand, found without reading the others.
ALTER TABLE sessions ADD COLUMN loaded INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_loaded ON sessions (updated_at_ms) WHERE loaded;
