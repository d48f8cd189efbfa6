//! The session that an attempt continues, according to the note about its start.

use super::AttemptStarted;

/// The session that an attempt continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResumedSession<'a> {
    pub session: &'a str,
    /// True if it continues under another id.
    pub is_fork: bool,
}

impl AttemptStarted {
    /// The session that the attempt continues, if it is not a new one.
    pub(crate) fn resumed_session(&self) -> Option<ResumedSession<'_>> {
        let flags = || {
            self.argv
                .iter()
                .map(String::as_str)
                .take_while(|word| *word != "--")
        };
        let mut words = flags();
        let named = words.find_map(|word| Some(word.strip_prefix("--resume")?.strip_prefix('=')));
        let by_argv = match named {
            Some(Some(glued)) => Some(glued),
            Some(None) => words.next(),
            None => None,
        };
        let by_person = || self.amendment.as_ref()?.resume.as_deref();
        let session = by_argv
            .or_else(by_person)
            .filter(|session| !session.is_empty())?;
        Some(ResumedSession {
            session,
            is_fork: flags().any(|word| word == "--fork-session"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::note::Amendment;

    fn resumed(argv: &[&str], amendment: Option<&str>) -> Option<(String, bool)> {
        let amendment = amendment.map(|id| Amendment {
            resume: Some(id.into()),
            ..Amendment::default()
        });
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let started = AttemptStarted {
            argv,
            amendment,
            ..AttemptStarted::default()
        };
        started
            .resumed_session()
            .map(|resumed| (resumed.session.to_owned(), resumed.is_fork))
    }

    #[test]
    fn resumed_session_comes_from_argv_or_amendment() {
        let of = |session: &str, forked| Some((session.to_owned(), forked));
        assert_eq!(
            resumed(&["claude", "-p", "--resume", "a", "--", "go"], None),
            of("a", false)
        );
        assert_eq!(
            resumed(
                &[
                    "claude",
                    "-p",
                    "--resume",
                    "a",
                    "--fork-session",
                    "--",
                    "go"
                ],
                None
            ),
            of("a", true)
        );
        assert_eq!(
            resumed(&["claude", "-p", "--resume=a"], Some("b")),
            of("a", false)
        );
        assert_eq!(resumed(&["claude", "-p"], Some("b")), of("b", false));
        assert_eq!(
            resumed(
                &["claude", "-p", "--", "--resume", "a", "--fork-session"],
                None
            ),
            None
        );
        assert_eq!(resumed(&["claude", "--resume"], None), None);
        assert_eq!(resumed(&[], None), None);
    }
}
