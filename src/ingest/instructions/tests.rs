//! Instructions of a project: overrides, additions and invalid files.

use std::{fs, os::unix::fs::symlink};

use super::*;

struct InstructionsFixture(tempfile::TempDir);

impl InstructionsFixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn read(&self) -> (Instructions, Vec<String>) {
        let (instructions, warnings) = Instructions::load(self.0.path()).unwrap();
        (
            instructions,
            ingestdeck_core::diagnostic::to_lines(&warnings),
        )
    }

    fn refused(&self) -> String {
        Instructions::load(self.0.path()).unwrap_err().to_line()
    }
}

fn skill(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: What {name} is for.\n---\n{body}\n")
}

fn names(instructions: &Instructions, extra: &[&str]) -> Vec<String> {
    instructions
        .skills_for_unit(&skill::COMMON_SKILLS, extra)
        .iter()
        .map(|skill| skill.name.clone())
        .collect()
}

#[test]
fn project_without_instructions_uses_bundled_ones() {
    assert_eq!(
        InstructionsFixture::new().read(),
        (Instructions::default(), Vec::new())
    );
    let nowhere =
        Instructions::load(Path::new(&ingestdeck_test_support::missing("project"))).unwrap();
    assert!(nowhere.0.overrides.is_empty());
    assert!(nowhere.0.prompt(PromptKind::WorkUnit).starts_with("<role>"));
    assert_eq!(
        names(&nowhere.0, &["dbt_ingest"]),
        ["ingest_triage", "sl_capture", "wiki_capture", "dbt_ingest"]
    );
}

#[test]
fn project_instructions_override_and_are_reported() {
    let place = InstructionsFixture::new()
        .with(".ktx/prompts/work_unit.md", "Be brief.\n")
        .with(".ktx/prompts/notes.txt", "no prompt")
        .with(
            ".ktx/skills/wiki_capture/SKILL.md",
            skill("wiki_capture", "Ours."),
        )
        .with(
            ".ktx/skills/dbt_ingest/SKILL.md",
            skill("dbt_ingest", "Ours too."),
        )
        .with(
            ".ktx/skills/house_style/SKILL.md",
            skill("house_style", "New."),
        )
        .with(
            ".ktx/canonical-pins.yaml",
            "arr: annual-recurring-revenue\nchurn: churn-rate\n",
        );
    let (instructions, idle) = place.read();
    assert_eq!(idle, [] as [&str; 0]);
    assert_eq!(instructions.prompt(PromptKind::WorkUnit), "Be brief.");
    assert!(
        instructions
            .prompt(PromptKind::Verification)
            .starts_with("<pre_write_verification>")
    );
    assert_eq!(
        names(&instructions, &[]),
        ["ingest_triage", "sl_capture", "wiki_capture", "house_style"]
    );
    let skills = instructions.skills_for_unit(&skill::COMMON_SKILLS, &["dbt_ingest"]);
    let bodies: Vec<_> = skills.iter().map(|skill| skill.body.clone()).collect();
    assert_eq!(bodies[2..], ["Ours.", "Ours too.", "New."]);
    assert_eq!(
        instructions.pins[0],
        ("arr".into(), "annual-recurring-revenue".into())
    );
    let messages: Vec<_> = instructions
        .overrides
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        messages,
        [
            "prompt work_unit from .ktx/prompts/work_unit.md instead of the program's",
            "skill dbt_ingest from .ktx/skills/dbt_ingest/SKILL.md instead of the program's",
            "skill house_style from .ktx/skills/house_style/SKILL.md",
            "skill wiki_capture from .ktx/skills/wiki_capture/SKILL.md instead of the program's",
            "2 canonical pins from .ktx/canonical-pins.yaml",
        ]
    );
}

#[test]
fn a_skill_for_others_is_not_offered_to_units() {
    let text = skill("sl_capture", "x").replace("---\nx", "callers: [research]\n---\nx");
    let (instructions, _) = InstructionsFixture::new()
        .with(".ktx/skills/sl_capture/SKILL.md", text)
        .read();
    assert_eq!(names(&instructions, &[]), ["ingest_triage", "wiki_capture"]);
}

#[test]
fn unused_instruction_files_are_reported() {
    let place = InstructionsFixture::new()
        .with(".ktx/prompts/work-units.md", "x")
        .with(".ktx/prompts/memory_agent_bundle_ingest_work_unit.md", "x")
        .with(".ktx/skills/empty/README.md", "x")
        .with(".ktx/skills/.DS_Store", "x")
        .with(".ktx/canonical-pins.yaml", "# none yet\n");
    let (instructions, idle) = place.read();
    assert_eq!(instructions, Instructions::default());
    assert_eq!(
        idle,
        [
            ".ktx/prompts/memory_agent_bundle_ingest_work_unit.md is ignored: only these prompts can be replaced: work_unit.md, reconcile.md, external_text.md, verification.md",
            ".ktx/prompts/work-units.md is ignored: only these prompts can be replaced: work_unit.md, reconcile.md, external_text.md, verification.md; did you mean work_unit.md?",
            ".ktx/skills/empty is ignored: it contains no SKILL.md",
        ]
    );
}

#[test]
fn invalid_instructions_are_rejected_on_open() {
    let skill_at = |name: &str, text: &str| {
        InstructionsFixture::new()
            .with(&format!(".ktx/skills/{name}/SKILL.md"), text)
            .refused()
    };
    let pins = |text: &str| InstructionsFixture::new().with(PINS_FILE, text).refused();
    let prompt = |bytes: &[u8]| {
        InstructionsFixture::new()
            .with(".ktx/prompts/work_unit.md", bytes)
            .refused()
    };
    let messages = [
        prompt(b" \n"),
        prompt(b"caf\xe9"),
        prompt(&vec![b'x'; 64 * 1024 + 1]),
        skill_at("house_style", "# no frontmatter"),
        skill_at("house_style", &skill("other", "x")),
        skill_at("house style", &skill("house style", "x")),
        skill_at("house_style", &skill("house_style", " ")),
        pins("- arr"),
        pins("arr: [a]\n"),
        pins("ok: fine\narr: \"two\\nlines\"\n"),
        pins("a: b: c\n"),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn nothing_is_read_through_a_link_or_out_of_a_pipe() {
    let secret = InstructionsFixture::new()
        .with("secret.md", "hunter2")
        .with("house/SKILL.md", skill("house", "hunter2"));
    let out = secret.0.path();
    let refused = |link: &str, to: &Path| {
        let place = InstructionsFixture::new();
        let link = place.0.path().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(to, link).unwrap();
        let messages = place.refused();
        assert!(
            messages.contains("symbolic link") && !messages.contains("hunter2"),
            "{messages}"
        );
    };
    refused(".ktx/prompts/work_unit.md", &out.join("secret.md"));
    refused(".ktx/skills/house", &out.join("house"));
    refused(".ktx/skills", out);
    refused(PINS_FILE, &out.join("secret.md"));

    let place = InstructionsFixture::new().with(".ktx/prompts/x.txt", "");
    let pipe = place.0.path().join(".ktx/prompts/work_unit.md");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(place.refused().contains("it is not a regular file"));
}

#[test]
fn skill_count_is_limited() {
    let place = (0..=MAX_SKILLS).fold(InstructionsFixture::new(), |place, n| {
        place.with(&format!(".ktx/skills/s{n}/x"), "")
    });
    assert_eq!(
        place.refused(),
        ".ktx/skills holds 101 entries; keep 100 skills or fewer"
    );
}
