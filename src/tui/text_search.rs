//! Searches for text and for moments in content that must be read first. Works in slices, so that keys are never
//! delayed.

use super::{
    cache::ScreenCache,
    effect::{SearchRequest, SearchScope},
    load,
    update::find::{matches, nearest},
};
use crate::{run::Timeline, tape::Seq};

/// Maximum bytes read per slice.
const SLICE: usize = 2 * 1024 * 1024;
/// Maximum rows searched per slice.
const ROWS: usize = 4096;

/// A search in progress.
#[derive(Debug)]
pub(crate) struct TextSearch {
    find: SearchRequest,
    needle: QueryMatcher,
    done: usize,
}

impl TextSearch {
    /// Starts next to `find.from`.
    pub(crate) fn new(find: SearchRequest) -> Self {
        Self { needle: QueryMatcher::new(&find.query), find, done: 0 }
    }

    /// Searches one slice. Returns `Some` when the search has ended, with the position of the match if there is one.
    pub(crate) fn slice(&mut self, timeline: &mut Timeline, cache: &ScreenCache) -> Option<Option<usize>> {
        let len = match self.find.scope {
            SearchScope::Document => {
                let Some(document) = cache.document() else { return Some(None) };
                let hit = |line: usize| matches(&document.text(line), &self.find.query);
                return Some(nearest(document.lines.len(), self.find.from, self.find.forward, hit));
            }
            SearchScope::Rows(attempt_id) => timeline.view().rows(attempt_id).len(),
            SearchScope::Entries(attempt_id) => timeline.view().entries(attempt_id).len(),
        };
        let (mut bytes, mut rows) = (0, 0);
        while bytes < SLICE && rows < ROWS {
            if self.done >= len {
                return Some(None);
            }
            self.done += 1;
            rows += 1;
            let from = self.find.from.min(len - 1);
            let away = self.done;
            let place = if self.find.forward { (from + away) % len } else { (from + len - away) % len };
            for seq in self.entries(timeline, place) {
                let hit = load::read(timeline, seq, |arrived| {
                    let raw = load::bytes(&arrived.body);
                    bytes += raw.len();
                    self.needle.is_in(raw)
                });
                if hit == Ok(true) {
                    return Some(Some(place));
                }
            }
        }
        None
    }

    fn entries(&self, timeline: &Timeline, place: usize) -> Vec<Seq> {
        let run_view = timeline.view();
        match self.find.scope {
            SearchScope::Rows(attempt_id) => run_view.rows(attempt_id).get(place).map_or_else(Vec::new, |row| {
                let last = row.last(run_view.state.entries).filter(|last| *last != row.first());
                [Some(row.first()), last].into_iter().flatten().collect()
            }),
            SearchScope::Entries(attempt_id) => {
                run_view.entries(attempt_id).get(place).map(|seq| Seq(u64::from(*seq))).into_iter().collect()
            }
            SearchScope::Document => Vec::new(),
        }
    }
}

/// Query for raw lines: as typed, and as escaped in JSON.
#[derive(Debug)]
struct QueryMatcher {
    forms: Vec<Vec<u8>>,
    is_case_sensitive: bool,
}

impl QueryMatcher {
    fn new(query: &str) -> Self {
        let json = serde_json::to_string(query).unwrap_or_default();
        let mut forms = vec![query.as_bytes().to_vec()];
        let escaped = json.trim_matches('"').as_bytes().to_vec();
        if escaped != forms[0] && !escaped.is_empty() {
            forms.push(escaped);
        }
        Self { forms, is_case_sensitive: query.chars().any(char::is_uppercase) }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| {
            if self.is_case_sensitive {
                memchr::memmem::find(bytes, form).is_some()
            } else {
                find_any_case(bytes, form)
            }
        })
    }
}

/// Finds `needle`, ignoring the case of ASCII letters.
fn find_any_case(bytes: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else { return true };
    let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    let Some(last) = bytes.len().checked_sub(needle.len()) else { return false };
    memchr::memchr2_iter(lower, upper, &bytes[..=last])
        .any(|at| bytes[at..at + needle.len()].eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_raw_and_as_json_writes_it() {
        let hit = |query: &str, bytes: &[u8]| QueryMatcher::new(query).is_in(bytes);
        assert!(hit("arr", b"{\"x\":\"Mart_ARR\"}"));
        assert!(!hit("Arr", b"{\"x\":\"Mart_ARR\"}"));
        assert!(hit("print \"hi\"", br#"{"x":"print \"hi\""}"#));
        assert!(hit("漢", "\u{6f22}".as_bytes()));
        assert!(!hit("long needle", b"short"));
    }
}
