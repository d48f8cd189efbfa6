-- What units wrote, by the raw files that it rests on: later units at the same files are told. Rows that were made without
-- it are made again from the tapes.

DELETE FROM raw_files;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

CREATE TABLE artifacts (
    run               TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    connection        TEXT NOT NULL,
    path              TEXT NOT NULL,         -- raw file
    target            TEXT NOT NULL,         -- wiki or sl
    target_connection TEXT NOT NULL,         -- of a source; empty for a page
    key               TEXT NOT NULL,
    change            TEXT NOT NULL,         -- created, updated or removed
    PRIMARY KEY (run, connection, path, target, target_connection, key)
) STRICT, WITHOUT ROWID;
