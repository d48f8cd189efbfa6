//! The proof that an agent has exactly the tools and settings of its unit. Pure: compares its reports with what is
//! allowed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use crate::mcp;
use ingestdeck_core::decode::{
    ChatLine, LineBody, MessageBlock,
    line::{InitLine, SystemLine},
};

/// Prefix of every message about a breach.
const BREACH_PREFIX: &str = "Claude Code runtime isolation failed";
/// The permission mode that units request. Every supported release reports it back.
const PERMISSION_MODE: &str = "dontAsk";
/// The built-in output style, which needs no file.
const DEFAULT_OUTPUT_STYLE: &str = "default";
/// Types of blocks about a call that the service has carried out itself.
const SERVICE_CALL_BLOCKS: [&str; 2] = ["server_tool_use", "mcp_tool_use"];

/// What an agent may have, and its calls of other tools.
///
/// A model may call any name, and the agent then replies with an error, which is a failed call. A call that does not
/// fail is a breach.
#[derive(Debug, Default)]
pub(crate) struct IsolationProof {
    tools: BTreeSet<String>,
    /// Tool of each call of another tool without a result, by call id.
    unoffered_calls: BTreeMap<String, String>,
}

impl IsolationProof {
    /// Allows exactly these tools (full ids), and the server that provides them.
    pub(crate) fn new(tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            tools: tools.into_iter().map(Into::into).collect(),
            unoffered_calls: BTreeMap::new(),
        }
    }

    pub(crate) fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Returns a breach message if the announcement `init` differs from what is allowed. Announced skills, commands and
    /// agents are not checked: they are harmless without tools.
    pub(crate) fn init_breach(&self, init: &InitLine<'_>) -> Option<String> {
        let tools: BTreeSet<&str> = init.tools.iter().map(AsRef::as_ref).collect();
        let servers: BTreeSet<&str> = init
            .mcp_servers
            .iter()
            .map(|(name, _)| name.as_ref())
            .collect();
        let connected = |name: &str| {
            init.mcp_servers
                .iter()
                .any(|(other, status)| other == name && status == "connected")
        };

        let foreign_tools = tools
            .iter()
            .copied()
            .filter(|name| !self.tools.contains(*name));
        let missing_tools = self
            .tools
            .iter()
            .map(String::as_str)
            .filter(|name| !tools.contains(name));
        let offered_server = self.has_tools().then_some(mcp::SERVER_NAME);
        let foreign_servers = servers
            .iter()
            .copied()
            .filter(|name| offered_server != Some(*name));
        let missing_servers = offered_server.into_iter().filter(|name| !connected(name));
        let plugins = init
            .plugins
            .iter()
            .filter(|(_, path)| path != "builtin")
            .map(|(name, _)| name.as_ref());

        let lists = [
            ("tools", join_names(foreign_tools)),
            ("missing_tools", join_names(missing_tools)),
            ("mcp_servers", join_names(foreign_servers)),
            ("missing_mcp_servers", join_names(missing_servers)),
            ("plugins", join_names(plugins)),
        ];
        let other_than = |value: &Option<Cow<'_, str>>, expected: &str| {
            value
                .as_deref()
                .filter(|value| *value != expected)
                .map(str::to_owned)
        };
        let memory = init
            .memory_paths
            .map(|paths| paths.value())
            .filter(|paths| !is_empty_json(paths));
        let modes = [
            (
                "permission_mode",
                other_than(&init.permission_mode, PERMISSION_MODE),
            ),
            (
                "output_style",
                other_than(&init.output_style, DEFAULT_OUTPUT_STYLE),
            ),
            ("memory_paths", memory.map(|paths| paths.to_string())),
        ];
        if lists.iter().chain(&modes).all(|(_, found)| found.is_none()) {
            return None;
        }
        let parts =
            lists.map(|(what, list)| format!("{what}={}", list.as_deref().unwrap_or("(none)")));
        let modes = modes
            .into_iter()
            .filter_map(|(what, found)| Some(format!(" {what}={}", found?)));
        Some(format!(
            "{BREACH_PREFIX}: {}{}",
            parts.join(" "),
            modes.collect::<String>()
        ))
    }

    /// Returns a breach message if a hook asks about an impossible call: the agent asks only about tools that it has,
    /// and denies all others itself.
    pub(crate) fn call_breach(&self, tool: &str, permission_mode: Option<&str>) -> Option<String> {
        if !self.tools.contains(tool) {
            return Some(format!(
                "{BREACH_PREFIX}: it has the tool `{tool}`, which it was not given"
            ));
        }
        permission_mode_breach(permission_mode)
    }

    /// Returns a breach message if a line shows one, except that of an announcement.
    pub(crate) fn line_breach(&mut self, line: &LineBody<'_>) -> Option<String> {
        match line {
            LineBody::Assistant(chat) => self.record_calls(chat),
            LineBody::User(chat) => self.check_results(chat),
            // All calls of a successful turn were answered.
            LineBody::Result(result) if result.is_error == Some(false) => self
                .unoffered_calls
                .first_key_value()
                .map(|(_, tool)| foreign_call_message(tool)),
            LineBody::System(SystemLine::Status { permission_mode }) => {
                permission_mode_breach(permission_mode.as_deref())
            }
            _ => None,
        }
    }

    fn record_calls(&mut self, chat: &ChatLine<'_>) -> Option<String> {
        for block in &chat.blocks {
            match block {
                MessageBlock::ToolUse(call) if !self.tools.contains(call.name.as_ref()) => {
                    self.unoffered_calls
                        .insert(call.id.to_string(), call.name.to_string());
                }
                MessageBlock::Unknown(kind) if SERVICE_CALL_BLOCKS.contains(&kind.as_ref()) => {
                    return Some(foreign_call_message(kind));
                }
                _ => {}
            }
        }
        None
    }

    fn check_results(&mut self, chat: &ChatLine<'_>) -> Option<String> {
        let results = chat.blocks.iter().filter_map(|block| match block {
            MessageBlock::ToolResult(result) => Some(result),
            _ => None,
        });
        let mut breach = None;
        for result in results {
            let Some(tool) = self.unoffered_calls.remove(result.tool_use_id.as_ref()) else {
                continue;
            };
            if result.is_error != Some(true) && !chat.refused.contains(&result.tool_use_id) {
                breach.get_or_insert_with(|| foreign_call_message(&tool));
            }
        }
        breach
    }
}

/// Returns a breach message if the reported permission mode is not the requested one.
fn permission_mode_breach(mode: Option<&str>) -> Option<String> {
    let mode = mode.filter(|mode| *mode != PERMISSION_MODE)?;
    Some(format!("{BREACH_PREFIX}: permission_mode={mode}"))
}

fn foreign_call_message(tool: &str) -> String {
    format!("{BREACH_PREFIX}: it ran `{tool}`, which it was not given")
}

fn is_empty_json(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Names of the settings sources in a reply to `get_settings`; `None` if it has none.
pub(crate) fn settings_sources(reply: &Value) -> Option<Vec<String>> {
    let sources = reply.get("sources")?.as_array()?;
    let name = |source: &Value| match source {
        Value::String(name) => name.clone(),
        Value::Object(fields) => ["source", "name", "type"]
            .iter()
            .find_map(|key| fields.get(*key)?.as_str())
            .map_or_else(|| source.to_string(), str::to_owned),
        other => other.to_string(),
    };
    Some(sources.iter().map(name).collect())
}

/// Returns a breach message if settings were read, or if the reply does not list them: every supported release can.
pub(crate) fn settings_breach(sources: Option<&[String]>) -> Option<String> {
    let Some(sources) = sources else {
        return Some(format!(
            "{BREACH_PREFIX}: it does not report which settings it has read"
        ));
    };
    join_names(sources.iter().map(String::as_str))
        .map(|sources| format!("{BREACH_PREFIX}: setting_sources={sources}"))
}

fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOOLS: [&str; 2] = ["mcp__ktx__wiki_read", "mcp__ktx__wiki_write"];

    fn init<'a>(
        tools: &[&'a str],
        servers: &[(&'a str, &'a str)],
        plugins: &[(&'a str, &'a str)],
    ) -> InitLine<'a> {
        let pairs = |pairs: &[(&'a str, &'a str)]| {
            pairs
                .iter()
                .map(|(a, b)| ((*a).into(), (*b).into()))
                .collect()
        };
        InitLine {
            tools: tools.iter().map(|name| (*name).into()).collect(),
            mcp_servers: pairs(servers),
            plugins: pairs(plugins),
            ..InitLine::default()
        }
    }

    fn breach(init: &InitLine<'_>) -> Option<String> {
        IsolationProof::new(TOOLS).init_breach(init)
    }

    #[test]
    fn allowed_tools_in_any_order_are_no_breach() {
        let built_in = [("cc-plugin-privacy", "builtin")];
        assert_eq!(
            breach(&init(
                &[TOOLS[1], TOOLS[0]],
                &[("ktx", "connected")],
                &built_in
            )),
            None
        );
        let host = InitLine {
            skills: vec!["x".into()],
            agents: vec!["y".into()],
            slash_commands: vec!["z".into()],
            ..init(&TOOLS, &[("ktx", "connected")], &[])
        };
        assert_eq!(breach(&host), None);
    }

    #[test]
    fn breach_message_names_every_difference() {
        let hostile = init(
            &["Bash", TOOLS[0], "mcp__evil__x"],
            &[("evil", "connected"), ("ktx", "failed")],
            &[
                ("cc-plugin-privacy", "builtin"),
                ("foreign", "/home/dev/.claude/plugins/foreign"),
            ],
        );
        assert_eq!(
            breach(&hostile).as_deref(),
            Some(
                "Claude Code runtime isolation failed: tools=Bash,mcp__evil__x missing_tools=mcp__ktx__wiki_write \
                 mcp_servers=evil missing_mcp_servers=ktx plugins=foreign"
            )
        );
    }

    #[test]
    fn one_difference_is_enough() {
        for (bad, part) in [
            (
                init(&[], &[("ktx", "connected")], &[]),
                "missing_tools=mcp__ktx__wiki_read,mcp__ktx__wiki_write",
            ),
            (init(&TOOLS, &[], &[]), "missing_mcp_servers=ktx"),
            (
                init(&TOOLS, &[("ktx", "pending")], &[]),
                "missing_mcp_servers=ktx",
            ),
            (
                init(&TOOLS, &[("ktx", "connected"), ("other", "failed")], &[]),
                "mcp_servers=other",
            ),
            (
                init(&TOOLS, &[("ktx", "connected")], &[("p", "/somewhere")]),
                "plugins=p",
            ),
        ] {
            let sentence = breach(&bad).unwrap();
            assert!(sentence.contains(part), "{sentence}");
            assert_eq!(sentence.matches("(none)").count(), 4, "{sentence}");
        }
    }

    #[test]
    fn an_agent_without_tools_has_no_server() {
        let none = IsolationProof::new(Vec::<String>::new());
        assert_eq!(none.init_breach(&init(&[], &[], &[])), None);
        assert!(
            none.init_breach(&init(&[], &[("ktx", "connected")], &[]))
                .is_some()
        );
    }

    #[test]
    fn modes_that_were_not_asked_for_are_named() {
        let base = || init(&TOOLS, &[("ktx", "connected")], &[]);
        let memory = |json| InitLine {
            memory_paths: Some(ingestdeck_core::decode::RawJson(json)),
            ..base()
        };
        let mode = |mode: &'static str| InitLine {
            permission_mode: Some(mode.into()),
            ..base()
        };
        let style = |style: &'static str| InitLine {
            output_style: Some(style.into()),
            ..base()
        };
        for fine in [
            mode("dontAsk"),
            style("default"),
            memory("null"),
            memory("{}"),
        ] {
            assert_eq!(breach(&fine), None);
        }
        for (bad, end) in [
            (
                mode("bypassPermissions"),
                " permission_mode=bypassPermissions",
            ),
            (mode("default"), " permission_mode=default"),
            (style("Explanatory"), " output_style=Explanatory"),
            (
                memory(r#"{"auto":"/home/dev/memory"}"#),
                r#" memory_paths={"auto":"/home/dev/memory"}"#,
            ),
        ] {
            assert!(
                breach(&bad).is_some_and(|sentence| sentence.ends_with(end)),
                "{end}"
            );
        }
    }

    #[test]
    fn hook_for_a_foreign_tool_or_mode_is_a_breach() {
        let allowed = IsolationProof::new(TOOLS);
        assert_eq!(allowed.call_breach(TOOLS[0], None), None);
        assert_eq!(allowed.call_breach(TOOLS[0], Some("dontAsk")), None);
        for (tool, mode) in [
            ("Bash", None),
            ("wiki_read", None),
            (TOOLS[0], Some("bypassPermissions")),
        ] {
            assert!(allowed.call_breach(tool, mode).is_some(), "{tool}");
        }
    }

    /// The first breach in `lines`.
    fn foreign_breach(lines: &[&str]) -> Option<String> {
        let mut proof = IsolationProof::new(TOOLS);
        lines.iter().find_map(|line| {
            proof.line_breach(&ingestdeck_core::decode::decode_line(line.as_bytes()).body)
        })
    }

    #[test]
    fn foreign_call_without_an_error_is_a_breach() {
        let call = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#;
        let own = call.replace("Bash", TOOLS[0]);
        let answer = |more: &str| {
            format!(
                r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"x"{more}}}]}}}}"#
            )
        };
        let done = r#"{"type":"result","subtype":"success","is_error":false}"#;
        let spent = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true}"#;
        let served = r#"{"type":"assistant","message":{"content":[{"type":"server_tool_use","id":"t","name":"web_search"}]}}"#;
        assert_eq!(
            foreign_breach(&[call, &answer(r#","is_error":true"#), done]),
            None
        );
        assert_eq!(foreign_breach(&[&own, &answer(""), done]), None);
        assert_eq!(
            foreign_breach(&[call, spent]),
            None,
            "a call that was never made"
        );
        for lines in [
            vec![call, &answer("")],
            vec![call, &answer(r#","is_error":false"#)],
            vec![call, done],
            vec![served],
        ] {
            assert!(
                foreign_breach(&lines)
                    .is_some_and(|sentence| sentence.contains("which it was not given")),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn recorded_calls_of_absent_tools_are_no_breach() {
        for capture in [
            "thinking_tool_image_builtin_denied.jsonl",
            "isolation_recommended_hostile.jsonl",
            "versions/2.1.223_tools_mixed.jsonl",
            "versions/2.1.300_tools_mixed.jsonl",
            "versions/2.1.300_isolation.jsonl",
        ] {
            let path = format!(
                "{}/tests/fixtures/captures/{capture}",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
            );
            let text = std::fs::read_to_string(path).unwrap();
            let init = recorded(capture);
            let ingestdeck_core::decode::LineBody::Init(init) =
                ingestdeck_core::decode::decode_line(&init).body
            else {
                panic!("no init line")
            };
            let mut proof = IsolationProof::new(init.tools.iter().map(ToString::to_string));
            let breach = text.lines().find_map(|line| {
                proof.line_breach(&ingestdeck_core::decode::decode_line(line.as_bytes()).body)
            });
            assert_eq!(breach, None, "{capture}");
        }
    }

    /// The first `system/init` line of a capture.
    fn recorded(capture: &str) -> Vec<u8> {
        let path = format!(
            "{}/tests/fixtures/captures/{capture}",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
        );
        let text = std::fs::read(path).unwrap();
        let init = |line: &&[u8]| {
            ingestdeck_core::decode::decode_line(line).body.kind()
                == ingestdeck_core::decode::LineKind::Init
        };
        text.split(|byte| *byte == b'\n')
            .find(init)
            .unwrap()
            .to_vec()
    }

    fn judged(capture: &str) -> Option<String> {
        let line = recorded(capture);
        let ingestdeck_core::decode::LineBody::Init(init) =
            ingestdeck_core::decode::decode_line(&line).body
        else {
            panic!("no init line")
        };
        let own = init
            .tools
            .iter()
            .filter(|name| name.starts_with("mcp__ktx__"))
            .map(ToString::to_string);
        let own: Vec<String> = own.collect();
        let offered = if own.is_empty() {
            TOOLS.map(String::from).into()
        } else {
            own
        };
        IsolationProof::new(offered).init_breach(&init)
    }

    #[test]
    fn recorded_runs_keep_their_isolation_result() {
        for sound in [
            "isolation_recommended_hostile.jsonl",
            "versions/2.1.223_isolation.jsonl",
            "versions/2.1.300_isolation.jsonl",
        ] {
            assert_eq!(judged(sound), None, "{sound}");
        }
        let breach = judged("isolation_none_hostile.jsonl").unwrap();
        assert!(
            breach.contains("tools=") && breach.contains("Bash") && breach.contains("mcp_servers="),
            "{breach}"
        );
        for broken in ["mcp_server_missing.jsonl", "mcp_server_never_ready.jsonl"] {
            assert!(
                judged(broken).unwrap().contains("missing_mcp_servers=ktx"),
                "{broken}"
            );
        }
    }

    #[test]
    fn loaded_settings_are_a_breach() {
        assert_eq!(
            settings_sources(&json!({"effective": {}, "sources": []})),
            Some(vec![])
        );
        assert_eq!(
            settings_sources(
                &json!({"sources": ["user", {"source": "projectSettings"}, {"x": 1}]})
            ),
            Some(vec![
                "user".into(),
                "projectSettings".into(),
                r#"{"x":1}"#.into()
            ])
        );
        for silent in [
            json!(null),
            json!({}),
            json!({"sources": null}),
            json!({"sources": "all"}),
        ] {
            assert_eq!(settings_sources(&silent), None, "{silent}");
        }
        assert_eq!(settings_breach(Some(&[])), None);
        assert!(settings_breach(None).is_some_and(|sentence| {
            sentence.ends_with("does not report which settings it has read")
        }));
        assert_eq!(
            settings_breach(Some(&["user".into(), "project".into()])).as_deref(),
            Some("Claude Code runtime isolation failed: setting_sources=user,project")
        );
    }
}
