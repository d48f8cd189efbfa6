//! The settings in force, and the screen's options that follow from them.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    config::{Config, Layers, Notify, Origin, Setting, Value, Vars, When, paths::UserDirs},
    tui,
};

use super::{
    args::{Color, Global},
    exit::{Exit, Failure},
    output, project, show,
};

/// Reads every layer and says what was ignored.
///
/// # Errors
/// When a layer cannot be read or holds something that does not fit.
pub fn load(global: &Global) -> Result<Config, Failure> {
    let config = layers(global)?.finish();
    project::warn(&config.warnings);
    // A theme or a key that does not exist is as wrong where there is no screen: the next command may have one.
    screen(global, &config)?;
    Ok(config)
}

/// Paths outside a project that the user allows its connections to read.
#[derive(Debug, Default)]
pub struct AllowedPaths {
    /// The paths.
    pub allowed: Vec<PathBuf>,
    /// The user's settings file, with `~` for the home directory; empty if there is no place for one.
    pub file: String,
    /// Entries without effect, one sentence each.
    pub warnings: Vec<String>,
}

/// Paths outside a project that the user allows its connections to read.
///
/// # Errors
/// When a layer cannot be read or holds something that does not fit.
pub fn allowed_paths(global: &Global) -> Result<AllowedPaths, Failure> {
    let setting = layers(global)?.finish().ingest.allow_paths;
    let home = std::env::var("HOME").ok();
    let allowed: Vec<PathBuf> = setting.iter().map(|path| theme_path(path, &setting.origin, home.clone())).collect();
    let warnings = allowed.iter().filter_map(|path| without_effect(path)).map(|why| {
        format!("{why}, so ingest.allow_paths allows nothing there; correct or remove it ({})", setting.origin)
    });
    let file = settings_file(global, &UserDirs::from_environment());
    let file = file.map(|file| shortened(&file, home.as_deref())).unwrap_or_default();
    Ok(AllowedPaths { warnings: warnings.collect(), allowed, file })
}

fn without_effect(path: &Path) -> Option<String> {
    let what = match path.symlink_metadata() {
        _ if !path.is_absolute() => "is not an absolute path",
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            "does not exist"
        }
        _ => return None,
    };
    Some(format!("`{}` {what}", path.display().to_string().escape_debug()))
}

/// The file of the user's settings, whether or not it exists.
fn settings_file(global: &Global, dirs: &UserDirs) -> Option<PathBuf> {
    let given = global.config.as_ref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    given.or_else(|| dirs.config_file())
}

/// `path` with `~` for the home directory.
fn shortened(path: &Path, home: Option<&str>) -> String {
    let below = home.filter(|home| home.len() > 1).and_then(|home| path.strip_prefix(home).ok());
    below.map_or_else(|| path.display().to_string(), |below| format!("~/{}", below.display()))
}

fn layers(global: &Global) -> Result<Layers, Failure> {
    let wrong = |error: crate::config::ConfigError| Failure::usage(error.to_string());
    let vars: Vars = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    let file = global.config.clone().or_else(|| UserDirs::from_vars(&vars).config_file());
    let mut layers = Layers::new();
    if let Some(file) = file {
        layers = layers.user_file(&file, global.config.is_some()).map_err(wrong)?;
    }
    layers = layers.environment(&vars).map_err(wrong)?;
    if global.ascii {
        layers = layers.flag("--ascii", "ui.ascii", Value::Switch(true)).map_err(wrong)?;
    }
    if global.no_mouse {
        layers = layers.flag("--no-mouse", "ui.mouse", Value::Switch(false)).map_err(wrong)?;
    }
    Ok(layers)
}

/// How the screen looks.
///
/// # Errors
/// When the theme or a key binding does not exist.
pub fn screen(global: &Global, config: &Config) -> Result<tui::Options, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let choice = match global.color {
        Color::Auto => tui::ColorChoice::Auto,
        Color::Always => tui::ColorChoice::Always,
        Color::Never => tui::ColorChoice::Never,
    };
    let ascii = *config.ui.ascii || tui::theme::wants_ascii(variable);
    let theme = theme(&config.ui.theme, choice.resolve(variable), ascii, variable)?;
    let overrides: tui::Overrides =
        config.chords().into_iter().map(|(action, chords)| (action, tui::keymap::Chords::Many(chords))).collect();
    let keymap = tui::Keymap::new(&overrides).map_err(|errors| {
        let sentences: Vec<String> = errors.iter().map(|error| placed(config, error)).collect();
        Failure::usage(sentences.join("; "))
    })?;
    Ok(tui::Options {
        can_hold: false,
        told: Vec::new(),
        zone: jiff::tz::TimeZone::system(),
        theme,
        keymap,
        manners: manners(config, variable)?,
        fps: *config.ui.fps,
        paused: false,
        speed: None,
        until: None,
    })
}

/// A sentence about keys, headed by the lines of the settings that it is about.
fn placed(config: &Config, error: &tui::KeymapError) -> String {
    let places = error.actions().into_iter().filter_map(|action| config.keys.get(action));
    let places: Vec<String> = places.map(|setting| setting.origin.to_string()).collect();
    if places.is_empty() { error.to_string() } else { format!("{error} ({})", places.join(", ")) }
}

/// Most bytes of a theme file.
const THEME_BYTES: u64 = 64 * 1024;

/// A theme by its name, or from the file that is named by its path.
fn theme(
    set: &Setting<String>,
    color: tui::ColorLevel,
    ascii: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<tui::Theme, Failure> {
    let wrong = |why: String| Failure::usage(format!("{why} (ui.theme, {})", set.origin));
    let name = theme_name(set, &variable);
    if !name.contains('/') && !name.ends_with(".toml") {
        return tui::Theme::new(name, color, ascii).map_err(|error| wrong(error.to_string()));
    }
    let path = theme_path(name, &set.origin, variable("HOME"));
    let unreadable = |cause: String| wrong(format!("cannot read the theme {}: {cause}", path.display()));
    let file = std::fs::File::open(&path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(THEME_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if read as u64 > THEME_BYTES {
        return Err(unreadable(format!("it is larger than {THEME_BYTES} bytes")));
    }
    tui::Theme::parse(name, &text, color, ascii).map_err(|error| wrong(error.to_string()))
}

/// `~/` is the home directory; other relative paths of a settings file start beside it.
fn theme_path(name: &str, origin: &Origin, home: Option<String>) -> PathBuf {
    match (name.strip_prefix("~/"), home, origin) {
        (Some(rest), Some(home), _) => Path::new(&home).join(rest),
        (_, _, Origin::User { path, .. }) => path.parent().unwrap_or(Path::new("")).join(name),
        _ => PathBuf::from(name),
    }
}

fn manners(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Result<tui::Manners, Failure> {
    let ui = &config.ui;
    let notify = match *ui.notify {
        Notify::Off => tui::Notify::Off,
        Notify::Bell => tui::Notify::Bell,
        Notify::Osc9 => tui::Notify::Osc9,
        Notify::Osc777 => tui::Notify::Osc777,
        Notify::Command if ui.notify_command.is_empty() => {
            let place = &ui.notify.origin;
            return Err(Failure::usage(format!(
                "ui.notify is \"command\" ({place}), but no command is set; name a program in ui.notify_command"
            )));
        }
        Notify::Command => tui::Notify::Command(ui.notify_command.value.clone()),
    };
    let progress = match *ui.progress {
        When::Auto => tui::terminal::draws_progress(&variable),
        When::Always => true,
        When::Never => false,
    };
    let tmux = variable("TMUX").is_some_and(|value| !value.is_empty());
    Ok(tui::Manners { mouse: *ui.mouse, notify, progress, tmux, programs: tui::Programs::of(variable) })
}

/// `auto` follows the background that some terminals announce as `foreground;background` colour numbers.
fn theme_name(set: &str, variable: impl Fn(&str) -> Option<String>) -> &str {
    let is_light = || {
        let colors = variable("COLORFGBG").unwrap_or_default();
        matches!(colors.rsplit(';').next(), Some("7" | "15"))
    };
    match set {
        "auto" if is_light() => "light",
        "auto" => "dark",
        named => named,
    }
}

/// `config show`: every value with its origin, and what is in force of the project, if there is one.
///
/// # Errors
/// When the settings cannot be read.
pub fn show(global: &Global) -> Result<Exit, Failure> {
    use std::io::Write as _;
    let config = load(global)?;
    let mut out = output::stdout();
    let project = project::find(global)?;
    for line in config.lines().into_iter().chain(project.iter().flat_map(project::lines)) {
        writeln!(out, "{line}").map_err(|error| show::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}
