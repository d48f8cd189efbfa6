-- A unit of an earlier run is known by its connection and KTX's key: its name in the run depends on what else ran. Rows that
-- were made without the key are made again from the tapes.

DELETE FROM artifacts;
DELETE FROM raw_files;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

ALTER TABLE units ADD COLUMN unit_key TEXT NOT NULL DEFAULT '';   -- unique in the connection

DROP INDEX units_by_key;
CREATE INDEX units_by_key ON units (connection, unit_key, run);
