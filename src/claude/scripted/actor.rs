//! Who plays: picks the part for each prompt, keeps the totals of the process, and gives the exit code.
//! How a part is played is [`Turn`]'s business.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    args::Run,
    host::{Cues, Host},
    script::{Ending, Ignorable, Part, Script, Step, Tokens, unit_key},
    turn::{Cut, Turn},
    wire::Wire,
};

/// The agent: who it is and what it is to play.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) script: Script,
    pub(super) attempt: u32,
    pub(super) unit: Option<String>,
    pub(super) speed: f64,
    pub(super) run: Run,
    pub(super) wire: Arc<Wire>,
    /// `None` in one-shot mode.
    pub(super) host: Option<Arc<Host>>,
    pub(super) cues: Arc<Cues>,
    pub(super) totals: Mutex<Totals>,
}

/// Running totals of the process.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) tokens: Tokens,
    pub(super) cost_usd: f64,
    pub(super) results: u32,
    pub(super) failed: bool,
}

impl Actor {
    /// Plays the prompt of the command line, or every prompt that comes in, and gives the exit code.
    pub(super) async fn perform(&self, mut prompts: mpsc::UnboundedReceiver<String>) -> u8 {
        if let Some(prompt) = self.run.prompt.as_ref().filter(|_| !self.run.two_way) {
            return self.turn(prompt).await.err().unwrap_or_else(|| self.exit_code());
        }
        loop {
            let prompt = tokio::select! {
                () = self.cues.quit.cancelled() => return self.exit_code(),
                prompt = prompts.recv() => prompt,
            };
            match prompt {
                Some(prompt) => {
                    if let Err(code) = self.turn(&prompt).await {
                        return code;
                    }
                }
                None if self.cues.ignores(Ignorable::Eof) => self.cues.quit.cancelled().await,
                None => return self.exit_code(),
            }
        }
    }

    /// As the real program: the last result decides, but an interrupt by signal is never an error.
    fn exit_code(&self) -> u8 {
        u8::from(!self.cues.quit.is_cancelled() && self.totals(|totals| totals.failed))
    }

    /// Reads or changes the totals.
    pub(super) fn totals<T>(&self, use_them: impl FnOnce(&mut Totals) -> T) -> T {
        use_them(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One turn. The error is an exit code.
    async fn turn(&self, prompt: &str) -> Result<(), u8> {
        let token = self.cues.begin();
        if let Some(host) = &self.host {
            host.ready().await;
        }
        let unit = self.unit.as_deref().unwrap_or_else(|| unit_key(prompt));
        let missing;
        let part = match self.script.part(unit, self.attempt, prompt) {
            Some(part) => part,
            None => {
                let text = format!("the script has no part for unit `{unit}`, attempt {}", self.attempt);
                let ending = Ending {
                    subtype: "error_during_execution".into(),
                    is_error: true,
                    terminal_reason: String::new(),
                    errors: vec![text],
                    ..Ending::default()
                };
                missing = Part { steps: vec![Step::Result(ending)], ..Part::default() };
                &missing
            }
        };
        self.wire.session(|| self.session_id(part));
        let mut turn = Turn::new(self, part, token, prompt);
        let played = match turn.play().await {
            Err(Cut::Interrupted) => turn.aborted().await,
            other => other,
        };
        match played {
            Ok(()) => Ok(()),
            Err(Cut::Exit(code)) => Err(code),
            // Nobody is there to be told.
            Err(Cut::Interrupted | Cut::Deaf) => Err(1),
        }
    }

    fn session_id(&self, part: &Part) -> String {
        let resumed = self.run.resume.clone().filter(|_| !self.run.fork);
        let claimed = part.session_id.clone().or(self.run.session_id.clone()).or(resumed);
        claimed.unwrap_or_else(|| Uuid::new_v4().to_string())
    }
}
