//! `doctor --updates`: whether there is a newer release, and what installs it. Without the option, nothing is asked.

use std::{
    path::{Component, Path},
    process::{Command, Stdio},
};

use serde::Deserialize;

use super::{DoctorCheck, DoctorFinding};
use ingestdeck_core::text::printable;
use ingestdeck_os::{open_file_limit, program_path, scoped_dir::ScopedDir};

/// Most characters of a foreign text in a finding.
const MAX_SHOWN: usize = 200;

/// Arguments of curl before the address. Settings of the user's own curl must not change the request.
const CURL_ARGS: [&str; 13] = [
    "--disable",
    "--silent",
    "--show-error",
    "--fail",
    "--globoff",
    "--location",
    "--proto",
    "=https,http",
    "--max-time",
    "15",
    "--max-filesize",
    "4000000",
    "--",
];

/// A release, as GitHub's API describes it.
#[derive(Deserialize)]
struct PublishedRelease {
    tag_name: String,
}

/// Asks `url`, or GitHub, for the newest release. The answer has the form of GitHub's API.
pub(super) fn check_updates(url: Option<&str>) -> DoctorFinding {
    let published = || env!("CARGO_PKG_REPOSITORY").replace("github.com", "api.github.com/repos");
    let url = &url.map_or_else(|| format!("{}/releases/latest", published()), str::to_owned);
    let own = env!("CARGO_PKG_VERSION");
    match newest_release(url) {
        Ok(newest) if parts(&newest) > parts(own) => {
            let installer = std::env::current_exe()
                .ok()
                .and_then(|exe| upgrade_command(&exe));
            let remedy = installer.map_or_else(
                || "install it as you installed this one".to_owned(),
                |command| format!("`{command}` installs it"),
            );
            DoctorFinding::note(
                DoctorCheck::Updates,
                format!("ingestdeck {newest} is newer than this {own}: {remedy}"),
            )
        }
        Ok(newest) => DoctorFinding::ok(
            DoctorCheck::Updates,
            format!("no newer release than this {own}; the newest is {newest}"),
        ),
        Err(reason) => DoctorFinding::note(
            DoctorCheck::Updates,
            format!(
                "{} does not name a release: {reason}",
                printable(url, MAX_SHOWN)
            ),
        ),
    }
}

/// The version that `url` names.
///
/// # Errors
/// If it cannot be asked, or does not name a release: the reason.
fn newest_release(url: &str) -> Result<String, String> {
    let curl = program_path::find("curl").ok_or("curl is not installed; it sends the request")?;
    let mut command = Command::new(curl);
    open_file_limit::restore_limit_in(&mut command);
    let answer = command
        .args(CURL_ARGS)
        .arg(url)
        .env("PATH", program_path::search_path())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !answer.status.success() {
        return Err(printable(String::from_utf8_lossy(&answer.stderr).trim(), MAX_SHOWN).into());
    }
    let release: PublishedRelease = serde_json::from_slice(&answer.stdout)
        .map_err(|error| printable(&error.to_string(), MAX_SHOWN).into_owned())?;
    let version = release.tag_name.trim_start_matches('v').to_owned();
    match parts(&version) {
        Some(_) => Ok(printable(&version, MAX_SHOWN).into_owned()),
        None => Err(format!(
            "`{}` is not a version",
            printable(&release.tag_name, MAX_SHOWN)
        )),
    }
}

/// The numbers of a version; what follows a `-` or `+` does not count.
fn parts(version: &str) -> Option<[u64; 3]> {
    let numbers = version.split(['-', '+']).next()?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    let found = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(found)
}

/// The command of the package manager that installed the program at `exe`, if its place shows which one that is.
fn upgrade_command(exe: &Path) -> Option<&'static str> {
    let has = |folders: &[&str]| {
        let names: Vec<_> = exe.components().map(Component::as_os_str).collect();
        names.windows(folders.len()).any(|window| {
            window
                .iter()
                .zip(folders)
                .all(|(name, folder)| name == folder)
        })
    };
    let in_environment = || {
        let root = ScopedDir::open(exe.parent()?.parent()?).ok()?;
        Some(root.is_file("pyvenv.cfg"))
    };
    Some(match () {
        () if has(&["uv", "tools"]) => "uv tool upgrade ingestdeck",
        () if has(&["uv"]) && has(&["archive-v0"]) => "uvx ingestdeck@latest",
        () if has(&["pipx", "venvs"]) => "pipx upgrade ingestdeck",
        () if has(&["_npx"]) => "npx ingestdeck@latest",
        () if has(&["node_modules"]) => "npm install --global ingestdeck@latest",
        () if has(&["Cellar", "ingestdeck"]) => "brew upgrade ingestdeck",
        () if has(&[".cargo", "bin"]) => "cargo binstall ingestdeck",
        () if in_environment() == Some(true) => "pip install --upgrade ingestdeck",
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_the_program_names_what_installed_it() {
        for (exe, command) in [
            (
                "/h/.local/share/uv/tools/ingestdeck/bin/ingestdeck",
                Some("uv tool upgrade ingestdeck"),
            ),
            (
                "/h/.cache/uv/archive-v0/Xy1/bin/ingestdeck",
                Some("uvx ingestdeck@latest"),
            ),
            (
                "/h/.local/share/pipx/venvs/ingestdeck/bin/ingestdeck",
                Some("pipx upgrade ingestdeck"),
            ),
            (
                "/h/.local/pipx/venvs/ingestdeck/bin/ingestdeck",
                Some("pipx upgrade ingestdeck"),
            ),
            (
                "/h/.npm/_npx/ab12/node_modules/@ingestdeck/linux-x64/ingestdeck",
                Some("npx ingestdeck@latest"),
            ),
            (
                "/usr/lib/node_modules/ingestdeck/node_modules/ingestdeck-linux-x64/ingestdeck",
                Some("npm install --global ingestdeck@latest"),
            ),
            (
                "/opt/homebrew/Cellar/ingestdeck/0.1.0/bin/ingestdeck",
                Some("brew upgrade ingestdeck"),
            ),
            (
                "/h/.cargo/bin/ingestdeck",
                Some("cargo binstall ingestdeck"),
            ),
            ("/usr/local/bin/ingestdeck", None),
        ] {
            assert_eq!(upgrade_command(Path::new(exe)), command, "{exe}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(parts("0.10.0") > parts("0.9.9"));
        assert_eq!(parts("1.2.3-rc.1"), Some([1, 2, 3]));
        for text in ["", "1.2", "1.2.3.4", "latest", "1.2.x", "-1.0.0"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
