-- The words of what was said and done, made from the journal: all of it can be thrown away and read again.
CREATE TABLE words (
    sid    bigint   NOT NULL,
    seq    bigint   NOT NULL,
    vector tsvector NOT NULL,
    PRIMARY KEY (sid, seq)
);
CREATE INDEX words_by_word ON words USING gin (vector);

CREATE TABLE words_read (
    sid bigint PRIMARY KEY,
    seq bigint NOT NULL
);
