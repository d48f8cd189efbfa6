//! One line of any format, taken apart as far as an entry needs: time, lane, body. Never fails.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{detect::Format, times};
use crate::{
    decode::{self, Kind, Line},
    run::source::{Arrived, Lane},
    tape::{Body, Entry, Millis, Seq},
};

/// What a line says by itself.
#[derive(Debug)]
pub(super) struct Parsed<'a> {
    /// Its own time, if it has one.
    pub(super) at: Option<Millis>,
    lane: Owner<'a>,
    body: Body<'a>,
    intact: bool,
    /// What the line of a capture says, which is where its time stands.
    line: Option<Line<'a>>,
}

#[derive(Debug)]
enum Owner<'a> {
    Run,
    Attempt(Cow<'a, str>, u32),
    BySession,
}

/// How the lines of one file are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Its format.
    pub(super) format: Format,
    /// Time 0 in milliseconds since 1970, for formats with wall-clock times; `None` if the file has no times.
    pub(super) epoch: Option<i64>,
}

impl Reading {
    /// Takes `line` apart.
    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Parsed<'a> {
        match self.format {
            Format::Tape => tape(line),
            Format::TwoWay => two_way(line),
            Format::Capture
            | Format::SessionFile
            | Format::KtxTranscript
            | Format::MemoryFlow
            | Format::JsonLines
            | Format::Document
            | Format::Empty => {
                let body = stdout(line);
                let line = decode::line(line.trim_ascii());
                let own = || times::read(line.timestamp.as_deref()?);
                let at = self.epoch.and_then(|epoch| Some(own()?.saturating_sub(epoch)));
                let at = at.map(|at| Millis(u64::try_from(at).unwrap_or(0)));
                Parsed { at, lane: Owner::BySession, body, intact: true, line: Some(line) }
            }
        }
    }

    /// Takes apart a line of `length` bytes of which only the first and the last are there. Gives the size of its body
    /// too. `None` if all of the line is needed for that.
    pub(super) fn parse_head<'a>(&self, head: &'a [u8], tail: &[u8], length: u64) -> Option<(Parsed<'a>, u64)> {
        let blank = (tail.len() - tail.trim_ascii_end().len()) as u64;
        if blank == tail.len() as u64 {
            return None;
        }
        match self.format {
            Format::Tape => {
                let (entry, before) = Entry::parse_head(head)?;
                let lane = entry.lane.map_or(Owner::Run, |(unit, number)| Owner::Attempt(unit, number));
                let at = Some(entry.at);
                let size = length.checked_sub(blank + before as u64 + 1)?;
                Some((Parsed { at, lane, body: entry.body, intact: true, line: None }, size))
            }
            Format::Capture | Format::SessionFile | Format::JsonLines => {
                let body = stdout(head);
                let size = length.checked_sub(blank + (head.len() - body.bytes().len()) as u64)?;
                let own = || times::own(tail).or_else(|| times::own(&head[..head.len().min(tail.len())]));
                let at = self.epoch.and_then(|epoch| Some(own()?.saturating_sub(epoch)));
                let at = at.map(|at| Millis(u64::try_from(at).unwrap_or(0)));
                Some((Parsed { at, lane: Owner::BySession, body, intact: true, line: None }, size))
            }
            Format::TwoWay | Format::Document | Format::KtxTranscript | Format::MemoryFlow | Format::Empty => None,
        }
    }

    /// True if entries have times of their own.
    pub(super) fn has_times(&self) -> bool {
        matches!(self.format, Format::Tape | Format::TwoWay) || self.epoch.is_some()
    }
}

impl<'a> Parsed<'a> {
    /// Decodes its stdout line too, if that was not needed so far: whoever folds it is then spared the work.
    pub(super) fn decode(&mut self) {
        if let (None, Body::Out(bytes), true) = (&self.line, &self.body, self.intact) {
            self.line = Some(decode::line(bytes));
        }
    }

    /// What its stdout line is, if it was decoded.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.line.as_ref().map(|line| line.body.kind())
    }

    /// Hands it on as entry `seq` at time `at`.
    pub(super) fn deliver(&self, seq: Seq, at: Millis, sink: &mut dyn FnMut(Arrived<'_>)) {
        let lane = match &self.lane {
            Owner::Run => Lane::Run,
            Owner::Attempt(unit, number) => Lane::Attempt(unit, *number),
            Owner::BySession => Lane::BySession,
        };
        sink(Arrived { seq, at, lane, body: self.body.clone(), intact: self.intact, line: self.line.as_ref() });
    }
}

/// The decoder is total, so a body need not be valid to count as one; only what cannot be JSON at all is text.
fn stdout(line: &[u8]) -> Body<'_> {
    let line = line.trim_ascii();
    if line.starts_with(b"{") { Body::Out(line) } else { Body::Raw(Cow::Borrowed(line)) }
}

fn tape(line: &[u8]) -> Parsed<'_> {
    match Entry::parse(line.trim_ascii()) {
        Ok(entry) => Parsed {
            at: Some(entry.at),
            lane: entry.lane.map_or(Owner::Run, |(unit, number)| Owner::Attempt(unit, number)),
            body: entry.body,
            intact: true,
            line: None,
        },
        Err(_) => {
            Parsed { at: None, lane: Owner::Run, body: Body::Raw(Cow::Borrowed(line)), intact: false, line: None }
        }
    }
}

fn two_way(line: &[u8]) -> Parsed<'_> {
    #[derive(Deserialize)]
    struct Frame<'a> {
        t: Option<f64>,
        #[serde(borrow)]
        dir: Cow<'a, str>,
        #[serde(borrow)]
        msg: &'a RawValue,
    }
    let Ok(frame) = serde_json::from_slice::<Frame<'_>>(line) else {
        return Parsed { at: None, lane: Owner::BySession, body: stdout(line), intact: true, line: None };
    };
    let message = frame.msg.get().as_bytes();
    let body = match frame.dir.as_ref() {
        "->" | "in" => Body::In(message),
        "err" | "stderr" => Body::Err(String::from_utf8_lossy(message)),
        _ => stdout(message),
    };
    // Float to integer casts saturate: a time before the start is 0.
    let at = frame.t.filter(|seconds| seconds.is_finite()).map(|seconds| Millis((seconds * 1000.0).round() as u64));
    Parsed { at, lane: Owner::BySession, body, intact: true, line: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(format: Format) -> Reading {
        Reading { format, epoch: None }
    }

    #[test]
    fn both_notations_of_a_direction_are_read() {
        let body = |line: &'static str| reading(Format::TwoWay).parse(line.as_bytes()).body;
        assert_eq!(body(r#"{"t":1,"dir":"->","msg":{"a":1}}"#), Body::In(br#"{"a":1}"#));
        assert_eq!(body(r#"{"t":1,"dir":"in","msg":{}}"#), Body::In(b"{}"));
        assert_eq!(body(r#"{"t":1,"dir":"<-","msg":{}}"#), Body::Out(b"{}"));
        assert_eq!(body(r#"{"dir":"out","msg":"no json"}"#), Body::Raw(Cow::Borrowed(b"\"no json\"")));
        assert_eq!(body(r#"{"other":1}"#), Body::Out(br#"{"other":1}"#));
    }

    #[test]
    fn hostile_times_saturate() {
        let at = |t: &str| reading(Format::TwoWay).parse(format!(r#"{{"t":{t},"dir":"in","msg":0}}"#).as_bytes()).at;
        assert_eq!(at("0.0226"), Some(Millis(23)));
        assert_eq!(at("-5"), Some(Millis(0)));
        assert_eq!(at("1e300"), Some(Millis(u64::MAX)));
        assert_eq!(at("null"), None);
    }

    #[test]
    fn a_torn_entry_keeps_its_bytes() {
        let parsed = reading(Format::Tape).parse(br#"{"seq":1,"at"#);
        assert_eq!((parsed.intact, parsed.body), (false, Body::Raw(Cow::Borrowed(br#"{"seq":1,"at"#))));
    }
}
