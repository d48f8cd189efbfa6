//! Opening a very large session file of Claude Code: first screen, whole session, memory. Measures whole processes,
//! against `wc -l`.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use crate::{
    capture::{BenchRng, prose, words},
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, pairs},
    measured_process::{ProbeOutput, argument, ingestdeck, run},
};

const PAIRS: usize = 9;
/// Version of the generated lines. Increase it when they change, so that old files are not reused.
const SHAPE: u32 = 1;
/// The session, by which Claude Code names its file.
const SESSION: &str = "5e551011-0000-4000-8000-000000000001";
/// Turns between two branches that were taken back, and between two compactions.
const TURNS: (u64, u64) = (25, 40);
/// Lines that a compaction writes again.
const REPEATED: usize = 60;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let path = prepare()?;
    let path = argument(&path)?;
    let count = || Ok(run("wc", &["-l", path], ProbeOutput::Null)?.seconds);
    let until = |step: &'static str| {
        let arguments = ["replay", path, "--ui", "tui", "--until", step];
        move || run(ingestdeck(), &arguments, ProbeOutput::Terminal)
    };
    let first = until("first-frame");
    let measured = pairs(PAIRS, || Ok(first()?.seconds), count)?;
    let bar = FigureGoal {
        required: Threshold::AtMost(0.5),
        goal: Threshold::AtMost(0.1),
    };
    report.ratio("session file: first screen / wc -l", &measured, bar);
    let (end, mut peaks) = (until("end"), Vec::new());
    let measured = pairs(
        5,
        || {
            let run = end()?;
            peaks.push(run.peak_kib / 1024.0);
            Ok(run.seconds)
        },
        count,
    )?;
    let bar = FigureGoal {
        required: Threshold::AtMost(16.0),
        goal: Threshold::AtMost(8.0),
    };
    report.ratio(
        "session file: tree and everything folded / wc -l",
        &measured,
        bar,
    );
    let bar = FigureGoal {
        required: Threshold::AtMost(128.0),
        goal: Threshold::AtMost(96.0),
    };
    report.figure("session file: peak memory, MiB", &Sample::new(peaks), bar);
    Ok(())
}

/// The session file with the size in `INGESTDECK_BENCH_MB`, generated unless it exists.
fn prepare() -> BenchResult<PathBuf> {
    let megabytes: u64 = match std::env::var("INGESTDECK_BENCH_MB") {
        Ok(text) => text.parse()?,
        Err(_) => 1000,
    };
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("session-{SHAPE}-{megabytes}"));
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{SESSION}.jsonl"));
    if !path.exists() {
        let draft = path.with_extension("draft");
        let out = BufWriter::with_capacity(1 << 20, File::create(&draft)?);
        SyntheticFile::new(out).write(megabytes * 1_000_000)?;
        fs::rename(draft, &path)?;
    }
    Ok(path)
}

/// A session with calls, compactions that write lines again, and branches that were taken back.
struct SyntheticFile<W> {
    out: W,
    written: u64,
    random: BenchRng,
    words: Vec<u8>,
    /// `uuid` of the last line.
    last: Option<String>,
    recent: VecDeque<Vec<u8>>,
    messages: u64,
    calls: u64,
    seconds: u64,
}

impl<W: Write> SyntheticFile<W> {
    fn new(out: W) -> Self {
        let mut random = BenchRng(0x5e55);
        let words = words(&mut random);
        Self {
            out,
            written: 0,
            random,
            words,
            last: None,
            recent: VecDeque::new(),
            messages: 0,
            calls: 0,
            seconds: 0,
        }
    }

    fn write(&mut self, size: u64) -> io::Result<()> {
        self.prompt(None, "document the berths")?;
        let mut turn = 0;
        while self.written < size {
            for _ in 0..20 {
                self.messages += 1;
                self.block("thinking", 700.0, "tool_use")?;
                if self.random.below(2) == 0 {
                    self.block("text", 350.0, "tool_use")?;
                }
                for _ in 0..=self.random.below(3) {
                    self.call()?;
                }
            }
            self.messages += 1;
            self.block("text", 300.0, "end_turn")?;
            let total = turn as f64 * 0.01;
            self.raw(&format!(
                r#"{{"type":"cost-state","sessionId":"{SESSION}","totalCostUSD":{total:.2},"modelUsage":{{}}}}"#
            ))?;
            turn += 1;
            let before = self.last.clone();
            self.prompt(before.as_deref(), &format!("continue with step {turn}"))?;
            if turn % TURNS.0 == 0 {
                self.messages += 1;
                self.block("text", 300.0, "end_turn")?;
                self.prompt(before.as_deref(), &format!("rather step {turn}"))?;
            }
            if turn % TURNS.1 == 0 {
                self.compaction()?;
            }
        }
        self.raw(&format!(
            r#"{{"type":"last-prompt","lastPrompt":"continue","sessionId":"{SESSION}"}}"#
        ))?;
        self.out.flush()
    }

    fn raw(&mut self, line: &str) -> io::Result<()> {
        self.written += line.len() as u64 + 1;
        writeln!(self.out, "{line}")
    }

    /// A line of the conversation with these fields.
    fn line(&mut self, parent: Option<&str>, kind: &str, fields: &str) -> io::Result<()> {
        let (high, low) = (self.random.next(), self.random.next());
        let uuid = format!(
            "{:08x}-{:04x}-4{:03x}-8000-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low & 0xffff_ffff_ffff
        );
        self.seconds += self.random.below(3);
        let (minutes, seconds) = (self.seconds / 60, self.seconds % 60);
        let (hours, minutes) = (minutes / 60, minutes % 60);
        let (day, hours) = (1 + hours / 24 % 28, hours % 24);
        let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
        let line = format!(
            "{{\"parentUuid\":{parent},\"isSidechain\":false,\"userType\":\"external\",\"cwd\":\"/home/dev/harbor\",\
             \"sessionId\":\"{SESSION}\",\"version\":\"2.1.332\",\"gitBranch\":\"main\",\"slug\":\"calm-harbor\",\
             \"type\":\"{kind}\",{fields},\"uuid\":\"{uuid}\",\
             \"timestamp\":\"2026-01-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.250Z\"}}"
        );
        self.last = Some(uuid);
        self.raw(&line)?;
        if line.len() < 20_000 {
            self.recent.push_back(line.into_bytes());
            if self.recent.len() > REPEATED {
                self.recent.pop_front();
            }
        }
        Ok(())
    }

    fn prompt(&mut self, parent: Option<&str>, text: &str) -> io::Result<()> {
        let message = format!(r#""message":{{"role":"user","content":"{text}"}}"#);
        self.line(parent, "user", &message)
    }

    fn prose(&mut self, median: f64, spread: f64) -> String {
        let (mut text, size) = (Vec::new(), self.random.size(median, spread));
        prose(&mut self.random, &self.words, &mut text, size);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn assistant(&mut self, content: &str, stop: &str) -> io::Result<()> {
        let (tokens, message) = (self.random.below(9000), self.messages);
        let fields = format!(
            "\"message\":{{\"id\":\"msg_{message:012}\",\"type\":\"message\",\"role\":\"assistant\",\
             \"model\":\"claude-sonnet-5-5\",\"content\":[{content}],\"stop_reason\":\"{stop}\",\
             \"usage\":{{\"input_tokens\":{tokens},\"cache_creation_input_tokens\":100,\
             \"cache_read_input_tokens\":{tokens},\"output_tokens\":12}}}},\"requestId\":\"req_{message:012}\""
        );
        let parent = self.last.clone();
        self.line(parent.as_deref(), "assistant", &fields)
    }

    fn block(&mut self, kind: &str, median: f64, stop: &str) -> io::Result<()> {
        let text = self.prose(median, 1.0);
        self.assistant(&format!(r#"{{"type":"{kind}","{kind}":"{text}"}}"#), stop)
    }

    /// A call and its result, which is stored twice.
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        let (call, body) = (self.calls, self.prose(300.0, 1.2));
        self.assistant(
            &format!(
                r#"{{"type":"tool_use","id":"toolu_{call:012}","name":"Read","input":{{"file_path":"m{call}.yml","body":"{body}"}}}}"#
            ),
            "tool_use",
        )?;
        let text = self.prose(1000.0, 1.7);
        let fields = format!(
            "\"message\":{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\"toolu_{call:012}\",\
             \"type\":\"tool_result\",\"content\":\"{text}\"}}]}},\
             \"toolUseResult\":{{\"type\":\"text\",\"file\":{{\"filePath\":\"m{call}.yml\",\"content\":\"{text}\"}}}}"
        );
        let parent = self.last.clone();
        self.line(parent.as_deref(), "user", &fields)
    }

    fn compaction(&mut self) -> io::Result<()> {
        let repeated: Vec<_> = self.recent.iter().cloned().collect();
        let before = self.last.take().unwrap_or_default();
        let boundary = format!(
            "\"subtype\":\"compact_boundary\",\"logicalParentUuid\":\"{before}\",\
             \"compactMetadata\":{{\"trigger\":\"auto\",\"preTokens\":150000}}"
        );
        self.line(None, "system", &boundary)?;
        let boundary = self.last.clone();
        self.line(
            boundary.as_deref(),
            "user",
            r#""isCompactSummary":true,"message":{"role":"user","content":"This session is being continued."}"#,
        )?;
        for line in repeated {
            self.raw(&String::from_utf8_lossy(&line))?;
        }
        Ok(())
    }
}
