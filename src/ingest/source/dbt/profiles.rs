//! The databases in dbt's `profiles.yml`: their types, and the environment variables that have their logins.
//!
//! The file holds passwords and may be hostile, so nothing of its text is copied but the names of variables. It must not
//! read anything outside of the project and the user's own `~/.dbt`.

use std::path::Path;

use ingestdeck_os::scoped_dir::ScopedDir;

use crate::{
    source::SourceTree,
    yaml::{self, YamlNode, YamlValue},
};

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 * 1024;
/// Longest name of a variable in bytes.
const MAX_VARIABLE_BYTES: usize = 100;
const FILE: &str = "profiles.yml";

/// A database that a source names as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedDatabase {
    /// Name of its profile.
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    /// The file that describes it.
    pub(crate) file: String,
    /// Scheme of its address, if its other keys are not complete.
    pub(crate) scheme: Option<&'static str>,
    /// Its keys, and the variable of each; `None` if the file has no variable.
    pub(crate) keys: Vec<(&'static str, Option<String>)>,
}

/// A type of dbt and driver of KTX.
struct DatabaseType {
    name: &'static str,
    /// Scheme and port of an address that may replace the keys.
    url: Option<(&'static str, i64)>,
    /// Keys of KTX, each with those of dbt.
    keys: &'static [(&'static str, &'static [&'static str])],
}

const SERVER_KEYS: &[(&str, &[&str])] = &[
    ("host", &["host", "server"]),
    ("database", &["dbname", "database"]),
    ("username", &["user", "username"]),
    ("password", &["password", "pass"]),
];

const fn server(name: &'static str, scheme: &'static str, port: i64) -> DatabaseType {
    DatabaseType {
        name,
        url: Some((scheme, port)),
        keys: SERVER_KEYS,
    }
}

const TYPES: [DatabaseType; 9] = [
    server("postgres", "postgresql", 5432),
    server("redshift", "redshift", 5439),
    server("mysql", "mysql", 3306),
    server("clickhouse", "http", 8123),
    server("sqlserver", "sqlserver", 1433),
    DatabaseType {
        name: "snowflake",
        url: None,
        keys: &[
            ("account", &["account"]),
            ("warehouse", &["warehouse"]),
            ("database", &["database"]),
            ("username", &["user"]),
            ("password", &["password"]),
            ("role", &["role"]),
        ],
    },
    DatabaseType {
        name: "databricks",
        url: None,
        keys: &[
            ("host", &["host"]),
            ("http_path", &["http_path"]),
            ("token", &["token"]),
            ("catalog", &["catalog"]),
        ],
    },
    DatabaseType {
        name: "duckdb",
        url: None,
        keys: &[("path", &["path"])],
    },
    DatabaseType {
        name: "bigquery",
        url: None,
        keys: &[
            ("credentials_json", &["keyfile_json", "type"]),
            ("dataset_id", &["dataset", "schema"]),
        ],
    },
];

/// The database of the dbt project in `folder`, in the file that dbt reads: next to `dbt_project.yml`, else in `~/.dbt`.
pub(super) fn find_database(
    tree: &SourceTree,
    folder: &str,
    home: Option<&Path>,
) -> Option<ProposedDatabase> {
    let root = ScopedDir::open(&tree.root).ok()?;
    let at = |name: &str| match folder {
        "" => name.to_owned(),
        _ => format!("{folder}/{name}"),
    };
    let settings = ["dbt_project.yml", "dbt_project.yaml"];
    let settings = settings.iter().find_map(|name| read(&root, &at(name)))?;
    let name = settings.text_at("profile")?.to_owned();
    let (profiles, file) = match root.kind(&at(FILE)).ok()? {
        Some(_) => (read(&root, &at(FILE))?, at(FILE)),
        None => {
            let home = ScopedDir::open(home?).ok()?;
            let file = format!(".dbt/{FILE}");
            (read(&home, &file)?, format!("~/{file}"))
        }
    };
    let profile = profiles.get(&name)?;
    let outputs = profile.get("outputs")?;
    let target = profile.text_at("target").unwrap_or("default");
    let output = outputs.get(target).or_else(|| match &outputs.value {
        YamlValue::Map(entries) => entries.first().map(|entry| &entry.value),
        _ => None,
    })?;
    let kind = output.text_at("type")?;
    let kind = TYPES.iter().find(|of| of.name == kind)?;
    let value = |names: &[&str]| names.iter().find_map(|name| output.get(name));
    let keys = kind
        .keys
        .iter()
        .filter_map(|(key, names)| Some((*key, value(names)?.as_text().and_then(variable))));
    let mut keys: Vec<_> = keys.collect();
    let scheme = kind.url.filter(|(_, port)| {
        let is_usual = |node: &YamlNode| node.value == YamlValue::Int(*port);
        keys.len() < kind.keys.len()
            || keys.iter().any(|(_, variable)| variable.is_none())
            || !output.get("port").is_none_or(is_usual)
    });
    if scheme.is_some() {
        keys.retain(|(_, variable)| variable.is_some());
    }
    Some(ProposedDatabase {
        name,
        driver: kind.name,
        file,
        scheme: scheme.map(|(scheme, _)| scheme),
        keys,
    })
}

fn read(dir: &ScopedDir, path: &str) -> Option<YamlNode> {
    let text = String::from_utf8(dir.read(path, MAX_BYTES).ok()?).ok()?;
    yaml::parse_source_file(&text).ok()
}

/// The variable that a text of Jinja such as `{{ env_var('NAME') }}` consists of.
fn variable(text: &str) -> Option<String> {
    let call = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let arguments = call
        .strip_prefix("env_var")?
        .trim_start()
        .strip_prefix('(')?;
    let arguments = arguments.strip_suffix(')')?.trim();
    let quote = arguments.chars().next().filter(|c| "'\"".contains(*c))?;
    let (name, rest) = arguments.get(1..)?.split_once(quote)?;
    let rest = rest.trim_start();
    let is_alone = rest.is_empty() || rest.starts_with(',') && !rest.contains(['(', ')']);
    (is_alone && is_variable(name)).then(|| name.to_owned())
}

fn is_variable(name: &str) -> bool {
    name.len() <= MAX_VARIABLE_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_call_is_a_variable() {
        let cases = [
            ("{{ env_var('A_1') }}", Some("A_1")),
            (" {{env_var( \"b\", 'x' )}} ", Some("b")),
            ("{{ env_var('A') ~ env_var('B') }}", None),
            ("{{ env_var('A') }}{{ env_var('B') }}", None),
            ("{{ env_var('A') | upper }}", None),
            ("{{ env_var('A', var('b')) }}", None),
            ("{{ env_var('1A') }}", None),
            ("{{ env_var('') }}", None),
            ("{{ env_var('A\": x') }}", None),
            ("{{ env_var(é) }}", None),
            ("hunter2", None),
        ];
        for (text, expected) in cases {
            assert_eq!(variable(text).as_deref(), expected, "{text}");
        }
        assert_eq!(
            variable(&format!("{{{{ env_var('{}') }}}}", "A".repeat(101))),
            None
        );
    }
}
