//! Names of workers, which come from other machines. Pure.

/// The beginning of a name that a worker gave, without characters that a terminal or a shell interprets.
pub(super) fn plain_name(name: &str) -> String {
    const MOST_CHARS: usize = 80;
    let is_plain = |c: &char| c.is_alphanumeric() || " ._-@:+".contains(*c);
    let plain: String = name.chars().filter(is_plain).take(MOST_CHARS).collect();
    if plain.trim().is_empty() {
        "worker".to_owned()
    } else {
        plain.trim().to_owned()
    }
}

/// `host`, or with the first number that makes it unique.
pub(super) fn free_name(host: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(host) {
        return host.to_owned();
    }
    (2_u32..)
        .map(|number| format!("{host}-{number}"))
        .find(|name| !is_taken(name))
        .unwrap_or_else(|| host.to_owned())
}
