//! The words of the entries of all tapes, to find those that may contain a text without reading every tape.
//!
//! It holds no text: the caller reads each candidate on its tape and compares. Like the index, it can be deleted and
//! built again.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior,
    config::DbConfig, params,
};

use super::{
    db::{self, DbError, DbFault},
    text_exclusions::TextExclusions,
    text_record::TextRecord,
};
use ingestdeck_core::{
    run::{EntrySource, PollStatus},
    tape::Seq,
};

/// A row of `texts` has the number of its record in the upper bits and its entry in the lower ones. Numbers grow with the time
/// at which records began, so that the newest entry is the last row. Without positions and columns, a word costs about
/// one byte for each entry that contains it. The words are those of `rg --word-regexp`.
const SCHEMA: &str = "
CREATE TABLE text_records (
    number     INTEGER PRIMARY KEY,
    record     TEXT NOT NULL UNIQUE,
    bytes      INTEGER NOT NULL,
    left_out   INTEGER NOT NULL,
    excluded   INTEGER NOT NULL,
    dropped_at INTEGER NOT NULL
) STRICT;
CREATE TABLE text_exclusions (units TEXT NOT NULL) STRICT;
CREATE TABLE text_removals (is_due INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE texts USING fts5(body, content='', contentless_delete=1, detail=none,
    tokenize=\"unicode61 remove_diacritics 0 tokenchars '_'\");
";

/// The schema of the first version, whose databases are replaced.
const EARLIER_SCHEMA: &str = "
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

/// The numbers of records count seconds from here, 1 January 2020, for which the other bits last until 2088.
const FIRST_SECOND: u64 = 1_577_836_800;

/// Bytes of an entry that are searched. The rest is counted as left out.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Bytes read per slice.
const SLICE: usize = 1 << 20;

/// Maximum words of a query.
const MAX_QUERY_WORDS: usize = 32;

/// Removes the words of deleted rows from the file: a deleted row alone leaves them in the tables of FTS5.
const SHRINK: &str = "INSERT INTO texts (texts) VALUES ('optimize'); VACUUM;
    PRAGMA wal_checkpoint(TRUNCATE)";

/// Remembers that words are to be removed from the file.
const REMOVAL: &str = "INSERT INTO text_removals VALUES (1)";

/// The database of the words.
#[derive(Debug)]
pub struct TextIndex {
    connection: Connection,
    path: PathBuf,
}

/// An entry that contains all words of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCandidate {
    pub record: TextRecord,
    pub seq: Seq,
}

/// What the database does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnindexedTexts {
    /// Records that were deleted because the database became too large.
    pub dropped: u64,
    /// Entries that are not searched, or not to their end, because they are long.
    pub long_entries: u64,
    /// Entries of excluded units.
    pub excluded_entries: u64,
}

/// What the database has of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexedText {
    /// Length of the file when its words were read.
    pub bytes: u64,
    /// The limit of the size at which its words were deleted; `None` if they are there.
    pub dropped_at: Option<u64>,
}

/// Why the words of a record are not in the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutTextError {
    #[error("{0}")]
    Source(String),
    #[error(transparent)]
    Db(#[from] DbError),
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

    /// Empties the database if the entries of other units were excluded when its words were read.
    pub(super) fn set_exclusions(&mut self, units: &str) -> Result<(), DbError> {
        let known: Result<Option<String>, _> = self
            .connection
            .query_row("SELECT units FROM text_exclusions", [], |row| row.get(0))
            .optional();
        if self.checked(known)?.unwrap_or_default() == units {
            return Ok(());
        }
        self.commit(|transaction| {
            transaction.execute_batch(
                "INSERT INTO texts (texts) VALUES ('delete-all');
                 DELETE FROM text_records; DELETE FROM text_exclusions",
            )?;
            transaction.execute("INSERT INTO text_exclusions VALUES (?1)", [units])?;
            transaction.execute(REMOVAL, [])?;
            Ok(())
        })?;
        self.shrink()
    }

    /// Calls `visit` with each entry that contains all words of `text`, newest first, until it returns false. A last word
    /// with `*` matches all words that begin with it. Nothing else in `text` has a meaning. There are none if `text` has
    /// no word.
    pub fn candidates(
        &self,
        text: &str,
        visit: &mut dyn FnMut(TextCandidate) -> bool,
    ) -> Result<(), DbError> {
        let Some(query) = match_expression(text) else {
            return Ok(());
        };
        let mut select = || {
            let mut records = HashMap::new();
            let mut statement = self
                .connection
                .prepare_cached("SELECT number, record FROM text_records")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let record = TextRecord::parse(&row.get::<_, String>(1)?);
                records.extend(record.map(|record| (row.get(0).unwrap_or(0_i64), record)));
            }
            let matching = "SELECT rowid FROM texts WHERE texts MATCH ?1 ORDER BY rowid DESC";
            let mut statement = self.connection.prepare_cached(matching)?;
            let mut rows = statement.query([query.as_str()])?;
            while let Some(row) = rows.next()? {
                let row: i64 = row.get(0)?;
                let seq = Seq(db::to_u64(row & ((1 << ENTRY_BITS) - 1)));
                if let Some(record) = records.get(&(row >> ENTRY_BITS)).cloned()
                    && !visit(TextCandidate { record, seq })
                {
                    break;
                }
            }
            Ok(())
        };
        self.checked(select())
    }

    /// What it does not have of the records that it knows.
    pub fn unindexed(&self) -> Result<UnindexedTexts, DbError> {
        let sums = "SELECT count(*) FILTER (WHERE dropped_at > 0), coalesce(sum(left_out), 0),
             coalesce(sum(excluded), 0) FROM text_records";
        let read = self.connection.query_row(sums, [], |row| {
            let [dropped, long_entries, excluded_entries] =
                [row.get(0)?, row.get(1)?, row.get(2)?].map(db::to_u64);
            Ok(UnindexedTexts {
                dropped,
                long_entries,
                excluded_entries,
            })
        });
        self.checked(read)
    }

    /// Deletes the words of all records except `keep`, also from the file.
    pub(super) fn retain(&mut self, keep: &HashSet<&TextRecord>) -> Result<(), DbError> {
        let is_gone =
            |record: &String| !TextRecord::parse(record).is_some_and(|it| keep.contains(&it));
        let gone: Vec<String> = self.known()?.into_keys().filter(is_gone).collect();
        self.delete_all(&gone)
    }

    /// Deletes the words of one record, also from the file.
    pub(super) fn remove(&mut self, record: &TextRecord) -> Result<(), DbError> {
        self.delete_all(&[record.to_text()])
    }

    fn delete_all(&mut self, records: &[String]) -> Result<(), DbError> {
        if records.is_empty() {
            // What another process has kept from the last removal.
            let due = "SELECT count(*) FROM text_removals";
            let due = self.connection.query_row(due, [], |row| row.get(0));
            let due: i64 = self.checked(due)?;
            return if due > 0 { self.shrink() } else { Ok(()) };
        }
        self.commit(|transaction| {
            records
                .iter()
                .try_for_each(|record| delete(transaction, record))?;
            transaction.execute(REMOVAL, [])?;
            // There is room now for those that were deleted.
            transaction.execute("DELETE FROM text_records WHERE dropped_at > 0", [])?;
            Ok(())
        })?;
        self.shrink()
    }

    /// Deletes the words of the oldest records if the database is larger than `limit`. The records remain known, so that
    /// they are counted and not read again.
    pub(super) fn drop_oldest(&mut self, limit: u64) -> Result<(), DbError> {
        let mut used = self.used_bytes()?;
        while used > limit {
            let select = || {
                self.connection
                    .prepare_cached(
                        "SELECT number, record, bytes FROM text_records WHERE dropped_at = 0 ORDER BY number",
                    )?
                    .query_map([], |row| {
                        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, db::to_u64(row.get(2)?)))
                    })?
                    .collect::<Result<Vec<_>, rusqlite::Error>>()
            };
            let records = self.checked(select())?;
            if records.is_empty() {
                break;
            }
            // The words of a record are assumed to need a share of the file. Room for others is made so that not each of
            // them makes the file to be written again.
            let all: u64 = records.iter().map(|(.., bytes)| bytes).sum();
            let kept_share = (limit / 5 * 4) as f64 / used as f64;
            let mut kept = all;
            let drops = records.iter().take_while(|(.., bytes)| {
                let is_dropped = kept as f64 > all as f64 * kept_share;
                kept -= bytes;
                is_dropped
            });
            let drops: Vec<_> = drops.collect();
            if drops.is_empty() {
                break;
            }
            self.commit(|transaction| {
                transaction.execute(REMOVAL, [])?;
                for (number, record, bytes) in &drops {
                    delete(transaction, record)?;
                    transaction.execute(
                        "INSERT INTO text_records VALUES (?1, ?2, ?3, 0, 0, ?4)",
                        params![number, record, db::to_i64(*bytes), db::to_i64(limit)],
                    )?;
                }
                Ok(())
            })?;
            self.shrink()?;
            used = self.used_bytes()?;
        }
        Ok(())
    }

    fn shrink(&self) -> Result<(), DbError> {
        let shrink = || {
            self.connection.execute_batch(SHRINK)?;
            self.connection.execute("DELETE FROM text_removals", [])?;
            Ok(())
        };
        // Another process reads or writes: the next search tries again.
        match self.checked(shrink()) {
            Err(DbError::Busy(_)) => Ok(()),
            done => done,
        }
    }

    fn used_bytes(&self) -> Result<u64, DbError> {
        let size = "SELECT (page_count - freelist_count) * page_size
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        self.checked(self.connection.query_row(size, [], |row| row.get(0)))
            .map(db::to_u64)
    }

    /// The records that it knows, by their text.
    pub(super) fn known(&self) -> Result<HashMap<String, IndexedText>, DbError> {
        let select = || {
            self.connection
                .prepare_cached("SELECT record, bytes, dropped_at FROM text_records")?
                .query_map([], |row| {
                    let dropped_at = db::to_u64(row.get(2)?);
                    let known = IndexedText {
                        bytes: db::to_u64(row.get(1)?),
                        dropped_at: (dropped_at > 0).then_some(dropped_at),
                    };
                    Ok((row.get(0)?, known))
                })?
                .collect()
        };
        self.checked(select())
    }

    pub(super) fn known_record<'a>(
        known: &'a HashMap<String, IndexedText>,
        record: &TextRecord,
    ) -> Option<&'a IndexedText> {
        known.get(&record.to_text())
    }

    /// Remembers a record without its words, because those of newer ones need the room.
    pub(super) fn put_dropped(
        &mut self,
        record: &TextRecord,
        (began_ms, bytes): (u64, u64),
        limit: u64,
    ) -> Result<(), DbError> {
        self.commit(|transaction| {
            let number = self::number(transaction, &record.to_text(), began_ms)?;
            transaction.execute(
                "INSERT INTO text_records VALUES (?1, ?2, ?3, 0, 0, ?4)",
                params![
                    number,
                    record.to_text(),
                    db::to_i64(bytes),
                    db::to_i64(limit)
                ],
            )?;
            Ok(())
        })
    }

    /// Replaces the words of a record by those of `source`.
    pub(super) fn put(
        &mut self,
        record: &TextRecord,
        (began_ms, bytes): (u64, u64),
        exclusions: &TextExclusions,
        source: &mut dyn EntrySource,
    ) -> Result<(), PutTextError> {
        let record = record.to_text();
        let mut fault = None;
        let stored = self.commit(|transaction| {
            let known =
                "SELECT 1 FROM text_records WHERE record = ?1 AND bytes = ?2 AND dropped_at = 0";
            let is_known = transaction
                .query_row(known, params![record, db::to_i64(bytes)], |_| Ok(()))
                .optional()?;
            // Another process was faster.
            if is_known.is_some() {
                return Ok(());
            }
            let number = self::number(transaction, &record, began_ms)?;
            let (mut left_out, mut excluded) = (0, 0);
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
                    if exclusions.excludes_entry(&entry) {
                        excluded += 1;
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
            let insert = "INSERT INTO text_records VALUES (?1, ?2, ?3, ?4, ?5, 0)";
            let bytes = db::to_i64(bytes);
            transaction.execute(insert, params![number, record, bytes, left_out, excluded])?;
            Ok(())
        });
        match fault {
            Some(cause) => Err(PutTextError::Source(cause)),
            None => Ok(stored?),
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

/// A free number for a record that began at a time, which is no longer known then.
fn number(
    transaction: &Transaction<'_>,
    record: &str,
    began_ms: u64,
) -> Result<i64, rusqlite::Error> {
    delete(transaction, record)?;
    let second = (began_ms / 1_000).saturating_sub(FIRST_SECOND);
    // The bits of a row number must suffice.
    let mut number = db::to_i64(second).min(i64::from(i32::MAX) - (1 << 20));
    while transaction
        .prepare_cached("SELECT 1 FROM text_records WHERE number = ?1")?
        .exists([number])?
    {
        number += 1;
    }
    Ok(number)
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
        let earlier = Connection::open_in_memory()?;
        earlier.execute_batch(EARLIER_SCHEMA)?;
        if found == db::schema(&earlier)? {
            return Err(DbFault::Damaged("it has an earlier version".to_owned()));
        }
        return Err(DbFault::Foreign(object.name.escape_debug().to_string()));
    }
    if found.len() < expected.len() {
        return Err(DbFault::Damaged("a table or index is missing".to_owned()));
    }
    Ok(())
}

fn delete(transaction: &Transaction<'_>, record: &str) -> Result<(), rusqlite::Error> {
    let number: Option<i64> = transaction
        .query_row(
            "SELECT number FROM text_records WHERE record = ?1",
            [record],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(number) = number {
        let rows = "DELETE FROM texts WHERE rowid BETWEEN ?1 AND ?2";
        let first = number << ENTRY_BITS;
        transaction.execute(rows, [first, first | ((1 << ENTRY_BITS) - 1)])?;
        transaction.execute("DELETE FROM text_records WHERE number = ?1", [number])?;
    }
    Ok(())
}

/// The query for all words of `text`, each quoted.
fn match_expression(text: &str) -> Option<String> {
    let text = text.trim_end();
    let is_prefix = text.ends_with('*');
    let text = separated(text);
    let words: Vec<&str> = words(&text).take(MAX_QUERY_WORDS).collect();
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

/// True if `text` has a word that the index can have.
pub fn has_word(text: &str) -> bool {
    words(&separated(text)).next().is_some()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !is_in_word(char))
        .filter(|word| !word.is_empty())
}

/// True for a character that belongs to the same word as such characters next to it.
pub fn is_in_word(char: char) -> bool {
    is_letter(char) || char == '_'
}

/// True for characters of words that SQLite and this file separate in the same way: letters and digits of ASCII, Latin, Greek and
/// Cyrillic.
fn is_letter(char: char) -> bool {
    let is_known = matches!(char, '\u{c0}'..='\u{24f}' | '\u{386}'..='\u{3ff}' | '\u{400}'..='\u{481}' | '\u{48a}'..='\u{527}');
    char.is_ascii_alphanumeric() || (is_known && char.is_alphabetic())
}

/// The text with each other character but spaces as a word of its number: many scripts have no spaces between words, and
/// SQLite takes signs for spaces.
fn separated(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut separated = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii() || is_letter(char) {
            separated.push(char);
        } else if char.is_whitespace() || char.is_control() {
            separated.push(' ');
        } else {
            // Writing to a string cannot fail.
            let _ = write!(separated, " _u{:x} ", u32::from(char));
        }
    }
    Cow::Owned(separated)
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
    match separated(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => text,
    }
}

/// Appends `raw` with its escapes resolved; those of white space and punctuation become spaces.
fn push_unescaped(text: &mut String, raw: &str) {
    let mut parts = raw.split('\\');
    text.push_str(parts.next().unwrap_or_default());
    let mut high = None;
    for part in parts {
        let hex = part.strip_prefix('u').and_then(|rest| rest.get(..4));
        let unit = hex.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        let units = [high.take(), unit].into_iter().flatten();
        let chars = char::decode_utf16(units);
        if let Some(unit) = unit {
            // The other half of a character follows.
            high = (0xd800..0xdc00).contains(&unit).then_some(unit);
            if high.is_none() {
                text.extend(chars.filter_map(Result::ok));
                text.push_str(part.get(5..).unwrap_or_default());
            }
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
                transaction
                    .execute("INSERT INTO text_records VALUES (1, ?1, 9, 0, 0, 0)", [run])?;
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
        let mut found = Vec::new();
        texts
            .candidates(text, &mut |candidate| {
                found.push(candidate.seq.0);
                true
            })
            .unwrap();
        found
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
    fn scripts_without_spaces_and_signs_are_found() {
        let (_directory, texts) = texts(&[
            r#"{"text":"日次売上の集計 → 完了 🎉"}"#,
            r#"{"text":"\u58f2\u4e0a हिन्दी cafe\u0301 \ud83c\udf89"}"#,
            r#"{"text":"Größe МОСКВА Ωμέγα"}"#,
        ]);
        assert_eq!(found(&texts, "売上"), [1, 0]);
        assert_eq!(found(&texts, "売上の集"), [0]);
        assert_eq!(found(&texts, "→"), [0]);
        assert_eq!(found(&texts, "🎉"), [1, 0]);
        assert_eq!(found(&texts, "हिन्दी"), [1]);
        assert_eq!(found(&texts, "cafe\u{301}"), [1]);
        assert_eq!(found(&texts, "größe москва ωμέγα"), [2]);
        assert_eq!(found(&texts, "売"), [1, 0]);
        assert!(has_word("🎉") && !has_word("\"*-"));
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
        texts.retain(&HashSet::new()).unwrap();
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
