-- Who decided what, over all sessions, found without reading anything else. Both are for rows of a few kinds: an append of any
-- other pays nothing for them.
CREATE INDEX events_decided ON events (ts_ms) WHERE kind IN ('approval.decided', 'approval.expired');
CREATE INDEX events_asked ON events (sid, seq) WHERE kind = 'approval.requested';
