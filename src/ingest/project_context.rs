//! The part of a prompt that describes the project: the wiki index, the sources of each connection that the agent may
//! write to, and for the reconcile step the changes of the units.
//!
//! It reads pages and sources. It must not know how a prompt is formatted.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use super::{
    connection_scope::{ConnectionAccess, ConnectionScope},
    project::Project,
    prompt::{ConnectionSources, ProjectContext},
    reconcile::{ChangeKind, StageIndex},
    semantic_layer::{self, SemanticLayer},
    wiki::{self, Wiki, WikiPage},
    workspace::Workspace,
};

/// Reads the state of `workspace` for the prompt of an attempt, and marks every page and source in it as seen by the
/// attempt.
pub(super) fn read_context(
    project: &Project,
    reach: &ConnectionScope,
    workspace: &Workspace,
    stage: Option<&StageIndex>,
) -> io::Result<ProjectContext> {
    let mut semantic_layer = Vec::new();
    for ConnectionAccess { id, is_target, .. } in &reach.connections {
        let sources = SemanticLayer(workspace).sources(id)?;
        for file in &sources.files {
            let _ = workspace.read(&file.path);
        }
        let names: Vec<String> = sources.by_name.into_keys().collect();
        if *is_target || !names.is_empty() {
            semantic_layer.push(ConnectionSources {
                connection: id.clone(),
                is_target: *is_target,
                facts: facts(project, id),
                names,
            });
        }
    }
    let details = stage
        .map(|stage| details(stage, workspace))
        .unwrap_or_default();
    Ok(ProjectContext {
        wiki_pages: pages(workspace)?,
        semantic_layer,
        change_summaries: details,
    })
}

/// The sentence about what the tables of the connection `id` can be checked against; `None` if it is not a database.
fn facts(project: &Project, id: &str) -> Option<String> {
    let mut connections = project.settings.connections.iter();
    let connection = connections.find(|connection| connection.id == id)?;
    Some(project.available_facts(connection)?.prompt_line())
}

/// Key and summary of each page.
fn pages(workspace: &Workspace) -> io::Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for key in Wiki(workspace).keys()? {
        let page = Wiki(workspace)
            .read_text(&key)
            .ok()
            .flatten()
            .and_then(|bytes| WikiPage::parse(&bytes).ok());
        pages.push((
            key,
            page.map_or_else(
                || "(cannot be read)".into(),
                |page| page.frontmatter.summary,
            ),
        ));
    }
    Ok(pages)
}

/// Summary or description of each existing page and source that units changed, by path.
fn details(stage: &StageIndex, workspace: &Workspace) -> BTreeMap<String, String> {
    let changes = stage.units.iter().flat_map(|unit| &unit.changes);
    let there = changes.filter(|change| change.kind != ChangeKind::Removed);
    let paths: BTreeSet<&String> = there.map(|change| &change.path).collect();
    paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), change_summary(path, workspace)?)))
        .collect()
}

fn change_summary(path: &str, workspace: &Workspace) -> Option<String> {
    let bytes = || workspace.peek(path).ok()?;
    if wiki::page_key(path).is_some() {
        return Some(WikiPage::parse(&bytes()?).ok()?.frontmatter.summary);
    }
    semantic_layer::split_source_path(path)?;
    let doc = semantic_layer::parse_source(&String::from_utf8(bytes()?).ok()?).ok()?;
    semantic_layer::first_description(&doc).map(str::to_owned)
}

/// One warning for each index of the project that is too long for a prompt. Unreadable files are not reported here,
/// because the attempts report them.
pub fn truncated_index_warnings(project: &Project) -> Vec<String> {
    let around = read_context(
        project,
        &ConnectionScope::new(project, None),
        &Workspace::read_only(&project.root),
        None,
    )
    .unwrap_or_default();
    let sources: usize = around.semantic_layer.iter().map(|of| of.names.len()).sum();
    let wiki = around.is_wiki_truncated().then_some((
        "wiki",
        around.wiki_pages.len(),
        "pages",
        "wiki_search",
    ));
    let layer = around.is_layer_truncated().then_some((
        "semantic layer",
        sources,
        "sources",
        "sl_discover",
    ));
    let sentence = |(place, count, things, tool): (&str, usize, &str, &str)| {
        format!(
            "the {place} has {count} {things}, more than a prompt can list: each unit sees a part of them and finds the \
             others with {tool}"
        )
    };
    wiki.into_iter().chain(layer).map(sentence).collect()
}
