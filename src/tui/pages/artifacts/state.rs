//! State of the page of artifacts: a filtered list, and the document of the selected one.

use crate::model::ScrollList;
use crate::search_match::matches;
use ingestdeck_core::{
    run::{
        artifacts::{ArtifactWriter, RunArtifact, run_artifacts},
        state::{RunView, StateVersion},
    },
    tape::note::attempt_output::ArtifactTarget,
};

/// The page of artifacts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArtifactsPage {
    pub list: ScrollList,
    /// Listed artifacts, sorted by path.
    pub listed: Vec<RunArtifact>,
    /// All artifacts of the run.
    all: Vec<RunArtifact>,
    pub filter: ArtifactFilter,
    /// Listed artifacts contain this text in their path, a unit or a raw file.
    pub text: String,
    /// Set while the document of the selected artifact is shown.
    pub document: Option<ArtifactDocument>,
    /// Version of the run view that `all` was made from.
    made_from: Option<StateVersion>,
}

/// Position in the document of an artifact.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArtifactDocument {
    /// First line on screen.
    pub scroll: usize,
    /// Lines of the document; 0 until the shell has laid it out.
    pub lines: usize,
    /// Line of the last match.
    pub match_line: Option<usize>,
}

/// Which artifacts are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ArtifactFilter {
    #[default]
    All,
    /// With identifiers that no agent received.
    Unsourced,
    /// Without a change that is part of the result.
    Rejected,
    Pages,
    Sources,
}

impl ArtifactFilter {
    /// Its name, after the number of artifacts; `None` for all.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Unsourced => Some("unsourced"),
            Self::Rejected => Some("rejected"),
            Self::Pages => Some("pages"),
            Self::Sources => Some("sources"),
        }
    }

    pub(crate) fn cycle(self) -> Self {
        match self {
            Self::All => Self::Unsourced,
            Self::Unsourced => Self::Rejected,
            Self::Rejected => Self::Pages,
            Self::Pages => Self::Sources,
            Self::Sources => Self::All,
        }
    }

    fn accepts(self, artifact: &RunArtifact) -> bool {
        match self {
            Self::All => true,
            Self::Unsourced => artifact.unsourced().next().is_some(),
            Self::Rejected => !artifact.state.counts(),
            Self::Pages => artifact.target == Some(ArtifactTarget::Wiki),
            Self::Sources => artifact.target == Some(ArtifactTarget::SemanticLayer),
        }
    }
}

impl ArtifactsPage {
    /// Number of artifacts of the run, listed or not.
    pub(crate) fn total(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn selected(&self) -> Option<&RunArtifact> {
        self.listed.get(self.list.selected)
    }

    /// The last attempt whose change of the selected artifact counts.
    pub(crate) fn writer(&self) -> Option<&ArtifactWriter> {
        self.selected()?.effective_writers().last()
    }

    /// True if a filter hides artifacts.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter != ArtifactFilter::All || !self.text.is_empty()
    }

    /// Lists the artifacts that the filters accept. The same artifact remains selected.
    pub(crate) fn set_filter(&mut self, filter: ArtifactFilter, text: String) {
        (self.filter, self.text) = (filter, text);
        self.list_artifacts();
    }

    fn list_artifacts(&mut self) {
        let selected = self.selected().map(|artifact| artifact.path.clone());
        let has = |artifact: &RunArtifact, text: &str| {
            matches(&artifact.path, text)
                || artifact
                    .writers
                    .iter()
                    .any(|writer| matches(&writer.unit, text))
                || artifact
                    .raw_files
                    .iter()
                    .any(|file| matches(&file.path, text))
        };
        let is_listed = |artifact: &&RunArtifact| {
            self.filter.accepts(artifact) && (self.text.is_empty() || has(artifact, &self.text))
        };
        self.listed = self.all.iter().filter(is_listed).cloned().collect();
        let same = selected.and_then(|path| {
            self.listed
                .iter()
                .position(|artifact| artifact.path == path)
        });
        match same {
            Some(same) => self.list.selected = same,
            // The document of a hidden artifact is not that of another one.
            None => self.document = None,
        }
    }

    /// Updates the page when the run view has changed, and brings all positions into range.
    pub(super) fn update(&mut self, run_view: &RunView, height: usize) {
        let version = Some(run_view.state.version());
        if self.made_from != version {
            self.made_from = version;
            let all = run_artifacts(&run_view.state);
            if all != self.all {
                self.all = all;
                self.list_artifacts();
            }
        }
        self.list.clamp(self.listed.len(), height);
        if let Some(document) = &mut self.document {
            document.scroll = document.scroll.min(document.lines.saturating_sub(height));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::run::artifacts::ArtifactStatus;

    fn artifact(path: &str, state: ArtifactStatus) -> RunArtifact {
        RunArtifact {
            path: path.into(),
            target: Some(if path.ends_with(".md") {
                ArtifactTarget::Wiki
            } else {
                ArtifactTarget::SemanticLayer
            }),
            change: None,
            state,
            writers: Vec::new(),
            raw_files: Vec::new(),
            review: None,
            shared: None,
            commit: None,
        }
    }

    #[test]
    fn filter_keeps_the_selected_artifact() {
        let all = vec![
            artifact("a.md", ArtifactStatus::Saved),
            artifact("b.yaml", ArtifactStatus::Saved),
            artifact("c.md", ArtifactStatus::Discarded),
        ];
        let mut view = ArtifactsPage {
            all,
            ..ArtifactsPage::default()
        };
        let paths = |view: &ArtifactsPage| {
            view.listed
                .iter()
                .map(|it| it.path.clone())
                .collect::<Vec<_>>()
        };
        view.set_filter(ArtifactFilter::All, String::new());
        view.list.selected = 2;
        view.document = Some(ArtifactDocument::default());
        view.set_filter(ArtifactFilter::Rejected, String::new());
        assert_eq!(
            (paths(&view), view.list.selected),
            (vec!["c.md".to_owned()], 0)
        );
        assert!(view.document.is_some() && view.is_filtered());
        view.set_filter(ArtifactFilter::Sources, String::new());
        assert_eq!(
            (paths(&view), view.document.is_none()),
            (vec!["b.yaml".to_owned()], true)
        );
        view.set_filter(ArtifactFilter::All, ".md".into());
        assert_eq!(paths(&view), ["a.md", "c.md"]);
        let mut filter = ArtifactFilter::All;
        for _ in 0..5 {
            filter = filter.cycle();
        }
        assert_eq!(filter, ArtifactFilter::All);
    }
}
