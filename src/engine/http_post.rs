//! Sends JSON to an address with curl. It must not know what is sent.

use std::{
    ffi::OsStr,
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

use ingestdeck_os::{open_file_limit, program_path};

/// How long curl may take, with its retries.
const POST_TIMEOUT: Duration = Duration::from_secs(20);
/// Arguments of curl: bounded in time and in retries. The address is passed on stdin, since it may contain a secret and
/// other users can read arguments.
const CURL_ARGS: [&str; 9] = [
    "--silent",
    "--show-error",
    "--fail",
    "--max-time",
    "15",
    "--retry",
    "3",
    "--config",
    "-",
];

/// Sends `body` as a POST request.
///
/// # Errors
/// If curl is missing, or the request is not accepted in time.
pub(super) async fn post_json(
    url: &str,
    headers: &[(String, String)],
    body: &str,
) -> io::Result<()> {
    wait_for_post(start_post(url, headers, body).await?).await
}

/// Waits for the end of a request.
///
/// # Errors
/// If the request is not accepted, with the reason that curl reports.
pub(super) async fn wait_for_post(child: Child) -> io::Result<()> {
    let status = exit_status(child).await?;
    match status.code() {
        Some(0) => Ok(()),
        Some(6) => Err(io::Error::other("the host is not known")),
        Some(7) => Err(io::Error::other("the connection was refused")),
        Some(22) => Err(io::Error::other("the server answered with an error")),
        Some(28) => Err(io::ErrorKind::TimedOut.into()),
        _ => Err(io::Error::other(format!("curl ended with {status}"))),
    }
}

/// Starts to send `body`. The request continues if the child is dropped.
///
/// # Errors
/// If curl is missing or does not start.
pub(super) async fn start_post(
    url: &str,
    headers: &[(String, String)],
    body: &str,
) -> io::Result<Child> {
    let curl = program_path::find("curl").ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "curl is not installed; it sends the request",
        )
    })?;
    let mut command = helper(curl);
    // Settings of the user's own curl must not change the request.
    command
        .arg("--disable")
        .args(CURL_ARGS)
        .stdin(Stdio::piped());
    let mut config = format!(
        "globoff\nurl = \"{}\"\nheader = \"Content-Type: application/json\"\n",
        escaped(url)
    );
    for (name, value) in headers {
        config.push_str(&format!(
            "header = \"{}: {}\"\n",
            escaped(name),
            escaped(value)
        ));
    }
    config.push_str(&format!("data-raw = \"{}\"\n", escaped(body)));
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        timeout(POST_TIMEOUT, stdin.write_all(config.as_bytes())).await??;
    }
    Ok(child)
}

/// Escapes a value for a quoted string in a config of curl.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t")
}

/// A command that inherits nothing but the environment, and has its own process group.
pub(super) fn helper(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    open_file_limit::restore_limit_in(command.as_std_mut());
    command
        .env("PATH", program_path::search_path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.process_group(0);
    command
}

/// Waits for the end of a child process.
///
/// # Errors
/// If it fails or takes too long.
pub(super) async fn wait(child: Child) -> io::Result<()> {
    let status = exit_status(child).await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("ended with {status}")))
    }
}

async fn exit_status(mut child: Child) -> io::Result<ExitStatus> {
    timeout(POST_TIMEOUT, child.wait())
        .await
        .unwrap_or_else(|_| {
            let _ = child.start_kill();
            Err(io::ErrorKind::TimedOut.into())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_inside_their_quotes() {
        assert_eq!(
            escaped("{\"a\":\"b\\n\"}\nurl = x"),
            r#"{\"a\":\"b\\n\"}\nurl = x"#
        );
    }
}
