//! The user guide: the pages of `assets/guide`, for `ingestdeck help TOPIC` and for the documentation of the crate.
//!
//! Knows no commands. To add a page, add a file and one line below; the README links every page, which a test checks.

/// A page of the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuidePage {
    /// The argument of `ingestdeck help`, and the name of the file.
    pub topic: &'static str,
    /// The page in Markdown, followed by the file that it describes, if any.
    pub text: &'static str,
}

impl GuidePage {
    /// The title: the first heading.
    pub fn title(&self) -> &'static str {
        self.text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
    }
}

macro_rules! pages {
    ($($module:ident = $topic:literal $(with $file:literal)?),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("../assets/guide/", $topic, ".md"))]
            pub mod $module {}
        )*

        /// Every page, in reading order.
        pub const PAGES: &[GuidePage] =
            &[$(GuidePage {
                topic: $topic,
                text: concat!(
                    include_str!(concat!("../assets/guide/", $topic, ".md"))
                    $(, "\n## ", $file, "\n\n```toml\n", include_str!(concat!("../assets/", $file)), "```\n")?
                ),
            }),*];
    };
}

pages! {
    install = "install",
    ingest = "ingest",
    warehouse = "warehouse",
    resume = "resume",
    control = "control",
    workers = "workers",
    automate = "automate",
    review = "review",
    sessions = "sessions",
    policy = "policy",
    screen = "screen",
    keys = "keys",
    reports = "reports",
    artifacts = "artifacts",
    bench = "bench",
    audit = "audit",
    provenance = "provenance",
    tracing = "tracing",
    session_files = "session-files",
    isolation = "isolation",
    security = "security",
    settings = "settings" with "config.toml",
    formats = "formats",
    exit_codes = "exit-codes",
    releases = "releases",
    coming_from_ktx = "coming-from-ktx",
    commands = "commands",
    pictures = "pictures",
    glossary = "glossary",
    architecture = "architecture",
    attempt_loop = "attempt-loop",
    ending_processes = "ending-processes",
    integration = "integration",
    time_travel = "time-travel",
    extending = "extending",
    development = "development",
}

/// The page about `topic`.
pub fn find(topic: &str) -> Option<&'static GuidePage> {
    PAGES.iter().find(|page| page.topic == topic)
}
