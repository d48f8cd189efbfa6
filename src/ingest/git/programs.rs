//! Programs that a git configuration names, and the settings that keep git from running them.
//!
//! Pure: turns the output of one `git config` call into settings of higher precedence. It must not know where they are
//! used.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    os::unix::ffi::OsStringExt as _,
    path::PathBuf,
};

/// Lists the whole configuration: scope and key of every entry, and its value if it has one.
pub(super) const LIST_CONFIG_ARGS: &[&str] = &["config", "--null", "--show-scope", "--list"];

/// Most settings that are overridden, and most bytes of their keys. They are passed in the environment, which the
/// system limits. Real repositories need far fewer.
const MAX_OVERRIDES: usize = 1_000;
const MAX_OVERRIDE_BYTES: usize = 64 * 1024;

/// A setting that is passed in the same way as those that disable programs. If git does not list it, the overrides have
/// no effect. Its value does not matter.
const PROBE: (&str, &str) = ("ingestdeck.override", "arrives");

/// A setting that makes git read a file of the repository's choice, and block on it if it is a named pipe.
const EXCLUDES_FILE: &[u8] = b"core.excludesfile";

/// A section whose subsections name programs, the variables that contain them, and the values that disable them.
type ProgramSection = (
    &'static str,
    ProgramKind,
    &'static [(&'static str, &'static str)],
);

const PROGRAM_SECTIONS: &[ProgramSection] = &[
    (
        "filter",
        ProgramKind::Filter,
        &[
            ("clean", ""),
            ("smudge", ""),
            ("process", ""),
            ("required", "false"),
        ],
    ),
    (
        "diff",
        ProgramKind::DiffDriver,
        &[("command", ""), ("textconv", "")],
    ),
    ("merge", ProgramKind::MergeDriver, &[("driver", "")]),
];

/// Settings whose value is a program: the key as git lists it, and the usual spelling. Signing and external diffs are disabled
/// for every call, and fetching for all but those that use the network, where only programs of the user and the machine are
/// configured. So git starts none of these programs of a repository. Editors and pagers are not listed: git starts them only
/// for a terminal or to edit a message, and no call has either.
const PROGRAM_SETTINGS: &[(&str, &str)] = &[
    ("core.askpass", "core.askPass"),
    (FSMONITOR, FSMONITOR),
    ("core.gitproxy", "core.gitProxy"),
    ("core.sshcommand", "core.sshCommand"),
    ("credential.helper", "credential.helper"),
    ("diff.external", "diff.external"),
    ("gpg.openpgp.program", "gpg.openpgp.program"),
    ("gpg.program", "gpg.program"),
    ("gpg.ssh.defaultkeycommand", "gpg.ssh.defaultKeyCommand"),
    ("gpg.ssh.program", "gpg.ssh.program"),
    ("gpg.x509.program", "gpg.x509.program"),
];

/// Names a program that reports changed files, or turns git's own monitor on or off.
const FSMONITOR: &str = "core.fsmonitor";

/// The setting with the directory of hooks that replaces `.git/hooks`.
const HOOKS_PATH: &[u8] = b"core.hookspath";

/// Purpose of a configured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramKind {
    /// Converts files on their way into the repository and out of it.
    Filter,
    /// Shows differences of files with an attribute.
    DiffDriver,
    /// Merges files with an attribute.
    MergeDriver,
    /// Runs on an event.
    Hook,
    /// All hooks of a directory.
    HooksDirectory,
    /// The value of a setting.
    Setting,
}

/// A program that the repository configures and that calls disable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisabledProgram {
    pub kind: ProgramKind,
    /// Name of the program in the configuration, or the directory or the setting, escaped.
    pub name: String,
}

impl DisabledProgram {
    pub(crate) fn new(kind: ProgramKind, name: &[u8]) -> Self {
        Self {
            kind,
            name: String::from_utf8_lossy(name).escape_debug().to_string(),
        }
    }
}

impl fmt::Display for DisabledProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ProgramKind::Filter => "filter",
            ProgramKind::DiffDriver => "diff driver",
            ProgramKind::MergeDriver => "merge driver",
            ProgramKind::Hook => "hook",
            ProgramKind::HooksDirectory => {
                return write!(f, "hooks in `{}` (core.hooksPath)", self.name);
            }
            ProgramKind::Setting => return f.write_str(&self.name),
        };
        write!(f, "{kind} `{}`", self.name)
    }
}

/// Programs of a configuration, and the settings that disable them.
#[derive(Debug, Default)]
pub(super) struct ConfiguredPrograms {
    /// Settings that disable every program of every configuration. Keys need not be UTF-8.
    pub(super) overrides: BTreeMap<OsString, OsString>,
    /// The programs that the repository itself configures.
    pub(super) repository_programs: BTreeSet<DisabledProgram>,
    /// True if a configuration names a directory of hooks, so that git ignores `.git/hooks`.
    pub(super) replaces_hooks: bool,
}

/// Why the programs of a configuration cannot be disabled.
#[derive(Debug)]
pub(super) enum DisableError {
    TooManyPrograms,
    /// git does not read the overrides.
    OverridesIgnored,
}

impl ConfiguredPrograms {
    /// Overrides nothing, but detects whether git reads overrides.
    pub(super) fn probe() -> Self {
        Self {
            overrides: [(PROBE.0.into(), PROBE.1.into())].into(),
            ..Self::default()
        }
    }

    /// Parses the output of [`LIST_CONFIG_ARGS`], called with the overrides of [`probe`](Self::probe).
    pub(super) fn parse(listed: &[u8]) -> Result<Self, DisableError> {
        let (mut programs, mut bytes, mut arrived) = (Self::default(), 0, false);
        let (mut own_excludes, mut has_excludes) = (None, false);
        let mut fields = listed.split(|byte| *byte == 0);
        while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
            let end = entry
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(entry.len());
            let (key, value) = entry.split_at(end);
            let value = value.get(1..);
            programs.replaces_hooks |= key == HOOKS_PATH;
            let is_of_repository = matches!(scope, b"local" | b"worktree");
            arrived |= scope == b"command" && key == PROBE.0.as_bytes();
            if key == EXCLUDES_FILE {
                has_excludes |= is_of_repository;
                own_excludes = if is_of_repository {
                    own_excludes
                } else {
                    value
                };
            }
            let disabled = match SubsectionKey::parse(key) {
                Some(key) => key.disable(&mut programs.overrides, &mut bytes),
                None => None,
            };
            let disabled = disabled.or_else(|| disabled_setting(key, value));
            programs
                .repository_programs
                .extend(disabled.filter(|_| is_of_repository));
            if programs.overrides.len() > MAX_OVERRIDES || bytes > MAX_OVERRIDE_BYTES {
                return Err(DisableError::TooManyPrograms);
            }
        }
        if has_excludes {
            let own =
                own_excludes.map_or_else(default_excludes, |own| OsString::from_vec(own.to_vec()));
            programs
                .overrides
                .insert(OsString::from_vec(EXCLUDES_FILE.to_vec()), own);
        }
        if arrived {
            Ok(programs)
        } else {
            Err(DisableError::OverridesIgnored)
        }
    }
}

/// A key with a subsection.
struct SubsectionKey<'a> {
    section: &'a [u8],
    subsection: &'a [u8],
    variable: &'a [u8],
}

impl<'a> SubsectionKey<'a> {
    fn parse(key: &'a [u8]) -> Option<Self> {
        let first = key.iter().position(|byte| *byte == b'.')?;
        let last = key
            .iter()
            .rposition(|byte| *byte == b'.')
            .filter(|last| *last > first)?;
        Some(Self {
            section: &key[..first],
            subsection: &key[first + 1..last],
            variable: &key[last + 1..],
        })
    }

    /// Adds the override that disables the program of this key, if the key names a program.
    fn disable(
        &self,
        overrides: &mut BTreeMap<OsString, OsString>,
        bytes: &mut usize,
    ) -> Option<DisabledProgram> {
        let (kind, variable, value) = if self.section == b"hook" {
            // The other variables of the hook do not matter: a hook that is not enabled does not run.
            (ProgramKind::Hook, &b"enabled"[..], "false")
        } else {
            let (_, kind, variables) = PROGRAM_SECTIONS
                .iter()
                .find(|(section, ..)| section.as_bytes() == self.section)?;
            let (_, value) = variables
                .iter()
                .find(|(variable, _)| variable.as_bytes() == self.variable)?;
            (*kind, self.variable, *value)
        };
        let key = [self.section, self.subsection, variable].join(&b'.');
        let length = key.len();
        if overrides
            .insert(OsString::from_vec(key), value.into())
            .is_none()
        {
            *bytes += length;
        }
        Some(DisabledProgram::new(kind, self.subsection))
    }
}

/// The program of a setting; `None` for other settings and for a setting without a value.
fn disabled_setting(key: &[u8], value: Option<&[u8]>) -> Option<DisabledProgram> {
    let value = value.filter(|value| !value.is_empty())?;
    if key == HOOKS_PATH {
        return Some(DisabledProgram::new(ProgramKind::HooksDirectory, value));
    }
    let (_, name) = PROGRAM_SETTINGS
        .iter()
        .find(|(listed, _)| listed.as_bytes() == key)?;
    let is_program = *name != FSMONITOR || !is_boolean(value);
    is_program.then(|| DisabledProgram::new(ProgramKind::Setting, name.as_bytes()))
}

/// Whether git parses a value as a boolean: a word, or a number with an optional unit.
fn is_boolean(value: &[u8]) -> bool {
    let is_word = [&b"true"[..], b"yes", b"on", b"false", b"no", b"off"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    let digits = [&b"k"[..], b"m", b"g"]
        .iter()
        .find_map(|unit| value.strip_suffix(*unit))
        .unwrap_or(value);
    let digits = digits.strip_prefix(b"-").unwrap_or(digits);
    is_word || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// git's default for the excludes file. Empty if the user has no home, so that git reads none.
fn default_excludes() -> OsString {
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
    config
        .map(|config| config.join("git/ignore").into_os_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    /// The output of git for `entries`, followed by the override from the environment.
    fn listed(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let bytes =
            |(scope, entry): &(&str, &[u8])| [scope.as_bytes(), b"\0", entry, b"\0"].concat();
        entries
            .iter()
            .chain(&[("command", &b"ingestdeck.override\narrives"[..])])
            .flat_map(bytes)
            .collect()
    }

    #[test]
    fn only_keys_of_programs_are_overridden() {
        let keys = [
            "filter.lfs.clean",
            "diff.a.b.textconv",
            "merge.x.driver",
            "filter.x=y.process",
            "filter.x.required",
        ];
        for key in keys {
            let programs =
                ConfiguredPrograms::parse(&listed(&[("global", format!("{key}\nv").as_bytes())]))
                    .unwrap();
            assert_eq!(programs.overrides.keys().collect::<Vec<_>>(), [key]);
            assert!(
                programs.repository_programs.is_empty(),
                "{key} is the user's own"
            );
        }
        for key in [
            "diff.external",
            "merge.tool",
            "filter.clean",
            "core.editor",
            "merge.x.name",
            "hook.jobs",
            "x",
            "",
        ] {
            assert!(
                ConfiguredPrograms::parse(&listed(&[("local", key.as_bytes())]))
                    .unwrap()
                    .overrides
                    .is_empty(),
                "{key}"
            );
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_overridden_as_they_are() {
        let programs =
            ConfiguredPrograms::parse(&listed(&[("local", b"filter.e\xff.clean\ntouch x")]))
                .unwrap();
        assert_eq!(
            programs.overrides.keys().next().unwrap().as_bytes(),
            b"filter.e\xff.clean"
        );
        let shown: Vec<String> = programs
            .repository_programs
            .iter()
            .map(ToString::to_string)
            .collect();
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
        let programs = ConfiguredPrograms::parse(&listed(&entries)).unwrap();
        let overrides: Vec<_> = programs
            .overrides
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            overrides,
            [
                (&b"hook.\x1b[2j.enabled"[..], "false"),
                (b"hook.a.b.enabled", "false")
            ]
        );
        assert_eq!(
            programs.repository_programs,
            [DisabledProgram::new(ProgramKind::Hook, b"a.b")].into()
        );
    }

    fn shown(entries: &[(&str, &[u8])]) -> Vec<String> {
        ConfiguredPrograms::parse(&listed(entries))
            .unwrap()
            .repository_programs
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn fsmonitor_is_listed_only_if_it_names_a_program() {
        assert_eq!(
            shown(&[("local", b"core.fsmonitor\n/bin/trap")]),
            ["core.fsmonitor"]
        );
        for switch in [
            "", "\n", "\ntrue", "\nYes", "\non", "\n1", "\nfalse", "\nOff", "\nno", "\n0", "\n-1",
            "\n2k",
        ] {
            let entry = format!("core.fsmonitor{switch}");
            assert_eq!(shown(&[("local", entry.as_bytes())]), [""; 0], "{entry:?}");
        }
    }

    #[test]
    fn settings_that_name_programs_are_listed() {
        for (key, name) in PROGRAM_SETTINGS {
            let entry = format!("{key}\n/bin/x");
            assert_eq!(shown(&[("local", entry.as_bytes())]), [*name]);
            assert_eq!(
                shown(&[("global", entry.as_bytes())]),
                [""; 0],
                "{key} is the user's own"
            );
            assert_eq!(
                shown(&[("local", format!("{key}\n").as_bytes())]),
                [""; 0],
                "{key} is unset"
            );
        }
        for key in ["core.pager", "core.editor", "sequence.editor", "pager.log"] {
            assert_eq!(
                shown(&[("local", format!("{key}\n/bin/x").as_bytes())]),
                [""; 0],
                "{key}"
            );
        }
    }

    #[test]
    fn hooks_path_is_listed_and_replaces_hooks() {
        let programs =
            ConfiguredPrograms::parse(&listed(&[("local", b"core.hookspath\n.husky/\x1b")]))
                .unwrap();
        let shown: Vec<String> = programs
            .repository_programs
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(shown, ["hooks in `.husky/\\u{1b}` (core.hooksPath)"]);
        assert!(programs.replaces_hooks);
        let of_user =
            ConfiguredPrograms::parse(&listed(&[("global", b"core.hookspath\n/x")])).unwrap();
        assert!(of_user.repository_programs.is_empty() && of_user.replaces_hooks);
    }

    #[test]
    fn too_many_programs_are_refused() {
        let section = |n: usize| listed(&[("local", format!("filter.{n}.clean\nx").as_bytes())]);
        let many: Vec<u8> = (0..=MAX_OVERRIDES).flat_map(section).collect();
        assert!(ConfiguredPrograms::parse(&many).is_err());
        let long = format!("filter.{}.clean\nx", "n".repeat(MAX_OVERRIDE_BYTES));
        assert!(ConfiguredPrograms::parse(&listed(&[("local", long.as_bytes())])).is_err());
        // Repetitions of the same key count once.
        assert_eq!(
            ConfiguredPrograms::parse(&section(1).repeat(2 * MAX_OVERRIDES))
                .unwrap()
                .overrides
                .len(),
            1
        );
    }

    #[test]
    fn ignored_overrides_are_rejected() {
        for entries in [
            &b""[..],
            b"local\0ingestdeck.override\narrives\0",
            b"global\0ingestdeck.override\narrives\0",
        ] {
            assert!(matches!(
                ConfiguredPrograms::parse(entries),
                Err(DisableError::OverridesIgnored)
            ));
        }
        assert!(ConfiguredPrograms::parse(&listed(&[])).is_ok());
    }

    #[test]
    fn repository_excludes_file_is_overridden() {
        let of = |entries: &[(&str, &[u8])]| {
            ConfiguredPrograms::parse(&listed(entries))
                .unwrap()
                .overrides
                .into_values()
                .next()
        };
        let local: (&str, &[u8]) = ("local", b"core.excludesfile\n/pipe");
        assert_eq!(
            of(&[("global", b"core.excludesfile\n~/mine")]),
            None,
            "nothing to override"
        );
        assert_eq!(
            of(&[("global", b"core.excludesfile\n~/mine"), local]),
            Some("~/mine".into())
        );
        assert_eq!(of(&[local]), Some(default_excludes()));
        assert_eq!(
            of(&[("worktree", b"core.excludesfile\nx")]),
            Some(default_excludes())
        );
    }
}
