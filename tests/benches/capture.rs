//! Generates a deterministic capture of any size that resembles those of the real CLI: median payload about 1 KB, a
//! log-normal tail up to 2 MB, tool results stored twice, the type not first in result lines.

use std::{
    fmt, fs,
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use crate::harness::BenchResult;

/// Version of the generated lines. Increase it when they change, so that old files are not reused.
const SHAPE: u32 = 1;

/// A word that occurs only in the last line.
pub(crate) const LAST_WORD: &str = "LASTLINEMARK";

/// Largest payload in bytes.
const LARGEST: f64 = 2e6;

pub(crate) struct BenchCapture {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
}

impl fmt::Display for BenchCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} bytes, {} lines",
            self.path.display(),
            self.bytes,
            self.lines
        )
    }
}

/// Lines per session, unless more sessions are requested.
const SESSION: u64 = 3000;

/// Average bytes per line.
const LINE: u64 = 3700;

/// The capture with the size in `INGESTDECK_BENCH_MB`, generated unless it exists.
pub(crate) fn prepare() -> BenchResult<BenchCapture> {
    made("capture", |_| SESSION)
}

/// A capture of that size with one session.
pub(crate) fn of_one_session() -> BenchResult<BenchCapture> {
    made("one-session", |_| u64::MAX)
}

/// A capture of that size with at least `count` sessions.
pub(crate) fn of_units(count: u64) -> BenchResult<BenchCapture> {
    // Line lengths vary, so generate some more sessions than needed.
    made(&format!("capture-{count}"), |bytes| {
        (bytes / LINE / (count + count / 10)).clamp(2, SESSION)
    })
}

fn made(name: &str, session: impl FnOnce(u64) -> u64) -> BenchResult<BenchCapture> {
    let megabytes: u64 = match std::env::var("INGESTDECK_BENCH_MB") {
        Ok(text) => text.parse()?,
        Err(_) => 1000,
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}-{SHAPE}-{megabytes}.jsonl"));
    if !path.exists() {
        let draft = path.with_extension("draft");
        let bytes = megabytes * 1_000_000;
        write(
            BufWriter::with_capacity(1 << 20, File::create(&draft)?),
            bytes,
            session(bytes),
        )?;
        fs::rename(draft, &path)?;
    }
    let bytes = fs::read(&path)?;
    Ok(BenchCapture {
        bytes: bytes.len() as u64,
        lines: memchr::memchr_iter(b'\n', &bytes).count() as u64,
        path,
    })
}

fn write(mut out: impl Write, size: u64, most: u64) -> io::Result<()> {
    let mut writer = SyntheticSession::new(most);
    let mut written = 0;
    let mut line = Vec::new();
    while written + (4 << 10) < size {
        line.clear();
        writer.line(&mut line);
        // Prevent a large last line from exceeding the file size by much.
        if written + line.len() as u64 <= size {
            out.write_all(&line)?;
            written += line.len() as u64;
        }
    }
    line.clear();
    writer.result(&mut line, LAST_WORD);
    out.write_all(&line)?;
    out.flush()
}

struct SyntheticSession {
    most: u64,
    random: BenchRng,
    words: Vec<u8>,
    number: u64,
    step: u64,
    call: u64,
    seconds: u64,
}

impl SyntheticSession {
    fn new(most: u64) -> Self {
        let mut random = BenchRng(0x5eed);
        let words = words(&mut random);
        Self {
            most,
            random,
            words,
            number: 0,
            step: 0,
            call: 0,
            seconds: 0,
        }
    }

    fn line(&mut self, out: &mut Vec<u8>) {
        self.step += 1;
        self.seconds += self.random.below(3);
        if self.step == 1 {
            return self.init(out);
        }
        if self.step > self.most {
            self.result(out, "done");
            self.step = 0;
            self.number += 1;
            return;
        }
        match self.random.below(100) {
            0..=11 => self.block(out, "thinking", 700.0, 1.0),
            12..=26 => self.block(out, "text", 350.0, 1.0),
            27..=29 => self.thinking_tokens(out),
            30..=30 => self.denied(out),
            31..=64 => self.tool_use(out),
            _ => self.tool_result(out),
        }
    }

    fn id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.number)
    }

    /// The end of most lines.
    fn tail(&mut self) -> String {
        let uuid = self.random.next();
        format!(
            "\"parent_tool_use_id\":null,\"session_id\":\"{}\",\"uuid\":\"{:08x}-0000-4000-8000-{:012x}\"",
            self.id(),
            uuid >> 32,
            uuid & 0xffff_ffff
        )
    }

    fn stamp(&self) -> String {
        let (minutes, seconds) = (self.seconds / 60, self.seconds % 60);
        let (hours, minutes) = (minutes / 60, minutes % 60);
        let (days, hours) = (hours / 24, hours % 24);
        format!(
            "\"timestamp\":\"2026-01-{:02}T{hours:02}:{minutes:02}:{seconds:02}.250Z\"",
            1 + days % 28
        )
    }

    fn init(&mut self, out: &mut Vec<u8>) {
        let tools: Vec<String> = (0..12)
            .map(|tool| format!("\"mcp__ktx__tool_{tool}\""))
            .collect();
        let tail = self.tail();
        let _ = writeln!(
            out,
            "{{\"type\":\"system\",\"subtype\":\"init\",\"cwd\":\"/home/dev/project\",\"tools\":[{}],\"mcp_servers\":\
             [{{\"name\":\"ktx\",\"status\":\"connected\"}}],\"model\":\"claude-sonnet-4-6\",\"permissionMode\":\
             \"dontAsk\",\"apiKeySource\":\"none\",\"claude_code_version\":\"2.1.330\",{tail}}}",
            tools.join(",")
        );
    }

    fn thinking_tokens(&mut self, out: &mut Vec<u8>) {
        let (count, tail) = (self.random.below(4000), self.tail());
        let _ = writeln!(
            out,
            "{{\"type\":\"system\",\"subtype\":\"thinking_tokens\",\"estimated_tokens\":{count},{tail}}}"
        );
    }

    fn denied(&mut self, out: &mut Vec<u8>) {
        let (call, tail) = (self.call, self.tail());
        let _ = writeln!(
            out,
            "{{\"type\":\"system\",\"subtype\":\"permission_denied\",\"tool_name\":\"Bash\",\"tool_use_id\":\
             \"toolu_{call:012}\",\"message\":\"Permission to use Bash has been denied.\",{tail}}}"
        );
    }

    fn message(&mut self, out: &mut Vec<u8>, content: impl FnOnce(&mut Self, &mut Vec<u8>)) {
        let id = self.step;
        let _ = write!(
            out,
            "{{\"type\":\"assistant\",\"message\":{{\"id\":\"msg_{id:012}\",\"type\":\"message\",\"role\":\"assistant\",\
             \"model\":\"claude-sonnet-4-6\",\"content\":[{{"
        );
        content(self, out);
        let (tokens, tail, stamp) = (self.random.below(9000), self.tail(), self.stamp());
        let _ = writeln!(
            out,
            "}}],\"stop_reason\":null,\"usage\":{{\"input_tokens\":{tokens},\"cache_creation_input_tokens\":0,\
             \"cache_read_input_tokens\":{tokens},\"output_tokens\":12}}}},{tail},{stamp}}}"
        );
    }

    fn block(&mut self, out: &mut Vec<u8>, kind: &str, median: f64, spread: f64) {
        self.message(out, |session, out| {
            let _ = write!(out, "\"type\":\"{kind}\",\"{kind}\":\"");
            let size = session.random.size(median, spread);
            session.prose(out, size);
            out.push(b'"');
        });
    }

    fn tool_use(&mut self, out: &mut Vec<u8>) {
        self.call += 1;
        self.message(out, |session, out| {
            let (call, tool) = (session.call, session.random.below(12));
            let _ = write!(
                out,
                "\"type\":\"tool_use\",\"id\":\"toolu_{call:012}\",\"name\":\"mcp__ktx__tool_{tool}\",\"input\":\
                 {{\"path\":\"models/mart_{tool}.sql\",\"body\":\""
            );
            let size = session.random.size(300.0, 1.2);
            session.prose(out, size);
            out.extend_from_slice(b"\"}");
        });
    }

    fn tool_result(&mut self, out: &mut Vec<u8>) {
        let size = self.random.size(1000.0, 1.7);
        let mut payload = Vec::with_capacity(size + 32);
        self.prose(&mut payload, size);
        let (call, tail, stamp) = (self.call, self.tail(), self.stamp());
        let error = if self.random.below(25) == 0 {
            ",\"is_error\":true"
        } else {
            ""
        };
        let _ = write!(
            out,
            "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\"toolu_{call:012}\",\
             \"type\":\"tool_result\",\"content\":[{{\"type\":\"text\",\"text\":\""
        );
        out.extend_from_slice(&payload);
        let _ = write!(
            out,
            "\"}}]{error}}}]}},{tail},{stamp},\"tool_use_result\":[{{\"type\":\"text\",\"text\":\""
        );
        out.extend_from_slice(&payload);
        out.extend_from_slice(b"\"}]}\n");
    }

    fn result(&mut self, out: &mut Vec<u8>, text: &str) {
        let (turns, tail) = (self.step / 3, self.tail());
        let _ = writeln!(
            out,
            "{{\"duration_api_ms\":99,\"duration_ms\":120,\"stop_reason\":\"end_turn\",\"total_cost_usd\":0.42,\
             \"usage\":{{\"input_tokens\":1000,\"output_tokens\":500}},\"num_turns\":{turns},\"result\":\"{text}\",\
             \"is_error\":false,\"subtype\":\"success\",\"terminal_reason\":\"completed\",\"type\":\"result\",\
             \"permission_denials\":[],{tail}}}"
        );
    }

    fn prose(&mut self, out: &mut Vec<u8>, size: usize) {
        prose(&mut self.random, &self.words, out, size);
    }
}

/// About `size` bytes of JSON string content, with escapes as common in prose and code.
pub(crate) fn prose(random: &mut BenchRng, words: &[u8], out: &mut Vec<u8>, size: usize) {
    let end = out.len() + size;
    while out.len() < end {
        // The pool is cut only between its lines, which are at most 64 bytes long.
        let from = random.below(words.len() as u64 / 2) as usize;
        let from = memchr::memchr(b'|', &words[from..]).map_or(0, |bar| from + bar + 1);
        let room = (end - out.len()).clamp(64, words.len() - from);
        let piece = &words[from..from + room];
        let piece = &piece[..memchr::memrchr(b'|', piece).unwrap_or(0)];
        out.extend(piece.iter().filter(|byte| **byte != b'|'));
    }
}

/// A pool of lines of prose, each ended by a bar, which is not written to the file.
pub(crate) fn words(random: &mut BenchRng) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "select",
        "from",
        "orders",
        "customer_id",
        "revenue",
        "the",
        "metric",
        "is",
        "defined",
        "as",
        "sum(amount)",
        "café",
        "where",
        "\\\"mart\\\"",
        "-- note",
        "group by",
    ];
    let mut pool = Vec::with_capacity(256 << 10);
    while pool.len() < 256 << 10 {
        for _ in 0..5 {
            pool.extend_from_slice(WORDS[random.below(16) as usize].as_bytes());
            pool.push(b' ');
        }
        pool.extend_from_slice(b"\\n|");
    }
    pool
}

/// A small generator (splitmix64), so that the file is identical on all machines.
pub(crate) struct BenchRng(pub(crate) u64);

impl BenchRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A log-normal size. The sum of twelve uniform numbers approximates a normal distribution.
    pub(crate) fn size(&mut self, median: f64, spread: f64) -> usize {
        let uniform = |random: &mut Self| random.next() as f64 / u64::MAX as f64;
        let normal = (0..12).map(|_| uniform(self)).sum::<f64>() - 6.0;
        (median.ln() + spread * normal).exp().min(LARGEST) as usize
    }
}
