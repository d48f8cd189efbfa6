//! The scripted agent: selects the part for each prompt, keeps the totals of the process, and returns the exit code.
//! [`ScriptedTurn`] plays a part.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

mod call;
mod turn;

use turn::{ScriptedTurn, TurnAbort};

use super::{
    args::ClaudeFlags,
    host::{HostConnection, TurnControl},
    output::OutputLines,
    script::{
        AgentScript, IgnoredEvent, MessageTokens, ScriptPart, ScriptStep, ScriptedResult, unit_key,
    },
};

/// The agent, with its identity and script.
#[derive(Debug)]
pub(super) struct ScriptedAgent {
    pub(super) script: AgentScript,
    pub(super) attempt: u32,
    pub(super) unit: Option<String>,
    pub(super) speed: f64,
    pub(super) run: ClaudeFlags,
    pub(super) output: Arc<OutputLines>,
    /// `None` in one-shot mode.
    pub(super) host: Option<Arc<HostConnection>>,
    pub(super) turn_control: Arc<TurnControl>,
    pub(super) totals: Mutex<UsageTotals>,
    /// User messages from stdin. Those that arrive during a call are part of its turn.
    pub(super) prompts: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

/// Running totals of the process.
#[derive(Debug, Default)]
pub(super) struct UsageTotals {
    pub(super) tokens: MessageTokens,
    pub(super) cost_usd: f64,
    pub(super) results: u32,
    pub(super) last_failed: bool,
}

impl ScriptedAgent {
    /// Plays the prompt of the command line, or every prompt from stdin, and returns the exit code.
    pub(super) async fn run(&self) -> u8 {
        if let Some(prompt) = self.run.prompt.as_ref().filter(|_| !self.run.stream_input) {
            return self
                .run_turn(prompt)
                .await
                .err()
                .unwrap_or_else(|| self.exit_code());
        }
        loop {
            let prompt = tokio::select! {
                () = self.turn_control.exit_after_turn.cancelled() => return self.exit_code(),
                prompt = async { self.prompts.lock().await.recv().await } => prompt,
            };
            match prompt {
                Some(prompt) => {
                    if let Err(code) = self.run_turn(&prompt).await {
                        return code;
                    }
                }
                None if self.turn_control.ignores(IgnoredEvent::Eof) => {
                    self.turn_control.exit_after_turn.cancelled().await
                }
                None => return self.exit_code(),
            }
        }
    }

    /// As in the real program: the last result decides, but an interrupt by signal is never an error.
    fn exit_code(&self) -> u8 {
        u8::from(
            !self.turn_control.exit_after_turn.is_cancelled()
                && self.with_totals(|totals| totals.last_failed),
        )
    }

    /// Reads or changes the totals.
    pub(super) fn with_totals<T>(&self, use_them: impl FnOnce(&mut UsageTotals) -> T) -> T {
        use_them(&mut self.totals.lock())
    }

    /// Plays one turn. The error is an exit code.
    async fn run_turn(&self, prompt: &str) -> Result<(), u8> {
        let token = self.turn_control.start_turn();
        if let Some(host) = &self.host {
            host.wait_for_handshake().await;
        }
        let unit = self.unit.as_deref().unwrap_or_else(|| unit_key(prompt));
        let missing;
        let part = match self.script.find_part(unit, self.attempt, prompt) {
            Some(part) => part,
            None => {
                let text = format!(
                    "the script has no part for unit `{unit}`, attempt {}",
                    self.attempt
                );
                let ending = ScriptedResult {
                    subtype: "error_during_execution".into(),
                    is_error: true,
                    terminal_reason: String::new(),
                    errors: vec![text],
                    ..ScriptedResult::default()
                };
                missing = ScriptPart {
                    steps: vec![ScriptStep::Result(ending)],
                    ..ScriptPart::default()
                };
                &missing
            }
        };
        self.output.session_or_init(|| self.session_id(part));
        let mut turn = ScriptedTurn::new(self, part, token, prompt);
        let played = match turn.run().await {
            Err(TurnAbort::Interrupted) => turn.write_aborted_turn().await,
            other => other,
        };
        match played {
            Ok(()) => Ok(()),
            Err(TurnAbort::Exit(code)) => Err(code),
            // Nothing can be written to a closed output.
            Err(TurnAbort::Interrupted | TurnAbort::OutputClosed) => Err(1),
        }
    }

    fn session_id(&self, part: &ScriptPart) -> String {
        let resumed = self.run.resume.clone().filter(|_| !self.run.fork);
        let claimed = part
            .session_id
            .clone()
            .or(self.run.session_id.clone())
            .or(resumed);
        claimed.unwrap_or_else(|| Uuid::new_v4().to_string())
    }
}
