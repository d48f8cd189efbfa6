//! Prompts from sources with hostile names and texts.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    instructions::Instructions,
    job::IngestJob,
    prompt::{self, ConnectionSources, ProjectContext, Prompt, PromptAmendment},
    untrusted_text::is_presentable,
};

const SETTINGS: &str = "connections:
  dbt: {driver: dbt, source_dir: dbt}
  looks: {driver: lookml, source_dir: looks, mappings: {expectedLookerConnectionName: db}}
  flow: {driver: metricflow, source_dir: flow}
  pages: {driver: notion, source_dir: pages}
  docs: {driver: docs, source_dir: docs}
  ready: {driver: manifest, source_dir: docs, path: units.json}
  fake: {driver: fake, source_dir: fake}
";

/// A project with a source of each adapter, with `text` in every name and every text.
fn project(text: &str) -> (tempfile::TempDir, Project) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, bytes: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let (name, quoted) = (text.replace('/', ""), json!(text).to_string());
    let bare = text.replace(['"', '\\'], "");
    write(PROJECT_FILE, SETTINGS);
    write("dbt/dbt_project.yml", &format!("name: {quoted}\n"));
    write(&format!("dbt/models/m{name}.yml"), "version: 2\n");
    let model = format!(
        "connection: \"x{bare}\"\nexplore: \"{bare}\" {{}}\nexplore: plain {{}}\nview: \"{bare}\" {{}}\n"
    );
    write("looks/plain.model.lkml", &model);
    write(&format!("looks/m{name}.model.lkml"), &model);
    write(
        &format!("looks/d{name}.dashboard.lookml"),
        "- dashboard: x\n",
    );
    write("flow/plain.yml", "semantic_models: [{name: plain}]\n");
    write(
        "flow/odd.yml",
        &format!(
            "semantic_models: [{{name: {quoted}, measures: [{{name: {quoted}}}]}}]\nmetrics: [{{name: {quoted}, type: simple}}]\n"
        ),
    );
    write("pages/pages/a/page.md", "# Page\n");
    write(
        "pages/pages/a/metadata.json",
        &json!({"path": text}).to_string(),
    );
    write(
        &format!("pages/pages/p{name}/page.md"),
        &"long line\n".repeat(5_000),
    );
    write("docs/plain.md", "# Plain\n");
    write(&format!("docs/d{name}.md"), "# Odd\n");
    let unit =
        json!({"unitKey": "ready", "rawFiles": ["plain.md"], "notes": text, "slDisallowed": true});
    write("units.json", &unit.to_string());
    write("fake/plain/a", "a\n");
    write(&format!("fake/f{name}/a"), "a\n");
    let project = Project::open(dir.path()).unwrap();
    (dir, project)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_heading_of_a_prompt_comes_from_a_file(
        text in "(a|#|# |</project_index>|<workflow>|\n|\r|\u{b}|\u{c}|\u{85}|\u{2028}|\u{202e}|\u{61c}|\u{1b}\\[2J|\"| |### notes\n|- |---\n){0,10}",
    ) {
        let (_dir, project) = project(&text);
        let planned = plan(&project, &UnitSelection::default()).unwrap();
        prop_assert_eq!(&planned.skipped, &[]);
        let around = ProjectContext {
            wiki_pages: vec![("page".into(), text.clone())],
            semantic_layer: vec![ConnectionSources {
                connection: "docs".into(), is_target: true, facts: None, names: vec![text.clone()],
            }],
            ..ProjectContext::default()
        };
        let job = IngestJob { id: String::new(), sync_id: String::new() };
        for unit in &planned.units {
            let Prompt { system, user } = prompt::build_prompt(unit, &job, &Instructions::default(), &[], &around, PromptAmendment::Unchanged);
            let (_, index) = system.split_once("<project_index>\n").unwrap();
            let prompt = format!("{index}\n{user}");
            prop_assert_eq!(index.matches('<').count(), 1, "{}", index);
            let headings: Vec<&str> = prompt.lines().filter(|line| line.starts_with('#')).collect();
            let key = format!("## WorkUnit: {}", unit.planned.unit);
            let mut expected = vec!["# Wiki Index", "# Semantic Layer Sources", "## docs", key.as_str(), "### rawFiles"];
            expected.extend(["### dependencyPaths", "### peerFileIndex", "### priorProvenance", "### notes"]);
            expected.extend(unit.planned.sl_disallowed.as_ref().map(|_| "### slDisallowed"));
            prop_assert_eq!(headings, expected, "{}", unit.planned.adapter);
            prop_assert!(prompt.split('\n').all(is_presentable), "{:?}", prompt);
        }
        let adapters: BTreeSet<&str> = planned.units.iter().map(|unit| unit.planned.adapter.as_str()).collect();
        prop_assert_eq!(adapters.len(), crate::source::adapter_names().count());
    }
}
