//! `sl_write_source`, `sl_edit_source` and `sl_rollback`: create, change, delete and restore sources in the attempt's
//! workspace.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    AgentTool, ToolContext,
    sl_common::{DeclinedSourceChange, check_change, validate_change},
    verification_ledger::refusal_of_identifiers,
};
use crate::{
    semantic_layer::{self, SourceDefinition, SourceDoc, SourceFile},
    untrusted_text::excerpt,
    workspace::RevertOutcome,
};
use ingestdeck_core::units::ToolReply;

#[derive(Debug)]
pub(super) struct SlWriteSource;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlWriteInput {
    /// Id of the connection that the source belongs to.
    #[serde(rename = "connectionId")]
    #[schemars(length(min = 1))]
    connection: String,
    /// Name of the source; must be the same as `source.name`.
    #[serde(rename = "sourceName")]
    #[schemars(length(min = 1, max = 200))]
    name: String,
    /// The whole definition, unless `delete` is true. Standalone (table or sql, grain, columns) or overlay.
    #[schemars(with = "Option<SourceDefinition>")]
    source: Option<Map<String, Value>>,
    /// True to remove the source. Not together with `source`.
    delete: Option<bool>,
    /// Raw files of this work unit that the source is based on.
    #[serde(rename = "rawPaths")]
    raw_paths: Option<Vec<String>>,
}

/// Units with `sl_disallowed` may read sources and not write them.
fn may_write_sources(context: &ToolContext) -> bool {
    context.unit.may_write_sources()
}

impl AgentTool for SlWriteSource {
    const NAME: &'static str = "sl_write_source";
    const DESCRIPTION: &'static str = "Create a semantic layer source, or rewrite a whole source; `delete: true` \
        removes it. A standalone source has either `table` or `sql`, a `grain` and all its `columns` with types. An \
        overlay has neither `table` nor `sql`, and adds measures, segments, joins, computed columns or \
        column_overrides to the scanned table of its name. Joins name sources of the same connection; find them with \
        discover_data. Read an existing source with sl_read_source before you rewrite or remove it. For small changes \
        use sl_edit_source. An invalid source is not saved. Requires an entry in the verification ledger.";
    const READ_ONLY: bool = false;
    const NEEDS_LEDGER: bool = true;
    type Input = SlWriteInput;

    fn is_offered(context: &ToolContext) -> bool {
        may_write_sources(context)
    }

    fn run(context: &ToolContext, input: SlWriteInput) -> ToolReply {
        let (connection, name) = (input.connection.clone(), input.name.clone());
        write(context, input)
            .unwrap_or_else(|declined| declined.into_reply(Self::NAME, &connection, &name))
    }
}

#[derive(Debug)]
pub(super) struct SlEditSource;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlEditInput {
    /// Id of the connection that the source belongs to.
    #[serde(rename = "connectionId")]
    #[schemars(length(min = 1))]
    connection: String,
    /// Name of the source.
    #[serde(rename = "sourceName")]
    #[schemars(length(min = 1, max = 200))]
    name: String,
    /// Replacements in the YAML text, applied in order. Required unless `delete` is true.
    yaml_edits: Option<Vec<YamlEdit>>,
    /// True to remove the source. Not together with `yaml_edits`.
    delete: Option<bool>,
    /// Raw files of this work unit that the change is based on.
    #[serde(rename = "rawPaths")]
    raw_paths: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct YamlEdit {
    /// Text that occurs exactly once in the YAML, byte for byte. Earlier edits of this call are already applied.
    #[schemars(length(min = 1))]
    old_text: String,
    /// Text that replaces it; empty to delete it.
    new_text: String,
    /// Reason for the edit.
    #[expect(
        dead_code,
        reason = "for readers of the transcript, which contains the arguments"
    )]
    reason: Option<String>,
}

impl AgentTool for SlEditSource {
    const NAME: &'static str = "sl_edit_source";
    const DESCRIPTION: &'static str = "Change a semantic layer source by exact replacements in its YAML. Read it with \
        sl_read_source first and copy the text from there. `delete: true` removes the source. An invalid result is \
        not saved; comments are kept. Requires an entry in the verification ledger.";
    const READ_ONLY: bool = false;
    const NEEDS_LEDGER: bool = true;
    type Input = SlEditInput;

    fn is_offered(context: &ToolContext) -> bool {
        may_write_sources(context)
    }

    fn run(context: &ToolContext, input: SlEditInput) -> ToolReply {
        let (connection, name) = (input.connection.clone(), input.name.clone());
        edit(context, input)
            .unwrap_or_else(|declined| declined.into_reply(Self::NAME, &connection, &name))
    }
}

#[derive(Debug)]
pub(super) struct SlRollback;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlRollbackInput {
    /// Name of the source.
    #[serde(rename = "sourceName")]
    #[schemars(length(min = 1, max = 200))]
    name: String,
}

impl AgentTool for SlRollback {
    const NAME: &'static str = "sl_rollback";
    const DESCRIPTION: &'static str = "Undo all changes of this session to a semantic layer source and restore its \
        earlier content. Use it if you cannot make a source valid. If you changed sources of this name in several \
        connections, the one of this unit's connection is restored first.";
    const READ_ONLY: bool = false;
    type Input = SlRollbackInput;

    fn run(context: &ToolContext, SlRollbackInput { name }: SlRollbackInput) -> ToolReply {
        match rollback_source(context, &name) {
            Ok(outcome) => ToolReply {
                markdown: format!("Source \"{}\" rolled back: {outcome}.", excerpt(&name)),
                structured: Some(json!({"success": true, "sourceName": name, "outcome": outcome})),
                ..ToolReply::default()
            },
            Err(declined) => declined.into_reply(Self::NAME, "", &name),
        }
    }
}

fn write(context: &ToolContext, input: SlWriteInput) -> Result<ToolReply, DeclinedSourceChange> {
    let SlWriteInput {
        connection,
        name,
        source,
        delete,
        raw_paths,
    } = input;
    check_change(context, &connection, raw_paths.as_deref())?;
    if delete == Some(true) {
        return if source.is_none() {
            remove(context, &connection, &name)
        } else {
            Err(DeclinedSourceChange::new(
                "source_and_delete",
                "both source and delete are given; give only one of them",
            ))
        };
    }
    let Some(doc) = source.map(|doc| semantic_layer::fill_defaults(without_nulls(doc))) else {
        return Err(DeclinedSourceChange::new(
            "source_required",
            "source is missing; give it to create or rewrite the source, or use sl_edit_source for targeted edits",
        ));
    };
    let found = context
        .semantic_layer()
        .find_source_file(&connection, &name)?;
    let path = target_path(context, &connection, &name, found.as_ref())?;
    let warnings = validate_change(context, &connection, &name, &doc, None)?;
    let text = semantic_layer::render_source(&doc)
        .map_err(|why| DeclinedSourceChange::new("not_writable", why.to_string()))?;
    check_identifiers(context, &path, &text)?;
    context.workspace.write(&path, text.as_bytes())?;
    let action = if found.is_some() {
        "updated"
    } else {
        "created"
    };
    let mut reply = saved_reply(
        &connection,
        &name,
        &path,
        "saved",
        json!({"action": action}),
        warnings,
    );
    // The saved text contains more fields than the call, and edits must match it.
    reply
        .markdown
        .push_str(&format!("\n\n**YAML**:\n```yaml\n{text}```"));
    Ok(reply)
}

/// Refuses identifiers that the verification ledger must list.
fn check_identifiers(
    context: &ToolContext,
    path: &str,
    text: &str,
) -> Result<(), DeclinedSourceChange> {
    match refusal_of_identifiers(context, path, text) {
        None => Ok(()),
        Some((reason, why)) => Err(DeclinedSourceChange::new(reason, why)),
    }
}

/// Removes the fields that are null, which mean omitted fields.
fn without_nulls(doc: SourceDoc) -> SourceDoc {
    let inner = |value: Value| match value {
        Value::Object(map) => Value::Object(without_nulls(map)),
        Value::Array(list) => list
            .into_iter()
            .map(|item| match item {
                Value::Object(map) => Value::Object(without_nulls(map)),
                other => other,
            })
            .collect(),
        other => other,
    };
    doc.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key, inner(value)))
        .collect()
}

fn edit(context: &ToolContext, input: SlEditInput) -> Result<ToolReply, DeclinedSourceChange> {
    let SlEditInput {
        connection,
        name,
        yaml_edits,
        delete,
        raw_paths,
    } = input;
    check_change(context, &connection, raw_paths.as_deref())?;
    if delete == Some(true) {
        return if yaml_edits.is_none() {
            remove(context, &connection, &name)
        } else {
            Err(DeclinedSourceChange::new(
                "edits_and_delete",
                "both yaml_edits and delete are given; give only one of them",
            ))
        };
    }
    let edits = yaml_edits.unwrap_or_default();
    if edits.is_empty() {
        return Err(DeclinedSourceChange::new(
            "edits_required",
            "yaml_edits is missing or empty; give at least one edit, or `delete: true`",
        ));
    }
    let Some(file) = context
        .semantic_layer()
        .find_source_file(&connection, &name)?
    else {
        return Err(missing_source(context, &connection, &name));
    };
    // Edits apply to the newest text, so the agent does not have to read it again.
    let bytes = context.workspace.read(&file.path)?.unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|_| {
        DeclinedSourceChange::new(
            "source_unreadable",
            "it is not UTF-8 text; rewrite it with sl_write_source",
        )
    })?;
    let before = semantic_layer::parse_source(&text).ok();
    let text = apply_edits(text, &edits)?;
    let doc = semantic_layer::parse_source(&text).map_err(|why| {
        DeclinedSourceChange::new(
            "invalid_yaml",
            format!("YAML parse error after the edits: {why}"),
        )
    })?;
    let (text, doc) = semantic_layer::append_missing_lists(text, &doc);
    let warnings = validate_change(context, &connection, &name, &doc, before.as_ref())?;
    check_identifiers(context, &file.path, &text)?;
    context.workspace.write(&file.path, text.as_bytes())?;
    let verb = format!("changed by {} edit(s)", edits.len());
    let more = json!({"action": "updated", "editCount": edits.len()});
    Ok(saved_reply(
        &connection,
        &name,
        &file.path,
        &verb,
        more,
        warnings,
    ))
}

/// Path for the source: its existing file, else a path that no other source has.
fn target_path(
    context: &ToolContext,
    connection: &str,
    name: &str,
    found: Option<&SourceFile>,
) -> Result<String, DeclinedSourceChange> {
    if let Some(file) = found {
        return Ok(file.path.clone());
    }
    if name.chars().any(char::is_control) {
        return Err(DeclinedSourceChange::new(
            "invalid_name",
            "the name contains control characters; choose a name without them",
        ));
    }
    let path = semantic_layer::new_source_path(connection, name);
    match context
        .semantic_layer()
        .files(connection)?
        .into_iter()
        .find(|file| file.path == path)
    {
        Some(other) if other.doc.is_ok() => Err(DeclinedSourceChange::new(
            "path_taken",
            format!(
                "{path} already contains source `{}`; choose another name",
                excerpt(&other.name)
            ),
        )),
        // Rewriting the file repairs a broken one.
        Some(_) | None => Ok(path),
    }
}

fn remove(
    context: &ToolContext,
    connection: &str,
    name: &str,
) -> Result<ToolReply, DeclinedSourceChange> {
    let Some(file) = context
        .semantic_layer()
        .find_source_file(connection, name)?
    else {
        return Err(missing_source(context, connection, name));
    };
    context.workspace.remove(&file.path)?;
    let sources = context.semantic_layer().sources(connection)?;
    let others = sources
        .files
        .iter()
        .filter_map(|file| Some((file, file.doc.as_ref().ok()?)));
    let broken_joins =
        others.flat_map(|(file, doc)| semantic_layer::dangling_joins(&file.name, doc, &sources));
    let warnings = broken_joins
        .filter(|(target, _)| target == name)
        .map(|(_, text)| text)
        .collect();
    Ok(saved_reply(
        connection,
        name,
        &file.path,
        "removed",
        json!({"action": "removed"}),
        warnings,
    ))
}

fn missing_source(context: &ToolContext, connection: &str, name: &str) -> DeclinedSourceChange {
    let sources = context
        .semantic_layer()
        .sources(connection)
        .unwrap_or_default();
    if sources.scanned_tables.named(name).is_some() {
        return DeclinedSourceChange::new(
            "no_overlay_yet",
            "it is a scanned table without an overlay; create one with sl_write_source: `name` and any of measures, \
             segments, joins, descriptions, column_overrides or computed columns, without table, sql and grain",
        );
    }
    DeclinedSourceChange::new(
        "source_not_found",
        "Source not found. Use sl_write_source to create it.",
    )
}

fn apply_edits(mut text: String, edits: &[YamlEdit]) -> Result<String, DeclinedSourceChange> {
    for (
        index,
        YamlEdit {
            old_text, new_text, ..
        },
    ) in edits.iter().enumerate()
    {
        let count = text.matches(old_text.as_str()).count();
        if count != 1 {
            let times = if count == 0 {
                "does not occur".to_owned()
            } else {
                format!("occurs {count} times")
            };
            let why = format!(
                "oldText of yaml_edits[{index}] {times} in the YAML, but must occur exactly once; read the source with \
                 sl_read_source and copy a longer, exact text"
            );
            return Err(DeclinedSourceChange::new("edit_not_unique", why));
        }
        text = text.replacen(old_text.as_str(), new_text, 1);
    }
    Ok(text)
}

fn rollback_source(
    context: &ToolContext,
    name: &str,
) -> Result<&'static str, DeclinedSourceChange> {
    let mut changed = Vec::new();
    for path in context.workspace.changes().into_keys() {
        let Some((connection, _)) = semantic_layer::split_source_path(&path) else {
            continue;
        };
        let versions = context.workspace.versions(&path)?;
        let is_named = versions.iter().any(|bytes| {
            semantic_layer::source_name(&String::from_utf8_lossy(bytes), &path) == name
        });
        if is_named {
            changed.push((connection == context.unit.planned.connection, path.clone()));
        }
    }
    // Several connections may have a source of this name. The unit's own connection takes precedence, unless it has
    // none.
    let has_own = changed.iter().any(|(is_own, _)| *is_own);
    let mut outcome = "no-op (this session did not change it)";
    for (_, path) in changed.iter().filter(|(is_own, _)| *is_own == has_own) {
        outcome = match context.workspace.revert(path)? {
            RevertOutcome::Restored => "restored to pre-session content",
            RevertOutcome::Removed => "deleted (did not exist at session start)",
        };
    }
    Ok(outcome)
}

fn saved_reply(
    connection: &str,
    name: &str,
    path: &str,
    verb: &str,
    more: Value,
    warnings: Vec<String>,
) -> ToolReply {
    let mut markdown = format!("Source **{}** {verb} successfully ({path}).", excerpt(name));
    let mut structured =
        json!({"success": true, "connectionId": connection, "sourceName": name, "path": path});
    if let (Some(structured), Value::Object(more)) = (structured.as_object_mut(), more) {
        structured.extend(more);
        if !warnings.is_empty() {
            structured.insert("validationWarnings".into(), json!(warnings));
        }
    }
    if !warnings.is_empty() {
        let lines: Vec<String> = warnings
            .iter()
            .map(|warning| format!("- {warning}"))
            .collect();
        markdown.push_str(&format!(
            "\n\n**Validation warnings:**\n{}",
            lines.join("\n")
        ));
    }
    ToolReply {
        markdown,
        structured: Some(structured),
        ..ToolReply::default()
    }
}
