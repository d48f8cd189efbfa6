//! Programs that a git configuration names, and the settings that keep git from running them.
//!
//! Pure: from the answer of one `git config` call to settings of higher precedence. It must not know where they are
//! used.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    os::unix::ffi::OsStringExt as _,
};

/// Lists the whole configuration: scope and key of every entry, and its value unless it has none.
pub(super) const LIST: &[&str] = &["config", "--null", "--show-scope", "--list"];

/// Most settings that are overridden, and most bytes of their keys. They are passed to git in its environment, which the
/// system bounds, and no repository needs as many.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 64 * 1024;

/// A section whose subsections name programs, the variables that do, and what to set them to.
type Section = (&'static str, ProgramKind, &'static [(&'static str, &'static str)]);

const SECTIONS: &[Section] = &[
    ("filter", ProgramKind::Filter, &[("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]),
    ("diff", ProgramKind::DiffDriver, &[("command", ""), ("textconv", "")]),
    ("merge", ProgramKind::MergeDriver, &[("driver", "")]),
];

/// What a program of a configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramKind {
    /// Converts files on their way into the repository and out of it.
    Filter,
    /// Shows differences of some files.
    DiffDriver,
    /// Merges some files.
    MergeDriver,
    /// Runs at some events.
    Hook,
    /// Reports changed files.
    FsMonitor,
}

/// A program that a repository would have git run, and that is not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisabledProgram {
    pub kind: ProgramKind,
    /// Its name in the configuration, escaped. Empty where there can be one only.
    pub name: String,
}

impl DisabledProgram {
    pub(in crate::ingest) fn new(kind: ProgramKind, name: &[u8]) -> Self {
        Self { kind, name: String::from_utf8_lossy(name).escape_debug().to_string() }
    }
}

impl fmt::Display for DisabledProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ProgramKind::Filter => "filter",
            ProgramKind::DiffDriver => "diff driver",
            ProgramKind::MergeDriver => "merge driver",
            ProgramKind::Hook => "hook",
            ProgramKind::FsMonitor => return f.write_str("core.fsmonitor"),
        };
        write!(f, "{kind} `{}`", self.name)
    }
}

/// What a configuration names, and what to answer it with.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Settings that disable every program of every configuration. Keys need not be UTF-8.
    pub(super) overrides: BTreeMap<OsString, &'static str>,
    /// The programs that the repository itself configures.
    pub(super) of_repository: BTreeSet<DisabledProgram>,
}

/// More programs than can be disabled.
#[derive(Debug)]
pub(super) struct TooMany;

impl Programs {
    /// Reads the answer to [`LIST`].
    pub(super) fn parse(listed: &[u8]) -> Result<Self, TooMany> {
        let (mut programs, mut bytes) = (Self::default(), 0);
        let mut fields = listed.split(|byte| *byte == 0);
        while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
            let end = entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len());
            let (key, value) = entry.split_at(end);
            let is_of_repository = matches!(scope, b"local" | b"worktree");
            let disabled = match Key::parse(key) {
                Some(key) => key.disable(&mut programs.overrides, &mut bytes),
                None if key == b"core.fsmonitor" && !is_false(value.get(1..)) => {
                    Some(DisabledProgram::new(ProgramKind::FsMonitor, b""))
                }
                None => None,
            };
            programs.of_repository.extend(disabled.filter(|_| is_of_repository));
            if programs.overrides.len() > MOST || bytes > MOST_BYTES {
                return Err(TooMany);
            }
        }
        Ok(programs)
    }
}

/// A key with a subsection.
struct Key<'a> {
    section: &'a [u8],
    subsection: &'a [u8],
    variable: &'a [u8],
}

impl<'a> Key<'a> {
    fn parse(key: &'a [u8]) -> Option<Self> {
        let first = key.iter().position(|byte| *byte == b'.')?;
        let last = key.iter().rposition(|byte| *byte == b'.').filter(|last| *last > first)?;
        Some(Self { section: &key[..first], subsection: &key[first + 1..last], variable: &key[last + 1..] })
    }

    /// Adds what disables the program that the key is about, if it is about one.
    fn disable(&self, overrides: &mut BTreeMap<OsString, &'static str>, bytes: &mut usize) -> Option<DisabledProgram> {
        let (kind, variable, value) = if self.section == b"hook" {
            // Whatever is said of it: one that is not enabled does not run.
            (ProgramKind::Hook, &b"enabled"[..], "false")
        } else {
            let (_, kind, variables) = SECTIONS.iter().find(|(section, ..)| section.as_bytes() == self.section)?;
            let (_, value) = variables.iter().find(|(variable, _)| variable.as_bytes() == self.variable)?;
            (*kind, self.variable, *value)
        };
        let key = [self.section, self.subsection, variable].join(&b'.');
        let length = key.len();
        if overrides.insert(OsString::from_vec(key), value).is_none() {
            *bytes += length;
        }
        Some(DisabledProgram::new(kind, self.subsection))
    }
}

/// Whether git reads a value as no. An entry without a value is a yes.
fn is_false(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| {
        value.is_empty() || [&b"false"[..], b"no", b"off", b"0"].iter().any(|no| value.eq_ignore_ascii_case(no))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn listed(entries: &[(&str, &[u8])]) -> Vec<u8> {
        entries.iter().flat_map(|(scope, entry)| [scope.as_bytes(), b"\0", entry, b"\0"].concat()).collect()
    }

    #[test]
    fn only_keys_of_programs_are_overridden() {
        let keys =
            ["filter.lfs.clean", "diff.a.b.textconv", "merge.x.driver", "filter.x=y.process", "filter.x.required"];
        for key in keys {
            let programs = Programs::parse(&listed(&[("global", format!("{key}\nv").as_bytes())])).unwrap();
            assert_eq!(programs.overrides.keys().collect::<Vec<_>>(), [key]);
            assert!(programs.of_repository.is_empty(), "{key} is the user's own");
        }
        for key in ["diff.external", "merge.tool", "filter.clean", "core.editor", "merge.x.name", "hook.jobs", "x", ""]
        {
            assert!(Programs::parse(&listed(&[("local", key.as_bytes())])).unwrap().overrides.is_empty(), "{key}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_overridden_as_they_are() {
        let programs = Programs::parse(&listed(&[("local", b"filter.e\xff.clean\ntouch x")])).unwrap();
        assert_eq!(programs.overrides.keys().next().unwrap().as_bytes(), b"filter.e\xff.clean");
        let shown: Vec<String> = programs.of_repository.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["filter `e\u{fffd}`"]);
    }

    #[test]
    fn hooks_of_a_configuration_are_disabled_by_name() {
        let entries: [(&str, &[u8]); 4] = [
            ("local", b"hook.a.b.event\npost-index-change"),
            ("local", b"hook.a.b.command\ntouch x"),
            ("system", b"hook.\x1b[2j.command\ntouch x"),
            ("local", b"hook.jobs\n4"),
        ];
        let programs = Programs::parse(&listed(&entries)).unwrap();
        let overrides: Vec<_> = programs.overrides.iter().map(|(key, value)| (key.as_bytes(), *value)).collect();
        assert_eq!(overrides, [(&b"hook.\x1b[2j.enabled"[..], "false"), (b"hook.a.b.enabled", "false")]);
        assert_eq!(programs.of_repository, [DisabledProgram::new(ProgramKind::Hook, b"a.b")].into());
    }

    #[test]
    fn a_monitor_that_is_off_is_not_listed() {
        let of = |entry: &[u8]| Programs::parse(&listed(&[("local", entry)])).unwrap().of_repository.len();
        assert_eq!((of(b"core.fsmonitor\n/bin/trap"), of(b"core.fsmonitor")), (1, 1));
        assert_eq!((of(b"core.fsmonitor\nfalse"), of(b"core.fsmonitor\n"), of(b"core.fsmonitor\nOff")), (0, 0, 0));
    }

    #[test]
    fn too_many_programs_are_refused() {
        let section = |n: usize| listed(&[("local", format!("filter.{n}.clean\nx").as_bytes())]);
        let many: Vec<u8> = (0..=MOST).flat_map(section).collect();
        assert!(Programs::parse(&many).is_err());
        let long = format!("filter.{}.clean\nx", "n".repeat(MOST_BYTES));
        assert!(Programs::parse(&listed(&[("local", long.as_bytes())])).is_err());
        // The same one again and again is one.
        assert_eq!(Programs::parse(&section(1).repeat(2 * MOST)).unwrap().overrides.len(), 1);
    }
}
