-- A spent budget has a column of its own. Rows that were made without it are made again from the tapes.

DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

ALTER TABLE runs ADD COLUMN budget INTEGER NOT NULL DEFAULT 0;   -- units whose last attempt spent its budget
