//! The proof that an agent has what it was given and nothing else. Pure: compares what it says with what is allowed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::decode::line::Init;

/// What an agent may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    tools: BTreeSet<String>,
    servers: BTreeSet<String>,
}

impl Allowed {
    /// Exactly these tools (full ids), from exactly these servers.
    pub fn new(
        tools: impl IntoIterator<Item = impl Into<String>>,
        servers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            tools: tools.into_iter().map(Into::into).collect(),
            servers: servers.into_iter().map(Into::into).collect(),
        }
    }

    /// The sentence of the breach, if what `init` announces differs in any way. Skills, commands and agents that a
    /// host lists are harmless without the tools to use them, and are not looked at.
    pub fn breach(&self, init: &Init<'_>) -> Option<String> {
        let tools: BTreeSet<&str> = init.tools.iter().map(AsRef::as_ref).collect();
        let servers: BTreeSet<&str> = init.mcp_servers.iter().map(|(name, _)| name.as_ref()).collect();
        let connected =
            |name: &str| init.mcp_servers.iter().any(|(other, status)| other == name && status == "connected");

        let foreign_tools = tools.iter().copied().filter(|name| !self.tools.contains(*name));
        let missing_tools = self.tools.iter().map(String::as_str).filter(|name| !tools.contains(name));
        let foreign_servers = servers.iter().copied().filter(|name| !self.servers.contains(*name));
        let missing_servers = self.servers.iter().map(String::as_str).filter(|name| !connected(name));
        let plugins = init.plugins.iter().filter(|(_, path)| path != "builtin").map(|(name, _)| name.as_ref());

        let lists = [
            ("tools", listed(foreign_tools)),
            ("missing_tools", listed(missing_tools)),
            ("mcp_servers", listed(foreign_servers)),
            ("missing_mcp_servers", listed(missing_servers)),
            ("plugins", listed(plugins)),
        ];
        if lists.iter().all(|(_, list)| list.is_none()) {
            return None;
        }
        let parts = lists.map(|(what, list)| format!("{what}={}", list.as_deref().unwrap_or("(none)")));
        Some(format!("Claude Code runtime isolation failed: {}", parts.join(" ")))
    }
}

/// Names of the settings sources in a reply to `get_settings`; `None` if it does not say.
pub fn settings_sources(reply: &Value) -> Option<Vec<String>> {
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

/// The sentence of the breach, if any settings were read, or if it does not say: every release that may be used can.
pub fn settings_breach(sources: Option<&[String]>) -> Option<String> {
    let Some(sources) = sources else {
        return Some("Claude Code runtime isolation failed: it does not say which settings it has read".to_owned());
    };
    listed(sources.iter().map(String::as_str))
        .map(|sources| format!("Claude Code runtime isolation failed: setting_sources={sources}"))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOOLS: [&str; 2] = ["mcp__ktx__wiki_read", "mcp__ktx__wiki_write"];

    fn init<'a>(tools: &[&'a str], servers: &[(&'a str, &'a str)], plugins: &[(&'a str, &'a str)]) -> Init<'a> {
        let pairs = |pairs: &[(&'a str, &'a str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        Init {
            tools: tools.iter().map(|name| (*name).into()).collect(),
            mcp_servers: pairs(servers),
            plugins: pairs(plugins),
            ..Init::default()
        }
    }

    fn breach(init: &Init<'_>) -> Option<String> {
        Allowed::new(TOOLS, ["ktx"]).breach(init)
    }

    #[test]
    fn the_curated_set_in_any_order_is_no_breach() {
        let built_in = [("cc-plugin-privacy", "builtin")];
        assert_eq!(breach(&init(&[TOOLS[1], TOOLS[0]], &[("ktx", "connected")], &built_in)), None);
        let host = Init {
            skills: vec!["x".into()],
            agents: vec!["y".into()],
            slash_commands: vec!["z".into()],
            ..init(&TOOLS, &[("ktx", "connected")], &[])
        };
        assert_eq!(breach(&host), None);
    }

    #[test]
    fn everything_that_differs_is_named() {
        let hostile = init(
            &["Bash", TOOLS[0], "mcp__evil__x"],
            &[("evil", "connected"), ("ktx", "failed")],
            &[("cc-plugin-privacy", "builtin"), ("stranger", "/home/dev/.claude/plugins/stranger")],
        );
        assert_eq!(
            breach(&hostile).as_deref(),
            Some(
                "Claude Code runtime isolation failed: tools=Bash,mcp__evil__x missing_tools=mcp__ktx__wiki_write \
                 mcp_servers=evil missing_mcp_servers=ktx plugins=stranger"
            )
        );
    }

    #[test]
    fn one_difference_is_enough() {
        for (bad, part) in [
            (init(&[], &[("ktx", "connected")], &[]), "missing_tools=mcp__ktx__wiki_read,mcp__ktx__wiki_write"),
            (init(&TOOLS, &[], &[]), "missing_mcp_servers=ktx"),
            (init(&TOOLS, &[("ktx", "pending")], &[]), "missing_mcp_servers=ktx"),
            (init(&TOOLS, &[("ktx", "connected"), ("other", "failed")], &[]), "mcp_servers=other"),
            (init(&TOOLS, &[("ktx", "connected")], &[("p", "/somewhere")]), "plugins=p"),
        ] {
            let sentence = breach(&bad).unwrap();
            assert!(sentence.contains(part), "{sentence}");
            assert_eq!(sentence.matches("(none)").count(), 4, "{sentence}");
        }
    }

    #[test]
    fn an_agent_without_tools_has_no_server() {
        let none = Allowed::new(Vec::<String>::new(), Vec::<String>::new());
        assert_eq!(none.breach(&init(&[], &[], &[])), None);
        assert!(none.breach(&init(&[], &[("ktx", "connected")], &[])).is_some());
    }

    /// The first `system/init` line of a recorded run.
    fn recorded(capture: &str) -> Vec<u8> {
        let path = format!("{}/tests/fixtures/captures/{capture}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read(path).unwrap();
        let init = |line: &&[u8]| crate::decode::line(line).body.kind() == crate::decode::Kind::Init;
        text.split(|byte| *byte == b'\n').find(init).unwrap().to_vec()
    }

    fn judged(capture: &str) -> Option<String> {
        let line = recorded(capture);
        let crate::decode::Body::Init(init) = crate::decode::line(&line).body else { panic!("no init line") };
        let own = init.tools.iter().filter(|name| name.starts_with("mcp__ktx__"));
        Allowed::new(own.map(ToString::to_string), ["ktx"]).breach(&init)
    }

    #[test]
    fn recorded_runs_are_judged_as_they_were() {
        assert_eq!(judged("isolation_recommended_hostile.jsonl"), None);
        let breach = judged("isolation_none_hostile.jsonl").unwrap();
        assert!(breach.contains("tools=") && breach.contains("Bash") && breach.contains("mcp_servers="), "{breach}");
        for broken in ["mcp_server_missing.jsonl", "mcp_server_never_ready.jsonl"] {
            assert!(judged(broken).unwrap().contains("missing_mcp_servers=ktx"), "{broken}");
        }
    }

    #[test]
    fn settings_that_were_read_are_a_breach() {
        assert_eq!(settings_sources(&json!({"effective": {}, "sources": []})), Some(vec![]));
        assert_eq!(
            settings_sources(&json!({"sources": ["user", {"source": "projectSettings"}, {"x": 1}]})),
            Some(vec!["user".into(), "projectSettings".into(), r#"{"x":1}"#.into()])
        );
        for silent in [json!(null), json!({}), json!({"sources": null}), json!({"sources": "all"})] {
            assert_eq!(settings_sources(&silent), None, "{silent}");
        }
        assert_eq!(settings_breach(Some(&[])), None);
        assert!(
            settings_breach(None).is_some_and(|sentence| sentence.ends_with("does not say which settings it has read"))
        );
        assert_eq!(
            settings_breach(Some(&["user".into(), "project".into()])).as_deref(),
            Some("Claude Code runtime isolation failed: setting_sources=user,project")
        );
    }
}
