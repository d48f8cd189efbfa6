-- What runs read of their sources: the baseline that plans compare with. Rows that were made without it are made again
-- from the tapes.

DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

CREATE TABLE raw_files (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    connection    TEXT NOT NULL,
    adapter       TEXT NOT NULL,
    path          TEXT NOT NULL,
    sha256        TEXT,                      -- NULL for a file that is gone
    bytes         INTEGER,
    state         TEXT NOT NULL CHECK (state IN ('processed', 'failed', 'open', 'gone')),
    PRIMARY KEY (run, connection, adapter, path)
) STRICT, WITHOUT ROWID;

ALTER TABLE units ADD COLUMN unsaved INTEGER NOT NULL DEFAULT 0;   -- succeeded, and never reached the project

CREATE INDEX raw_files_by_path ON raw_files (connection, adapter, path, state, run);
CREATE INDEX units_by_key ON units (connection, unit, run);
