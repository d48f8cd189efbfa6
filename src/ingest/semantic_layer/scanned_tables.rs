//! The tables that a database scan stored below `_schema/`, each as a source.
//!
//! A scan may have tens of thousands of tables, and most tools need it. So a file is parsed once while its text stays the
//! same, for all workspaces of the process. This module must not know what people added to a table.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;

use super::{EffectiveSource, SourceDoc, SourceTextError, to_doc};
use crate::yaml;

/// Largest file of a scan that is read, in bytes: that of a schema with many tables.
pub(super) const MAX_FILE_BYTES: u64 = 64 << 20;
/// Bytes of the texts whose tables stay in memory.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// The files that were read last, the newest at the end.
static KEPT_FILES: Mutex<KeptFiles> = Mutex::new(KeptFiles {
    files: Vec::new(),
    bytes: 0,
});

/// Parsed files, within a limit of bytes.
struct KeptFiles {
    files: Vec<KeptFile>,
    /// Bytes of their texts.
    bytes: usize,
}

struct KeptFile {
    text: String,
    tables: Arc<[EffectiveSource]>,
}

impl KeptFiles {
    /// The tables of the file with this text.
    fn tables(&mut self, text: String) -> Result<Arc<[EffectiveSource]>, SourceTextError> {
        if let Some(place) = self.files.iter().position(|kept| kept.text == text) {
            let kept = self.files.remove(place);
            let tables = Arc::clone(&kept.tables);
            self.files.push(kept);
            return Ok(tables);
        }
        let scan = to_doc(&text, yaml::from_large_str(&text))?;
        let tables: Arc<[EffectiveSource]> = tables_of(scan).collect();
        if text.len() <= MAX_KEPT_BYTES {
            self.bytes += text.len();
            let file = KeptFile {
                text,
                tables: Arc::clone(&tables),
            };
            self.files.push(file);
            while self.bytes > MAX_KEPT_BYTES {
                self.bytes -= self.files.remove(0).text.len();
            }
        }
        Ok(tables)
    }
}

/// The tables in the text of a file, in its order.
pub(super) fn parse_file(text: String) -> Result<Arc<[EffectiveSource]>, SourceTextError> {
    // A second caller waits for the tables instead of parsing the same file.
    KEPT_FILES.lock().tables(text)
}

fn tables_of(mut scan: SourceDoc) -> impl Iterator<Item = EffectiveSource> {
    let tables = match scan.remove("tables") {
        Some(Value::Object(tables)) => tables,
        _ => SourceDoc::new(),
    };
    tables.into_iter().filter_map(|(name, entry)| {
        let Value::Object(mut doc) = entry else {
            return None;
        };
        doc.shift_insert(0, "name".into(), Value::from(name.as_str()));
        doc.entry("table")
            .or_insert_with(|| Value::from(name.as_str()));
        let doc = Arc::new(doc);
        Some(EffectiveSource { name, doc })
    })
}

/// The tables of all files of a scan. Several schemas may have a table of the same name.
#[derive(Debug, Default)]
pub(crate) struct ScannedTables {
    /// By the full name in the database.
    tables: BTreeMap<String, EffectiveSource>,
    /// Full name of the table that a source of this name means: as in KTX, that of the last file.
    by_name: BTreeMap<String, String>,
    /// Full names by their last part in lower case.
    by_last_part: HashMap<String, Vec<String>>,
}

impl ScannedTables {
    /// Adds the tables of a file.
    pub(super) fn extend(&mut self, tables: &[EffectiveSource]) {
        for table in tables {
            let full_name = full_name(table).to_owned();
            self.by_name.insert(table.name.clone(), full_name.clone());
            let same_end = self.by_last_part.entry(last_part(&full_name)).or_default();
            if self
                .tables
                .insert(full_name.clone(), table.clone())
                .is_none()
            {
                same_end.push(full_name);
            }
        }
    }

    /// The tables that are sources by their names.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &EffectiveSource> {
        self.by_name.keys().filter_map(|name| self.source(name))
    }

    fn source(&self, name: &str) -> Option<&EffectiveSource> {
        self.tables.get(self.by_name.get(name)?)
    }

    /// The table that is the source `name`.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<SourceDoc>> {
        self.source(name).map(|table| &table.doc)
    }

    /// The table that `reference` names: by the name of its source, or by its name in the database, whose leading parts
    /// may be left out.
    pub(super) fn find(&self, reference: &str) -> Option<&EffectiveSource> {
        let wanted = reference.to_lowercase();
        let is_named = |full_name: &&String| {
            let full_name = full_name.to_lowercase();
            full_name
                .strip_suffix(&wanted)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let same_end = || self.by_last_part.get(&last_part(reference));
        let by_end = || same_end()?.iter().find(is_named);
        self.source(reference)
            .or_else(|| self.tables.get(reference))
            .or_else(|| self.tables.get(by_end()?))
    }
}

/// The name of the table in the database, as the file has it.
fn full_name(table: &EffectiveSource) -> &str {
    let named = table.doc.get("table").and_then(Value::as_str);
    named.unwrap_or(&table.name)
}

fn last_part(name: &str) -> String {
    name.rsplit('.').next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!("tables:\n  {name}:\n    table: public.{name}\n    columns: []\n")
    }

    #[test]
    fn unchanged_files_are_parsed_once_within_the_limit() {
        let mut kept = KeptFiles {
            files: Vec::new(),
            bytes: 0,
        };
        let first = kept.tables(text("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &kept.tables(text("a")).unwrap()));
        assert_eq!(kept.tables(text("b")).unwrap()[0].name, "b");
        let large = format!("{}# {}\n", text("c"), "x".repeat(MAX_KEPT_BYTES - 120));
        kept.tables(large.clone()).unwrap();
        assert!(kept.bytes <= MAX_KEPT_BYTES && kept.files.len() == 2);
        assert!(!Arc::ptr_eq(&first, &kept.tables(text("a")).unwrap()));
        assert!(kept.tables("tables: [".into()).is_err());
        assert!(kept.bytes <= MAX_KEPT_BYTES);
    }

    #[test]
    fn equal_names_in_two_schemas_are_two_tables() {
        let mut tables = ScannedTables::default();
        for schema in ["mart", "stage"] {
            let text = text("orders").replace("public", schema);
            tables.extend(&parse_file(text).unwrap());
        }
        let found = |reference: &str| Some(full_name(tables.find(reference)?));
        for (reference, expected) in [
            ("orders", Some("stage.orders")),
            ("mart.orders", Some("mart.orders")),
            ("MART.Orders", Some("mart.orders")),
            ("stage.orders", Some("stage.orders")),
            ("art.orders", None),
            ("other.orders", None),
        ] {
            assert_eq!(found(reference), expected, "{reference}");
        }
        assert_eq!(tables.sources().count(), 1);
    }
}
