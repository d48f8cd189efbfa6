-- Who decided each call, how long it waited for that, and what an attempt used of each model. Rows that were made without them
-- are made again from the tapes.

DELETE FROM artifacts;
DELETE FROM raw_files;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

ALTER TABLE runs ADD COLUMN agent TEXT;                          -- NULL on tapes that do not name it

ALTER TABLE tool_calls ADD COLUMN parent_tool_use_id TEXT;       -- the call that started the sub-agent, for its calls
ALTER TABLE tool_calls ADD COLUMN waited_ms INTEGER;             -- part of duration_ms before the decision of a person
ALTER TABLE tool_calls ADD COLUMN decision TEXT NOT NULL DEFAULT 'allowed';
ALTER TABLE tool_calls ADD COLUMN decided_by TEXT;               -- `rule`, or the person and the client; NULL if none did
ALTER TABLE tool_calls ADD COLUMN decision_reason TEXT;

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
