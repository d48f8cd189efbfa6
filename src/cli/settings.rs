//! The effective settings, and the options of the screen that follow from them.

#![expect(clippy::disallowed_methods, reason = "the user's settings and themes")]

use jiff::tz::TimeZone;
use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use ingestdeck_core::{
    config::{
        Config, ConfigLayers, EnvVars, NotifyMode, ProgressMode, Setting, SettingOrigin,
        SettingValue,
    },
    diagnostic::{Diagnostic, Problem},
    token_prices,
};
use ingestdeck_engine::notifier::NotificationTargets;
use ingestdeck_ingest::{self as ingest, WarehouseSettings, project::UserPermissions};
use ingestdeck_os::user_dirs::UserDirs;
use ingestdeck_tui as tui;

use super::{
    args::{Color, GlobalArgs},
    exit::{self, CliError, Exit},
    settings_file,
};

/// Reads every layer and prints warnings about ignored settings.
///
/// # Errors
/// If a layer cannot be read or has an invalid value.
pub(crate) fn load(global: &GlobalArgs) -> Result<Config, CliError> {
    let config = load_quietly(global)?;
    exit::print_warnings(&config.warnings);
    Ok(config)
}

/// As [`load`], without printing warnings.
///
/// # Errors
/// If a layer cannot be read or has an invalid value.
pub(crate) fn load_quietly(global: &GlobalArgs) -> Result<Config, CliError> {
    let config = load_layers(global)?.finish();
    // Invalid themes and keys are reported by every command, not only by those with a screen. Those that are built in are
    // valid, and a theme costs as much time as all arguments.
    if config.ui.theme.origin == SettingOrigin::Default && config.keys.is_empty() {
        terminal_options(&config, |name| std::env::var(name).ok())?;
    } else {
        screen_options_in(global, &config, TimeZone::UTC)?;
    }
    Ok(config)
}

/// What the user allows the connections of projects to read, and warnings about entries that have no effect.
///
/// # Errors
/// If a layer cannot be read or has an invalid value.
pub(crate) fn permissions(
    global: &GlobalArgs,
) -> Result<(UserPermissions, Vec<Problem>), CliError> {
    let Config {
        ingest, warehouse, ..
    } = load_layers(global)?.finish();
    let setting = ingest.allow_paths;
    let home = std::env::var("HOME").ok();
    let allowed: Vec<PathBuf> = setting
        .iter()
        .map(|path| resolve_user_path(path, &setting.origin, home.clone()))
        .collect();
    let drivers = warehouse.drivers.iter();
    let drivers = drivers
        .map(|path| resolve_user_path(path, &warehouse.drivers.origin, home.clone()))
        .collect();
    let warnings = allowed
        .iter()
        .filter_map(|path| ineffective_reason(path))
        .map(|why| {
            Problem::new(format!("{why}, so ingest.allow_paths allows nothing there"))
                .with_help(format!("correct or remove it ({})", setting.origin))
        });
    let file = settings_file(global, &UserDirs::from_environment());
    let file = file
        .map(|file| with_tilde(&file, home.as_deref()))
        .unwrap_or_default();
    let warnings = warnings.collect();
    let permissions = UserPermissions {
        paths: allowed,
        repositories: ingest.allow_git.value,
        warehouse: WarehouseSettings {
            allow: warehouse.allow.value,
            drivers,
            query_timeout: *warehouse.query_timeout,
            max_connections: *warehouse.max_connections,
            max_scan_age: *warehouse.max_scan_age,
        },
        settings_file: file,
    };
    Ok((permissions, warnings))
}

/// Makes the prices in the settings those of the program. Settings with errors have none; the commands that need settings
/// report the errors.
pub(super) fn install_prices(global: &GlobalArgs) {
    let prices = load_layers(global).map(|layers| layers.finish().claude.prices.value);
    token_prices::set_user_prices(&prices.unwrap_or_default());
}

/// The share of the context of a model that the raw files of a unit may fill, in percent.
///
/// # Errors
/// If a layer cannot be read or has an invalid value.
pub(crate) fn max_unit_share(global: &GlobalArgs) -> Result<u32, CliError> {
    Ok(*load_layers(global)?.finish().ingest.max_unit_share)
}

fn ineffective_reason(path: &Path) -> Option<String> {
    let what = match path.symlink_metadata() {
        _ if !path.is_absolute() => "is not an absolute path",
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            "does not exist"
        }
        _ => return None,
    };
    Some(format!(
        "`{}` {what}",
        path.display().to_string().escape_debug()
    ))
}

/// The path of the user's settings file, whether or not it exists.
fn settings_file(global: &GlobalArgs, dirs: &UserDirs) -> Option<PathBuf> {
    let given = global
        .config
        .as_ref()
        .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    given.or_else(|| dirs.config_file())
}

/// Returns `path` with `~` for the home directory.
fn with_tilde(path: &Path, home: Option<&str>) -> String {
    let below = home
        .filter(|home| home.len() > 1)
        .and_then(|home| path.strip_prefix(home).ok());
    below.map_or_else(
        || path.display().to_string(),
        |below| format!("~/{}", below.display()),
    )
}

fn load_layers(global: &GlobalArgs) -> Result<ConfigLayers, CliError> {
    let wrong =
        |error: ingestdeck_core::config::ConfigError| CliError::from_error(Exit::Usage, &error);
    let vars: EnvVars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect();
    let file = global
        .config
        .clone()
        .or_else(|| UserDirs::from_vars(&vars).config_file());
    let mut layers = ConfigLayers::new();
    if let Some(file) = file
        && let Some(text) = settings_file::read(&file, global.config.is_some()).map_err(wrong)?
    {
        layers = layers.user_file(&file, &text).map_err(wrong)?;
    }
    layers = layers.environment(&vars).map_err(wrong)?;
    if global.ascii {
        layers = layers
            .flag("--ascii", "ui.ascii", SettingValue::Bool(true))
            .map_err(wrong)?;
    }
    if global.no_mouse {
        layers = layers
            .flag("--no-mouse", "ui.mouse", SettingValue::Bool(false))
            .map_err(wrong)?;
    }
    Ok(layers)
}

/// Where notifications go while no screen is attached.
///
/// # Errors
/// If the address of the webhook is not one of HTTP.
pub(crate) fn notification_targets(config: &Config) -> Result<NotificationTargets, CliError> {
    let is_http = |url: &String| {
        ["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
    };
    if let Some(url) = config.notify.url.as_ref().filter(|url| !is_http(url)) {
        return Err(CliError::usage(format!(
            "invalid notify.url `{url}`; expected an address that begins with https://"
        ))
        .with_location(&config.notify.url.origin));
    }
    let command =
        (*config.ui.notify == NotifyMode::Command).then(|| config.ui.notify_command.value.clone());
    Ok(NotificationTargets {
        command: command.unwrap_or_default(),
        url: config.notify.url.value.clone(),
    })
}

/// The display options of the screen.
///
/// # Errors
/// If the theme does not exist or a key binding is invalid.
pub(crate) fn screen_options(
    global: &GlobalArgs,
    config: &Config,
) -> Result<tui::Options, CliError> {
    screen_options_in(global, config, local_zone())
}

/// The time zone of the user. Reading its file avoids a search through the whole time zone database.
fn local_zone() -> TimeZone {
    let file = std::env::var_os("TZ")
        .is_none()
        .then(|| std::fs::read("/etc/localtime").ok())
        .flatten();
    file.and_then(|data| TimeZone::tzif("Local", &data).ok())
        .unwrap_or_else(TimeZone::system)
}

/// The keys of the screen.
///
/// # Errors
/// If the settings of keys are invalid.
pub(crate) fn keymap(config: &Config) -> Result<tui::Keymap, CliError> {
    let overrides: tui::KeyOverrides = config
        .chords()
        .into_iter()
        .map(|(action, chords)| (action, tui::ChordList::Many(chords)))
        .collect();
    tui::Keymap::new(&overrides).map_err(|errors| {
        match errors.as_slice() {
            [error] => match key_locations(config, error) {
                Some(places) => CliError::from_error(Exit::Usage, error).with_location(places),
                None => CliError::from_error(Exit::Usage, error),
            },
            // Each problem has its own remedy.
            errors => {
                let lines: Vec<String> = errors
                    .iter()
                    .map(|error| with_location(config, error))
                    .collect();
                CliError::usage(lines.join("; "))
            }
        }
    })
}

fn screen_options_in(
    global: &GlobalArgs,
    config: &Config,
    zone: TimeZone,
) -> Result<tui::Options, CliError> {
    let variable = |name: &str| std::env::var(name).ok();
    let choice = match global.color {
        Color::Auto => tui::ColorChoice::Auto,
        Color::Always => tui::ColorChoice::Always,
        Color::Never => tui::ColorChoice::Never,
    };
    let ascii = *config.ui.ascii || tui::theme::wants_ascii(variable);
    let theme = theme(&config.ui.theme, choice.resolve(variable), ascii, variable)?;
    let keymap = keymap(config)?;
    Ok(tui::Options {
        is_session: false,
        check_arguments: Some(ingest::tool::argument_problems),
        project: None,
        startup_messages: Vec::new(),
        zone,
        theme,
        keymap,
        terminal: terminal_options(config, variable)?,
        fps: *config.ui.fps,
        paused_after: None,
        speed: None,
        exit_when: None,
        table: tui::TableSettings::default(),
        bookmarks: tui::Bookmarks::default(),
        first_page: tui::FirstPage::Units,
    })
}

/// The places of the settings that an error about keys refers to; `None` if there are none.
fn key_locations(config: &Config, error: &tui::KeymapError) -> Option<String> {
    let places = error
        .actions()
        .into_iter()
        .filter_map(|action| config.keys.get(action));
    let places: Vec<String> = places.map(|setting| setting.origin.to_string()).collect();
    (!places.is_empty()).then(|| places.join(", "))
}

/// A sentence about keys, followed by the places of the settings that it refers to.
fn with_location(config: &Config, error: &tui::KeymapError) -> String {
    let line = error.to_line();
    key_locations(config, error).map_or_else(|| line.clone(), |places| format!("{line} ({places})"))
}

/// Maximum size of a theme file, in bytes.
const THEME_BYTES: u64 = 64 * 1024;

/// The theme of the flag `--theme`, in all colours.
///
/// # Errors
/// If it is unknown, or its file cannot be read.
pub(super) fn named_theme(global: &GlobalArgs, name: &str) -> Result<tui::Theme, CliError> {
    let set = Setting {
        value: name.to_owned(),
        origin: SettingOrigin::Flag {
            name: "--theme".to_owned(),
        },
    };
    let variable = |name: &str| std::env::var(name).ok();
    theme(&set, tui::ColorLevel::Full, global.ascii, variable)
}

/// A built-in theme by its name, or a theme file by its path.
fn theme(
    set: &Setting<String>,
    color: tui::ColorLevel,
    ascii: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<tui::Theme, CliError> {
    let located = |error: CliError| error.with_location(format!("ui.theme, {}", set.origin));
    let wrong = |error: tui::ThemeError| located(CliError::from_error(Exit::Usage, &error));
    let name = theme_name(set, &variable);
    if !name.contains('/') && !name.ends_with(".toml") {
        return tui::Theme::new(name, color, ascii).map_err(wrong);
    }
    let path = resolve_user_path(name, &set.origin, variable("HOME"));
    let unreadable = |cause: String| {
        located(CliError::usage(format!(
            "cannot read the theme {}: {cause}",
            path.display()
        )))
    };
    let file = std::fs::File::open(&path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    let read = file
        .take(THEME_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    if read as u64 > THEME_BYTES {
        return Err(unreadable(format!("it is larger than {THEME_BYTES} bytes")));
    }
    tui::Theme::parse(name, &text, color, ascii).map_err(wrong)
}

/// Resolves `~/` to the home directory, and other relative paths to the directory of the settings file.
fn resolve_user_path(name: &str, origin: &SettingOrigin, home: Option<String>) -> PathBuf {
    match (name.strip_prefix("~/"), home, origin) {
        (Some(rest), Some(home), _) => Path::new(&home).join(rest),
        (_, _, SettingOrigin::User { path, .. }) => {
            path.parent().unwrap_or(Path::new("")).join(name)
        }
        _ => PathBuf::from(name),
    }
}

fn terminal_options(
    config: &Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<tui::TtyOptions, CliError> {
    let ui = &config.ui;
    let notify = match *ui.notify {
        NotifyMode::Off => tui::NotifyMethod::Off,
        NotifyMode::Bell => tui::NotifyMethod::Bell,
        NotifyMode::Osc9 => tui::NotifyMethod::Osc9,
        NotifyMode::Osc777 => tui::NotifyMethod::Osc777,
        NotifyMode::Command if ui.notify_command.is_empty() => {
            let place = &ui.notify.origin;
            return Err(CliError::usage(format!(
                "ui.notify is \"command\" ({place}), but no command is set"
            ))
            .with_help("name a program in ui.notify_command"));
        }
        NotifyMode::Command => tui::NotifyMethod::Command(ui.notify_command.value.clone()),
    };
    let progress = match *ui.progress {
        ProgressMode::Auto => tui::terminal::supports_progress(&variable),
        ProgressMode::Always => true,
        ProgressMode::Never => false,
    };
    let tmux = variable("TMUX").is_some_and(|value| !value.is_empty());
    Ok(tui::TtyOptions {
        mouse: *ui.mouse,
        notify,
        progress,
        tmux,
        programs: tui::ToolPrograms::from_env(variable),
    })
}

/// `auto` follows the background that some terminals report as `foreground;background` colour numbers.
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
