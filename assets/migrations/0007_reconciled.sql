-- The reconcile step writes artifacts, too: units at the files that they rest on are told. Rows that were made before are
-- made again from the tapes.

DELETE FROM artifacts;
DELETE FROM raw_files;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;
