//! The rules about tool calls: those of the user's settings, and those of the project, which can only restrict.

use std::path::Path;

use super::exit::{CliError, Exit};
use ingestdeck_core::{
    config::{Config, Setting, SettingValue, file},
    units::call_policy::{CallPolicy, PolicyRule},
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Most rules of a project.
const MAX_PROJECT_RULES: usize = 100;

/// The file of a project, below its directory.
pub(super) const PROJECT_FILE: &str = "ingestdeck.toml";

/// Reads the rules for a run in `directory`.
///
/// # Errors
/// If a rule is invalid, or the project's file cannot be read: without its rules, nothing may run.
pub(crate) fn call_policy(config: &Config, directory: &Path) -> Result<CallPolicy, CliError> {
    let of_user = |setting: &Setting<Vec<String>>, key: &str| {
        parse_rules(&setting.value, key, &setting.origin)
    };
    let mut policy = CallPolicy {
        deny: of_user(&config.policy.deny, "deny")?,
        hold: of_user(&config.policy.hold, "hold")?,
        allow: of_user(&config.policy.allow, "allow")?,
        ..CallPolicy::default()
    };
    add_project_rules(directory, &mut policy)?;
    Ok(policy)
}

/// Checks the file with the rules of the project in `directory`.
///
/// # Errors
/// If it cannot be read or a rule is invalid.
pub(super) fn check_project_rules(directory: &Path) -> Result<(), CliError> {
    add_project_rules(directory, &mut CallPolicy::default())
}

fn add_project_rules(directory: &Path, policy: &mut CallPolicy) -> Result<(), CliError> {
    let Some(bytes) = read_project_file(directory)? else {
        return Ok(());
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| CliError::usage(format!("{PROJECT_FILE} is not UTF-8 text")))?;
    let place = Path::new(PROJECT_FILE);
    let content =
        file::parse(place, &text).map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    for entry in content.entries {
        let rules = match entry.key.as_str() {
            "policy.deny" => &mut policy.deny,
            "policy.hold" => &mut policy.hold,
            key => {
                return Err(CliError::usage(format!(
                    "{PROJECT_FILE}:{}: {key} cannot be set by a project",
                    entry.line
                ))
                .with_help("a project can set policy.deny and policy.hold; use your own settings for the rest"));
            }
        };
        let SettingValue::List(texts) = &entry.value else {
            let message = format!(
                "{PROJECT_FILE}:{}: {} must be a list of texts",
                entry.line, entry.key
            );
            return Err(CliError::usage(message));
        };
        let key = entry.key.trim_start_matches("policy.");
        if texts.len() > MAX_PROJECT_RULES {
            let message = format!(
                "{PROJECT_FILE}:{}: more than {MAX_PROJECT_RULES} rules",
                entry.line
            );
            return Err(CliError::usage(message));
        }
        rules.extend(parse_rules(
            texts,
            key,
            &format!("{PROJECT_FILE}:{}", entry.line),
        )?);
    }
    if let Some(warning) = content.warnings.first() {
        // A misspelled section would silently drop its rules.
        return Err(CliError::usage(
            ingestdeck_core::diagnostic::Diagnostic::to_line(warning),
        ));
    }
    Ok(())
}

/// The file with the rules of the project in `directory`; `None` if it has none.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read_project_file(directory: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let read = ScopedDir::open(directory)
        .and_then(|dir| dir.read_if_exists(PROJECT_FILE, file::MAX_BYTES));
    read.map_err(|error| {
        CliError::usage(format!("cannot read {PROJECT_FILE} of the project"))
            .with_cause(error)
            .with_help("its rules restrict tool calls, so nothing runs without them; correct or remove the file")
    })
}

fn parse_rules(
    texts: &[String],
    key: &str,
    place: &impl std::fmt::Display,
) -> Result<Vec<PolicyRule>, CliError> {
    let parse = |text: &String| {
        text.parse().map_err(|error| {
            CliError::usage(format!("{place}: invalid rule in policy.{key}: {error}"))
                .with_help("write a rule as `TOOL [path:PATTERN] [cost:USD] [arg:REGEX]`; see the guide page policy")
        })
    };
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ingestdeck_core::config::ConfigLayers;

    fn policy_of(user: &[&str], project: Option<&str>) -> Result<CallPolicy, String> {
        let rules = SettingValue::List(user.iter().copied().map(str::to_owned).collect());
        let config = ConfigLayers::new()
            .flag("--test", "policy.hold", rules)
            .unwrap()
            .finish();
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = project {
            fs::write(dir.path().join(PROJECT_FILE), text).unwrap();
        }
        call_policy(&config, dir.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn project_adds_denials_and_holds() {
        let policy = policy_of(
            &["bash"],
            Some("[policy]\ndeny = [\"write_* path:/etc/**\"]\nhold = [\"grep\"]\n"),
        );
        let policy = policy.unwrap();
        let texts =
            |rules: &[PolicyRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&policy.deny), ["write_* path:/etc/**"]);
        assert_eq!(texts(&policy.hold), ["bash", "grep"]);
        assert_eq!(policy_of(&[], None), Ok(CallPolicy::default()));
    }

    #[test]
    fn project_file_that_is_not_understood_stops_the_run() {
        for (text, part) in [
            (
                "[policy]\nallow = [\"bash\"]\n",
                "policy.allow cannot be set by a project",
            ),
            (
                "[claude]\ndangerously_skip_permissions = true\n",
                "cannot be set by a project",
            ),
            (
                "[policy]\ndeny = \"bash\"\n",
                "policy.deny must be a list of texts",
            ),
            (
                "[policy]\ndeny = [\"bash arg:(\"]\n",
                "invalid rule in policy.deny",
            ),
            ("[polcy]\ndeny = [\"bash\"]\n", "unknown section"),
            ("[policy\n", "not valid TOML"),
        ] {
            let error = policy_of(&[], Some(text)).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(
            policy_of(&["bash --all"], None)
                .unwrap_err()
                .contains("unknown term `--all`")
        );
    }

    #[test]
    fn project_file_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(PROJECT_FILE)).unwrap();
        assert!(call_policy(&ConfigLayers::new().finish(), dir.path()).is_err());
    }
}
