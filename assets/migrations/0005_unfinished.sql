-- Units that ran out of turns or were stopped are not done: their files have another state. Rows that were made before are
-- made again from the tapes.

DELETE FROM artifacts;
DELETE FROM raw_files;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

ALTER TABLE units ADD COLUMN detail TEXT;   -- why it is not done, where it ran out of turns
