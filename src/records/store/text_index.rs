//! The words of the entries of all tapes, to find those that may contain a text without reading every tape.
//!
//! It holds no text: the caller reads each candidate on its tape and compares. Like the index, it can be deleted and
//! built again.

use std::{collections::HashMap, fmt::Write as _, path::Path};

use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior,
    config::DbConfig, params,
};

use super::db::{self, DbError, DbFault};
use ingestdeck_core::{
    run::{EntrySource, PollStatus},
    tape::{RunId, Seq},
};

/// A row of `texts` has the number of its run in the upper bits and its entry in the lower ones. Without positions and
/// columns, a word costs about one byte for each entry that contains it. The words are those of `rg --word-regexp`.
const SCHEMA: &str = "
CREATE TABLE text_runs (
    number     INTEGER PRIMARY KEY,
    run        TEXT NOT NULL UNIQUE,
    tape_bytes INTEGER NOT NULL,
    left_out   INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE texts USING fts5(body, content='', contentless_delete=1, detail=none,
    tokenize=\"unicode61 remove_diacritics 0 tokenchars '_'\");
";

/// Bits of a row number for the entry.
const ENTRY_BITS: u32 = 32;

/// Bytes of an entry that are searched. The rest is counted as left out.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Bytes read per slice.
const SLICE: usize = 1 << 20;

/// Maximum words of a query.
const MAX_QUERY_WORDS: usize = 32;

/// The database of the words.
#[derive(Debug)]
pub struct TextIndex {
    connection: Connection,
    path: std::path::PathBuf,
}

/// An entry that contains all words of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextCandidate {
    pub run: RunId,
    pub seq: Seq,
}

impl TextIndex {
    /// Opens or creates the database at `path`, whose file exists. A damaged one is replaced by an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, DbError> {
        match Self::connect(path) {
            Err(DbFault::Damaged(_)) => {
                db::remove(path).map_err(|error| DbError::failed(path, &error))?;
                Self::connect(path).map_err(|fault| fault.into_db_error(path))
            }
            other => other.map_err(|fault| fault.into_db_error(path)),
        }
    }

    fn connect(path: &Path) -> Result<Self, DbFault> {
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(db::BUSY_TIMEOUT)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        // Verify before the first write, which includes the journal mode.
        verify(&connection)?;
        db::use_write_ahead_log(&connection, db::BUSY_TIMEOUT)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if db::schema(&transaction)?.is_empty() {
            transaction.execute_batch(SCHEMA)?;
        }
        transaction.commit()?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// Entries that contain all words of `text`, newest first, at most `limit`. A last word with `*` matches all
    /// words that begin with it. Nothing else in `text` has a meaning. Empty if `text` has no word.
    pub fn candidates(&self, text: &str, limit: usize) -> Result<Vec<TextCandidate>, DbError> {
        let Some(query) = match_expression(text) else {
            return Ok(Vec::new());
        };
        let select = || {
            self.connection
                .prepare_cached(
                    "SELECT run, texts.rowid FROM texts
                     JOIN text_runs ON number = texts.rowid >> 32
                     WHERE texts MATCH ?1 ORDER BY run DESC, texts.rowid DESC LIMIT ?2",
                )?
                .query_map(params![query, db::to_i64(limit as u64)], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
                })?
                .collect::<Result<Vec<_>, rusqlite::Error>>()
        };
        let rows = self.checked(select())?;
        let candidate = |(run, row): (String, i64)| {
            let seq = Seq(db::to_u64(row & ((1 << ENTRY_BITS) - 1)));
            RunId::parse(&run).map(|run| TextCandidate { run, seq })
        };
        Ok(rows.into_iter().filter_map(candidate).collect())
    }

    /// Entries of the runs that are not searched, or not to their end.
    pub fn left_out(&self) -> Result<u64, DbError> {
        let sum = "SELECT coalesce(sum(left_out), 0) FROM text_runs";
        self.checked(self.connection.query_row(sum, [], |row| row.get(0)))
            .map(db::to_u64)
    }

    /// Deletes the words of all runs except `keep`.
    pub fn retain(&mut self, keep: &[RunId]) -> Result<(), DbError> {
        let gone: Vec<String> = self
            .tape_lengths()?
            .into_keys()
            .filter(|run| !RunId::parse(run).is_some_and(|id| keep.contains(&id)))
            .collect();
        self.commit(|transaction| gone.iter().try_for_each(|run| delete(transaction, run)))
    }

    /// Deletes the words of one run, also from the file: a deleted row alone leaves its words in the tables of FTS5.
    pub(super) fn remove(&mut self, run: RunId) -> Result<(), DbError> {
        self.commit(|transaction| delete(transaction, &run.to_string()))?;
        let shrink = "INSERT INTO texts (texts) VALUES ('optimize'); VACUUM;
            PRAGMA wal_checkpoint(TRUNCATE)";
        self.checked(self.connection.execute_batch(shrink))
    }

    pub(super) fn tape_lengths(&self) -> Result<HashMap<String, u64>, DbError> {
        let select = || {
            self.connection
                .prepare_cached("SELECT run, tape_bytes FROM text_runs")?
                .query_map([], |row| Ok((row.get(0)?, db::to_u64(row.get(1)?))))?
                .collect()
        };
        self.checked(select())
    }

    /// Replaces the words of one run by those of `source`.
    pub(super) fn put(
        &mut self,
        run: RunId,
        tape_bytes: u64,
        source: &mut dyn EntrySource,
    ) -> Result<(), String> {
        let run = run.to_string();
        let mut fault = None;
        let stored = self.commit(|transaction| {
            delete(transaction, &run)?;
            let insert = "INSERT INTO text_runs (run, tape_bytes, left_out) VALUES (?1, ?2, 0)";
            transaction.execute(insert, params![run, db::to_i64(tape_bytes)])?;
            let number = transaction.last_insert_rowid();
            let mut left_out = 0;
            let mut statement =
                transaction.prepare("INSERT INTO texts (rowid, body) VALUES (?1, ?2)")?;
            loop {
                let mut written = Ok(());
                let polled = source.poll(SLICE, &mut |entry| {
                    let seq = i64::try_from(entry.seq.0).unwrap_or(i64::MAX);
                    let is_long = entry.body.bytes().len() > MAX_ENTRY_BYTES;
                    // The complete message follows its fragments.
                    if entry.body.is_stream_event() || written.is_err() {
                        return;
                    }
                    if is_long || seq >> ENTRY_BITS != 0 {
                        left_out += 1;
                    }
                    if seq >> ENTRY_BITS == 0 {
                        let text = searched_text(entry.body.bytes());
                        written = statement
                            .execute(params![number << ENTRY_BITS | seq, text])
                            .map(drop);
                    }
                });
                written?;
                match polled {
                    Ok(PollStatus::More) => {}
                    Ok(PollStatus::Waiting | PollStatus::End) => break,
                    Err(error) => {
                        fault = Some(error.to_string());
                        return Err(rusqlite::Error::QueryReturnedNoRows);
                    }
                }
            }
            let update = "UPDATE text_runs SET left_out = ?2 WHERE number = ?1";
            transaction.execute(update, params![number, left_out])?;
            Ok(())
        });
        match fault {
            Some(cause) => Err(cause),
            None => stored.map_err(|error| error.to_string()),
        }
    }

    fn commit(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<(), rusqlite::Error>,
    ) -> Result<(), DbError> {
        let path = self.path.clone();
        let commit = || {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        commit().map_err(|error: rusqlite::Error| DbFault::from(error).into_db_error(&path))
    }

    fn checked<T>(&self, result: Result<T, rusqlite::Error>) -> Result<T, DbError> {
        result.map_err(|error| DbFault::from(error).into_db_error(&self.path))
    }
}

/// Refuses a database with any other schema.
fn verify(connection: &Connection) -> Result<(), DbFault> {
    let found = db::schema(connection)?;
    if found.is_empty() {
        return Ok(());
    }
    let model = Connection::open_in_memory()?;
    model.execute_batch(SCHEMA)?;
    let expected = db::schema(&model)?;
    if let Some(object) = found.iter().find(|object| !expected.contains(object)) {
        return Err(DbFault::Foreign(object.name.escape_debug().to_string()));
    }
    if found.len() < expected.len() {
        return Err(DbFault::Damaged("a table or index is missing".to_owned()));
    }
    Ok(())
}

fn delete(transaction: &Transaction<'_>, run: &str) -> Result<(), rusqlite::Error> {
    let number: Option<i64> = transaction
        .query_row(
            "SELECT number FROM text_runs WHERE run = ?1",
            [run],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(number) = number {
        let rows = "DELETE FROM texts WHERE rowid BETWEEN ?1 AND ?2";
        let first = number << ENTRY_BITS;
        transaction.execute(rows, [first, first | ((1 << ENTRY_BITS) - 1)])?;
        transaction.execute("DELETE FROM text_runs WHERE number = ?1", [number])?;
    }
    Ok(())
}

/// The query for all words of `text`, each quoted.
fn match_expression(text: &str) -> Option<String> {
    let text = text.trim_end();
    let is_prefix = text.ends_with('*');
    let words: Vec<&str> = text
        .split(|char: char| !(char.is_alphanumeric() || char == '_'))
        .filter(|word| !word.is_empty())
        .take(MAX_QUERY_WORDS)
        .collect();
    let mut query = words
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(" AND ");
    if is_prefix && !query.is_empty() {
        query.push('*');
    }
    (!query.is_empty()).then_some(query)
}

/// The beginning of an entry as it is on the tape and, if it has escapes, also as a person reads it.
fn searched_text(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(MAX_ENTRY_BYTES)];
    let raw = String::from_utf8_lossy(head);
    let mut text = raw.clone().into_owned();
    if raw.contains('\\') {
        text.push(' ');
        push_unescaped(&mut text, &raw);
    }
    text
}

/// Appends `raw` with its escapes resolved; those of white space and punctuation become spaces.
fn push_unescaped(text: &mut String, raw: &str) {
    let mut parts = raw.split('\\');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let hex = part.strip_prefix('u').and_then(|rest| rest.get(..4));
        let char = hex
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .and_then(char::from_u32);
        if let Some(char) = char {
            // Writing to a string cannot fail.
            let _ = write!(text, "{char}{}", part.get(5..).unwrap_or_default());
        } else {
            let is_escape = part.starts_with(['n', 't', 'r', 'b', 'f', '"', '/']);
            text.push(' ');
            text.push_str(if is_escape { &part[1..] } else { part });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(entries: &[&str]) -> (tempfile::TempDir, TextIndex) {
        let directory = tempfile::tempdir().unwrap();
        let mut texts = TextIndex::open(&directory.path().join("text.sqlite")).unwrap();
        let run = "019a0000-0000-7000-8000-000000000001";
        texts
            .commit(|transaction| {
                transaction.execute("INSERT INTO text_runs VALUES (1, ?1, 9, 0)", [run])?;
                entries.iter().enumerate().try_for_each(|(seq, body)| {
                    transaction
                        .execute(
                            "INSERT INTO texts (rowid, body) VALUES (?1, ?2)",
                            params![1_i64 << 32 | seq as i64, searched_text(body.as_bytes())],
                        )
                        .map(drop)
                })
            })
            .unwrap();
        (directory, texts)
    }

    fn found(texts: &TextIndex, text: &str) -> Vec<u64> {
        let found = texts.candidates(text, 10).unwrap();
        found.iter().map(|candidate| candidate.seq.0).collect()
    }

    #[test]
    fn words_are_found_as_on_the_tape_and_as_read() {
        let (_directory, texts) = texts(&[
            r#"{"text":"first\norder_items of caf\u00e9"}"#,
            r#"{"path":"wiki/global/x.md"}"#,
        ]);
        assert_eq!(found(&texts, "ORDER_items"), [0]);
        assert_eq!(found(&texts, "norder_items"), [0]);
        assert_eq!(found(&texts, "order"), [0; 0]);
        assert_eq!(found(&texts, "order*"), [0]);
        assert_eq!(found(&texts, "café"), [0]);
        assert_eq!(found(&texts, "wiki/global/x.md"), [1]);
        assert_eq!(found(&texts, "text path"), [0; 0]);
    }

    #[test]
    fn syntax_of_queries_has_no_meaning_in_a_text() {
        let (_directory, texts) = texts(&["near or x", "body and y"]);
        for text in ["\"", "*", "(", "- ^", ""] {
            assert_eq!(found(&texts, text), [0; 0], "{text}");
        }
        assert_eq!(found(&texts, "x OR y"), [0; 0]);
        assert_eq!(found(&texts, "near OR"), [0]);
        assert_eq!(found(&texts, "body:y\""), [1]);
    }

    #[test]
    fn words_of_removed_runs_are_deleted() {
        let (_directory, mut texts) = texts(&["secret"]);
        texts.retain(&[]).unwrap();
        assert_eq!(found(&texts, "secret"), [0; 0]);
        let rows = "SELECT count(*) FROM texts('secret')";
        let count = texts.connection.query_row(rows, [], |row| row.get(0));
        assert_eq!(count, Ok(0));
    }

    #[test]
    fn database_with_other_tables_is_refused() {
        for sql in ["CREATE TABLE x (y)", "CREATE VIEW texts AS SELECT 1"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("text.sqlite");
            Connection::open(&path).unwrap().execute_batch(sql).unwrap();
            let error = TextIndex::open(&path).unwrap_err();
            assert!(matches!(error, DbError::Foreign { .. }), "{sql}: {error}");
        }
    }

    #[test]
    fn damaged_database_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text.sqlite");
        std::fs::write(&path, "this file is not a database".repeat(100)).unwrap();
        let texts = TextIndex::open(&path).unwrap();
        assert_eq!(found(&texts, "database"), [0; 0]);
        drop(texts);
        TextIndex::open(&path).unwrap();
    }
}
