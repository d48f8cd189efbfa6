//! Delivers notifications with other programs: the user's own, and curl for the webhook.

use std::{io, process::Stdio};

use super::{super::http_post, RunNotification};
use ingestdeck_core::{diagnostic::Problem, text};

/// The program and the webhook that receive notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationTargets {
    /// A program and its arguments; title and text are appended. Empty for none.
    pub command: Vec<String>,
    /// Address that receives each notification as JSON.
    pub url: Option<String>,
}

impl NotificationTargets {
    pub(crate) fn is_empty(&self) -> bool {
        self.command.is_empty() && self.url.is_none()
    }

    /// Delivers to every target.
    ///
    /// # Errors
    /// A sentence about the first target that did not accept the notification.
    pub(super) async fn deliver(&self, notification: &RunNotification) -> Result<(), Problem> {
        let failed = |target: &str, error: io::Error| {
            Problem::new(format!(
                "a notification was not delivered by {target}: {error}"
            ))
        };
        let mut result = Ok(());
        if let Some((program, arguments)) = self.command.split_first() {
            let title = format!("ingestdeck {}", text::printable(&notification.project, 40));
            let text = text::printable(&notification.text, 160).into_owned();
            let mut command = http_post::helper(program);
            command
                .args(arguments)
                .args([title, text])
                .stdin(Stdio::null())
                .kill_on_drop(true);
            let started = command.spawn();
            let ended = match started {
                Ok(child) => http_post::wait(child).await,
                Err(error) => Err(error),
            };
            result = ended.map_err(|error| failed("ui.notify_command", error));
        }
        if let Some(url) = &self.url {
            let body = serde_json::to_string(notification).unwrap_or_default();
            let posted = http_post::post_json(url, &[], &body)
                .await
                .map_err(|error| failed("notify.url", error));
            result = result.and(posted);
        }
        result
    }
}
