-- The index over the tapes. Every row is derived from a tape and can be derived again; nothing is stored here alone.

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
    cost_usd      REAL,                      -- NULL while nobody said it
    lost          INTEGER NOT NULL           -- lines that could not be read
) STRICT, WITHOUT ROWID;

CREATE TABLE units (
    run           TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
    unit          TEXT NOT NULL,
    position      INTEGER NOT NULL,
    connection    TEXT,
    adapter       TEXT,
    status        TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
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
    cause         TEXT,                      -- JSON
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
    PRIMARY KEY (run, unit, attempt, turn_number)
) STRICT, WITHOUT ROWID;

CREATE INDEX tool_calls_by_tool ON tool_calls (tool, status);
