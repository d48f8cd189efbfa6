//! Delivers notifications with other programs: the user's own, and curl for the webhook.

use std::{io, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

use super::RunNotification;
use crate::{open_file_limit, program_path, text};

/// How long one delivery may take, with its retries.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Arguments of curl: bounded in time and in retries. The address is passed on stdin, since it may contain a secret and
/// other users can read arguments.
const CURL_ARGS: [&str; 9] =
    ["--silent", "--show-error", "--fail", "--max-time", "15", "--retry", "3", "--config", "-"];

/// The program and the webhook that receive notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotificationTargets {
    /// A program and its arguments; title and text are appended. Empty for none.
    pub command: Vec<String>,
    /// Address that receives each notification as JSON.
    pub url: Option<String>,
    /// A delivery has failed, and the user was informed.
    pub has_failed: bool,
}

impl NotificationTargets {
    pub(crate) fn is_empty(&self) -> bool {
        self.command.is_empty() && self.url.is_none()
    }

    /// Delivers to every target.
    ///
    /// # Errors
    /// A sentence about the first target that did not accept the notification.
    pub(super) async fn deliver(&self, notification: &RunNotification) -> Result<(), String> {
        let failed = |target: &str, error: io::Error| format!("a notification was not delivered by {target}: {error}");
        let mut result = Ok(());
        if let Some((program, arguments)) = self.command.split_first() {
            let title = format!("ingestdeck {}", text::printable(&notification.project, 40));
            let text = text::printable(&notification.text, 160).into_owned();
            let mut command = helper(program);
            command.args(arguments).args([title, text]).stdin(Stdio::null());
            result = run(command, Vec::new()).await.map_err(|error| failed("ui.notify_command", error));
        }
        if let Some(url) = &self.url {
            let posted = post(url, notification).await.map_err(|error| failed("notify.url", error));
            result = result.and(posted);
        }
        result
    }
}

/// Sends the notification as the body of a POST request.
async fn post(url: &str, notification: &RunNotification) -> io::Result<()> {
    let curl = program_path::find("curl")
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "curl is not installed; it sends to the webhook"))?;
    let body = serde_json::to_string(notification)?;
    let mut command = helper(curl);
    // Settings of the user's own curl must not change the request.
    command.arg("--disable").args(CURL_ARGS).stdin(Stdio::piped());
    let config = [("url", url), ("header", "Content-Type: application/json"), ("data-raw", &body)];
    let config: String = config.iter().map(|(key, value)| format!("{key} = \"{}\"\n", escaped(value))).collect();
    run(command, config.into_bytes()).await
}

/// Escapes a value for a quoted string in a config of curl.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

fn helper(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    open_file_limit::restore_limit_in(command.as_std_mut());
    command.env("PATH", program_path::search_path()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    command
}

async fn run(mut command: Command, input: Vec<u8>) -> io::Result<()> {
    let deliver = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&input).await?;
        }
        let status = child.wait().await?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("ended with {status}"))) }
    };
    timeout(DELIVERY_TIMEOUT, deliver).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_inside_their_quotes() {
        assert_eq!(escaped("{\"a\":\"b\\n\"}\nurl = x"), r#"{\"a\":\"b\\n\"}\nurl = x"#);
    }
}
