//! The sections of a report about quality, unsourced and verified identifiers and the coverage of the sources, without a
//! format. Pure.

use ingestdeck_core::run::{
    RunReport,
    artifacts::RunArtifact,
    coverage::{CoverageState, CoveredFile},
    quality::{QualityFigure, RunQuality},
};

/// A list with a title.
pub(super) struct ReportSection {
    pub(super) title: String,
    /// A name, and a sentence about it.
    pub(super) items: Vec<(String, String)>,
}

/// The sections that are not empty.
pub(super) fn artifact_sections(report: &RunReport) -> Vec<ReportSection> {
    let all = [
        quality(report),
        unsourced(report),
        verification(report),
        coverage(report),
    ];
    all.into_iter()
        .filter(|section| !section.items.is_empty())
        .collect()
}

/// The figures of a run that has artifacts or read sources.
fn quality(report: &RunReport) -> ReportSection {
    let quality = RunQuality::new(report);
    let is_known = !report.artifacts.list.is_empty() || !report.artifacts.coverage.is_empty();
    let figures = QualityFigure::ALL.iter().filter(|_| is_known);
    let items = figures
        .map(|figure| (figure.label().to_owned(), quality.text(*figure)))
        .collect();
    ReportSection {
        title: "Quality".to_owned(),
        items,
    }
}

fn unsourced(report: &RunReport) -> ReportSection {
    let writers = report
        .artifacts
        .list
        .iter()
        .flat_map(RunArtifact::effective_writers);
    let flags = writers.flat_map(|writer| writer.unsourced.iter().map(move |flag| (writer, flag)));
    let items: Vec<_> = flags
        .map(|(writer, flag)| {
            let declared = if flag.declared {
                ", declared as unverified"
            } else {
                ""
            };
            let text = format!(
                "▲ written by {}, attempt {}{declared}",
                writer.unit, writer.attempt
            );
            (format!("{}:{} {}", flag.path, flag.line, flag.name), text)
        })
        .collect();
    ReportSection {
        title: format!("Identifiers that no agent received ({})", items.len()),
        items,
    }
}

/// The tables and columns of each page and source by what answers prove about them.
fn verification(report: &RunReport) -> ReportSection {
    let artifacts = report.artifacts.list.iter();
    let compared = artifacts.map(|artifact| (artifact, artifact.verification()));
    let compared = compared.filter(|(_, names)| !names.is_empty());
    let items = compared.map(|(artifact, names)| {
        let mark = if names.contradicted.is_empty() {
            ""
        } else {
            "▲ "
        };
        (artifact.path.clone(), format!("{mark}{}", names.sentence()))
    });
    ReportSection {
        title: "Verified tables and columns".to_owned(),
        items: items.collect(),
    }
}

fn coverage(report: &RunReport) -> ReportSection {
    let mut items = Vec::new();
    for source in &report.artifacts.coverage {
        items.push((source.connection.clone(), source.summary()));
        let open = source
            .files
            .iter()
            .filter(|file| file.state != CoverageState::Covered);
        items.extend(open.map(|file| {
            (
                format!("{}/{}", source.connection, file.path),
                sentence(file),
            )
        }));
    }
    ReportSection {
        title: "Coverage of the sources".to_owned(),
        items,
    }
}

fn sentence(file: &CoveredFile) -> String {
    let change = file
        .change
        .map(|change| format!(" ({})", change.label()))
        .unwrap_or_default();
    match file.state {
        CoverageState::Covered | CoverageState::Uncovered => {
            format!("{}{change}", file.state.label())
        }
        CoverageState::Stale => {
            format!(
                "▲ {}{change}: {} did not change",
                file.state.label(),
                file.artifacts.join(", ")
            )
        }
    }
}
