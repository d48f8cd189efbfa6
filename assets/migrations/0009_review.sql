-- What reviewers did not accept of the changes of a unit: its later attempts are told. Rows that were made without it are made
-- again from the tapes.

DELETE FROM artifacts;
DELETE FROM raw_files;
DELETE FROM model_usage;
DELETE FROM tool_calls;
DELETE FROM attempts;
DELETE FROM units;
DELETE FROM runs;

ALTER TABLE units ADD COLUMN review_remarks TEXT;                -- empty if everything was accepted; NULL without a review
