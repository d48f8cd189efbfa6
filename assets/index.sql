-- The index over the tapes. Every row is derived from a tape and can be derived again.

CREATE TABLE runs (
    run           TEXT PRIMARY KEY,          -- UUIDv7, hyphenated
    project       TEXT,
    program       TEXT NOT NULL,
    started_at    TEXT NOT NULL,             -- RFC 3339
    scripted      INTEGER NOT NULL,
    tape_bytes    INTEGER NOT NULL,          -- length of the tape when these rows were made
    entries       INTEGER NOT NULL,
    duration_ms   INTEGER NOT NULL,
    outcome       TEXT,                      -- of the run_ended note; NULL if the tape breaks off
    units         INTEGER NOT NULL,
    succeeded     INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    cost_usd      REAL,                      -- NULL while unknown
    lost          INTEGER NOT NULL,          -- lines that could not be read
    budget        INTEGER NOT NULL,          -- units whose last attempt used up its budget
    agent         TEXT,                      -- NULL on tapes that do not name it
    unsaved_review INTEGER NOT NULL,         -- 1 if the changes of its last review are in no commit
    cost_partial  INTEGER NOT NULL,          -- 1 if the cost of an attempt is unknown
    active        INTEGER NOT NULL,          -- 1 if the run worked on when these rows were made
    continuation  TEXT                       -- JSON: what it did with results of prior runs; NULL if it continues none
) STRICT, WITHOUT ROWID;

CREATE TABLE units (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    unit          TEXT NOT NULL,
    position      INTEGER NOT NULL,
    connection    TEXT,
    adapter       TEXT,
    status        TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    unsaved       INTEGER NOT NULL,          -- 1 if it succeeded but its changes are not in the project
    detail        TEXT,                      -- why it is not done, where it ran out of turns
    unit_key      TEXT NOT NULL,             -- unique in the connection
    review_remarks TEXT,                     -- empty if all changes were accepted; NULL without a review
    read_in       TEXT,                      -- if it is done and saved: the run whose files its result rests on
    PRIMARY KEY (run, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    unit          TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    session       TEXT,
    model         TEXT,
    started_ms    INTEGER NOT NULL,          -- since the run started
    ended_ms      INTEGER,
    outcome       TEXT,                      -- NULL without a verdict
    stop          TEXT,
    cause         TEXT,
    reason        TEXT,
    turns         INTEGER NOT NULL,
    calls         INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    denials       INTEGER NOT NULL,
    cost_usd      REAL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read    INTEGER NOT NULL,
    cache_write   INTEGER NOT NULL,
    PRIMARY KEY (run, unit, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE model_usage (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    unit          TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    model         TEXT NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read    INTEGER NOT NULL,
    cache_write   INTEGER NOT NULL,
    cost_usd      REAL,                      -- NULL if the agent reports none for the model
    PRIMARY KEY (run, unit, attempt, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_calls (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    unit          TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    turn_number   INTEGER NOT NULL,          -- 1 for the first call of the attempt
    tool_use_id   TEXT NOT NULL,
    tool          TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('open', 'complete', 'error', 'denied')),
    seq           INTEGER NOT NULL,          -- entry of the tape that holds the call
    result_seq    INTEGER,                   -- entry that holds its result
    started_ms    INTEGER NOT NULL,
    duration_ms   INTEGER,
    input         TEXT,                      -- JSON, cut
    output        TEXT,                      -- JSON, cut
    output_bytes  INTEGER,                   -- before it was cut
    error         TEXT,                      -- first text of a failed result, cut
    parent_tool_use_id TEXT,                 -- call that started the subagent, for its calls
    waited_ms     INTEGER,                   -- part of duration_ms before the decision of a person
    decision      TEXT NOT NULL,
    decided_by    TEXT,                      -- `rule`, or the person and the client; NULL if none did
    decision_reason TEXT,
    PRIMARY KEY (run, unit, attempt, turn_number)
) STRICT, WITHOUT ROWID;

CREATE TABLE raw_files (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    connection    TEXT NOT NULL,
    adapter       TEXT NOT NULL,
    path          TEXT NOT NULL,
    sha256        TEXT,                      -- NULL for a file that is gone
    bytes         INTEGER,
    state         TEXT NOT NULL CHECK (state IN ('processed', 'failed', 'open', 'gone', 'missing')),
    units         TEXT,                      -- JSON: results of the units that ingest it, by key
    defines       TEXT,                      -- JSON: names that the file defines; NULL while unknown
    unread        TEXT,                      -- JSON: what units that succeeded left unread of it, by key; NULL if nothing
    PRIMARY KEY (run, connection, adapter, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
    run               TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    connection        TEXT NOT NULL,         -- empty for the removal or restoration of an artifact, whatever it was written from
    path              TEXT NOT NULL,         -- raw file; empty for the removal or restoration
    target            TEXT NOT NULL,         -- wiki or sl
    target_connection TEXT NOT NULL,         -- of a source; empty for a page
    key               TEXT NOT NULL,
    change            TEXT NOT NULL,         -- created, updated or removed
    PRIMARY KEY (run, connection, path, target, target_connection, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX raw_files_by_path ON raw_files (connection, adapter, path, state, run);

CREATE INDEX tool_calls_by_tool ON tool_calls (tool, status);

CREATE INDEX units_by_key ON units (connection, unit_key, run);
