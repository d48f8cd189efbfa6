//! Which lines of a session file count. A compaction writes earlier lines again, and a person who goes back to an earlier
//! message leaves a branch behind: such lines are shown, but not counted.
//!
//! Lines are known by `uuid` and form a tree by `parentUuid`. Calls that run in parallel form branches, too; only a
//! second prompt after the same line takes back the first one. It must not interpret what the agent did.

use std::{
    collections::{HashSet, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    io,
    ops::Range,
    sync::Arc,
    thread,
};

use ingestdeck_core::{
    decode::{
        self, LineBody, MessageBlock,
        line_fields::{LineFields, line_fields},
        user_text::{UserText, is_context},
    },
    text::pluralize,
};

use super::{
    file_lines::{EntrySplit, FileLines, NextLine, read_range},
    index::is_blank,
    line_shortener::GIANT,
};

/// Maximum number of lines whose place in the conversation is determined.
const MAX_LINES: usize = 2_000_000;
/// Bytes of a text that determine who wrote it.
const MAX_MARKUP_BYTES: usize = 4096;
/// Minimum number of bytes for which a second reading thread is started.
const MIN_SECOND_THREAD_BYTES: u64 = 32 << 20;

/// Lines in a row that do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetAside {
    /// Number of the first of them, among the lines that are not blank.
    pub(super) first: u64,
    pub(super) lines: u32,
    pub(super) reason: SetAsideReason,
}

/// Why lines do not count, at the first of several that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetAsideReason {
    /// They belong to the lines before.
    Continued,
    /// This number of lines repeats earlier ones.
    Repeated(u32),
    /// They repeat earlier ones, and more may follow.
    Repeating,
    /// A person took back this number of turns, or a prompt without an answer.
    TakenBack(u32),
}

impl SetAside {
    /// The text for readers.
    pub(super) fn text(&self) -> Option<String> {
        Some(match self.reason {
            SetAsideReason::Continued => return None,
            SetAsideReason::Repeated(lines) => format!(
                "{} repeated after a compaction",
                pluralize(lines as usize, "line")
            ),
            SetAsideReason::Repeating => "lines repeated after a compaction".to_owned(),
            SetAsideReason::TakenBack(0) => "1 prompt taken back".to_owned(),
            SetAsideReason::TakenBack(turns) => {
                format!("{} taken back", pluralize(turns as usize, "turn"))
            }
        })
    }
}

/// What reading a whole session file found.
#[derive(Debug, Default)]
pub(super) struct ConversationTree {
    /// Ordered by their positions.
    set_aside: Vec<SetAside>,
    /// Number of them that were passed on.
    passed: usize,
    /// A line belongs to a sub-agent.
    pub(super) has_sidechains: bool,
    /// A line follows one that has the id of another session: the session was resumed under this id.
    pub(super) has_earlier_ids: bool,
    /// Number of lines whose place in the conversation is determined.
    line_count: u64,
    /// The last line that was added repeats an earlier one.
    is_repeating: bool,
    /// Hashes of the `uuid` of the lines, in ascending order.
    known: Vec<u64>,
    /// Those of the lines that were added.
    added: HashSet<u64>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    User,
    Assistant,
    /// The context was compacted.
    Boundary,
    Other,
}

/// The known facts about one line.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: NodeKind,
    is_sidechain: bool,
    /// It is a part of the conversation that was continued.
    is_current: bool,
    /// It begins the conversation, and other lines follow it.
    is_followed: bool,
    /// It begins a branch that was left.
    begins_branch: bool,
}

/// The lines of a file. Whatever is kept of a line has a fixed size: about 50 bytes.
#[derive(Debug, Default)]
struct Nodes {
    nodes: Vec<Node>,
    /// Hashes of `uuid` and of the `uuid` of the line before it; 0 for none.
    uuids: Vec<u64>,
    parents: Vec<u64>,
    /// Hashes of the ids of the sessions; 0 for none.
    sessions: Vec<u64>,
    offsets: Vec<u64>,
    /// Offset after the last line.
    end: u64,
    has_sidechains: bool,
    /// The lines with a `uuid`, in the order of their hashes and of their positions.
    by_uuid: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Counts,
    Repeated,
    /// Number of the prompt that began the branch, among all lines.
    TakenBack(u32),
}

impl ConversationTree {
    /// Reads the lines of a file up to `length`. The rest of the file counts as a line if it is `finished`.
    pub(super) fn read(file: &Arc<File>, length: u64, finished: bool) -> io::Result<Self> {
        let hasher = RandomState::new();
        let mut nodes = Nodes::read(file, length, finished, &hasher)?;
        nodes.sort();
        let mut states = nodes.repeated();
        nodes.mark_current(&states);
        if nodes.mark_branches(file, &states)? {
            nodes.take_back(&mut states);
        }
        let set_aside = nodes.runs(file, &states)?;
        let mut known: Vec<u64> = nodes
            .by_uuid
            .iter()
            .map(|at| nodes.uuids[*at as usize])
            .collect();
        known.dedup();
        Ok(Self {
            set_aside,
            has_sidechains: nodes.has_sidechains,
            has_earlier_ids: nodes.has_earlier_ids(&states),
            line_count: nodes.nodes.len() as u64,
            known,
            hasher,
            ..Self::default()
        })
    }

    /// How line `number` of the file does not count. Lines that were added since are only compared with earlier ones.
    pub(super) fn set_aside(&mut self, number: u64, line: &[u8]) -> Option<SetAside> {
        if number < self.line_count {
            let next = self.set_aside.get(self.passed).copied();
            return next
                .filter(|next| next.first == number)
                .inspect(|_| self.passed += 1);
        }
        let uuid = hash(&self.hasher, line_fields(line).uuid.as_deref());
        let is_known = || self.known.binary_search(&uuid).is_ok();
        let has_room = self.known.len() + self.added.len() < MAX_LINES;
        let is_new = uuid == 0 || !has_room || !is_known() && self.added.insert(uuid);
        let continues = self.is_repeating;
        self.is_repeating = !is_new || uuid == 0 && continues;
        (!is_new).then_some(SetAside {
            first: number,
            lines: 1,
            reason: match continues {
                true => SetAsideReason::Continued,
                false => SetAsideReason::Repeating,
            },
        })
    }

    /// All lines that do not count, in the order of their positions.
    pub(super) fn into_set_aside(self) -> Vec<SetAside> {
        self.set_aside
    }

    /// True if every line counts.
    pub(super) fn counts_every_line(&self) -> bool {
        self.set_aside.is_empty()
    }
}

fn hash(hasher: &RandomState, id: Option<&str>) -> u64 {
    id.map_or(0, |id| hasher.hash_one(id).max(1))
}

impl Node {
    fn new(fields: &LineFields<'_>) -> Self {
        let kind = match fields.kind.as_deref() {
            Some("user") => NodeKind::User,
            Some("assistant") => NodeKind::Assistant,
            Some("system") if fields.subtype.as_deref() == Some("compact_boundary") => {
                NodeKind::Boundary
            }
            _ => NodeKind::Other,
        };
        Self {
            kind,
            is_sidechain: fields.is_sidechain == Some(true),
            is_current: false,
            is_followed: false,
            begins_branch: false,
        }
    }
}

impl Nodes {
    /// Reads a file. Another thread reads the second half of a large one.
    fn read(
        file: &Arc<File>,
        length: u64,
        finished: bool,
        hasher: &RandomState,
    ) -> io::Result<Self> {
        let part = |range, skips| Self::read_part(file, range, length, finished, skips, hasher);
        let middle = length / 2;
        if !finished || length < MIN_SECOND_THREAD_BYTES {
            return part(0..length, false);
        }
        let (first, second) = thread::scope(|scope| {
            // The line that crosses the middle belongs to the first half.
            let second = thread::Builder::new()
                .name("tree".into())
                .spawn_scoped(scope, || part(middle - 1..length, true));
            let first = part(0..middle, false);
            let second = match second {
                Ok(second) => second
                    .join()
                    .map_err(|_| io::Error::other("the reading thread stopped"))?,
                Err(_) => part(middle - 1..length, true),
            };
            Ok::<_, io::Error>((first?, second?))
        })?;
        Ok(first.joined(second))
    }

    /// Reads the lines that start in `range`; without the first one if it `skips` that.
    fn read_part(
        file: &Arc<File>,
        range: Range<u64>,
        length: u64,
        finished: bool,
        skips: bool,
        hasher: &RandomState,
    ) -> io::Result<Self> {
        let mut lines = FileLines::new(Arc::clone(file), EntrySplit::Lines, range.start);
        lines.enable_shortening();
        let mut nodes = Self::default();
        if skips {
            lines.next(length, finished)?;
        }
        while lines.offset() < range.end {
            let NextLine::Line(offset, line) = lines.next(length, finished)? else {
                break;
            };
            if is_blank(line) {
                continue;
            }
            let fields = line_fields(line);
            nodes.has_sidechains |= fields.is_sidechain == Some(true);
            if nodes.nodes.len() == MAX_LINES {
                continue;
            }
            let parent = fields
                .parent
                .as_deref()
                .or(fields.logical_parent.as_deref());
            nodes.reserve();
            nodes.nodes.push(Node::new(&fields));
            nodes.uuids.push(hash(hasher, fields.uuid.as_deref()));
            nodes.parents.push(hash(hasher, parent));
            nodes.sessions.push(hash(hasher, fields.session.as_deref()));
            nodes.offsets.push(offset);
        }
        nodes.end = lines.offset();
        Ok(nodes)
    }

    /// Makes room for one more line, and spare room for at most a quarter of the lines.
    fn reserve(&mut self) {
        let count = self.nodes.len();
        if count == self.nodes.capacity() {
            let more = (count / 4).max(1024);
            self.nodes.reserve_exact(more);
            self.uuids.reserve_exact(more);
            self.parents.reserve_exact(more);
            self.sessions.reserve_exact(more);
            self.offsets.reserve_exact(more);
        }
    }

    /// Adds the lines after these.
    fn joined(mut self, after: Self) -> Self {
        let room = MAX_LINES - self.nodes.len().min(MAX_LINES);
        let taken = after.nodes.len().min(room);
        fn append<T: Copy>(these: &mut Vec<T>, after: Vec<T>, taken: usize) {
            these.reserve_exact(taken);
            these.extend_from_slice(&after[..taken]);
        }
        append(&mut self.nodes, after.nodes, taken);
        append(&mut self.uuids, after.uuids, taken);
        append(&mut self.parents, after.parents, taken);
        append(&mut self.sessions, after.sessions, taken);
        self.end = after.offsets.get(taken).copied().unwrap_or(after.end);
        append(&mut self.offsets, after.offsets, taken);
        self.has_sidechains |= after.has_sidechains;
        self
    }

    fn sort(&mut self) {
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let mut sorted: Vec<u32> = (0..count)
            .filter(|at| self.uuids[*at as usize] != 0)
            .collect();
        sorted.sort_unstable_by_key(|at| (self.uuids[*at as usize], *at));
        self.by_uuid = sorted;
    }

    /// The first line with this hash.
    fn find(&self, uuid: u64) -> Option<usize> {
        let place = self
            .by_uuid
            .partition_point(|at| self.uuids[*at as usize] < uuid);
        let found = *self.by_uuid.get(place)? as usize;
        (uuid != 0 && self.uuids[found] == uuid).then_some(found)
    }

    /// The line that a line follows.
    fn parent(&self, index: usize, states: &[NodeState]) -> Option<usize> {
        let parent = self.parents[index];
        // Most lines follow the line before them.
        match index.checked_sub(1) {
            Some(before)
                if parent != 0
                    && self.uuids[before] == parent
                    && states[before] != NodeState::Repeated =>
            {
                Some(before)
            }
            _ => self.find(parent),
        }
    }

    /// True if a line follows an earlier one that has the id of another session.
    fn has_earlier_ids(&self, states: &[NodeState]) -> bool {
        let mut ids = self.sessions.iter().filter(|id| **id != 0);
        let first = ids.next();
        // Most files have one id.
        if ids.all(|id| Some(id) == first) {
            return false;
        }
        self.sessions.iter().enumerate().any(|(index, session)| {
            let before = self.parent(index, states).filter(|before| *before < index);
            *session != 0 && before.is_some_and(|before| self.sessions[before] != *session)
        })
    }

    /// Marks the lines that have the `uuid` of an earlier one.
    fn repeated(&self) -> Vec<NodeState> {
        let mut states = vec![NodeState::Counts; self.nodes.len()];
        for pair in self.by_uuid.windows(2) {
            if let [first, second] = pair
                && self.uuids[*first as usize] == self.uuids[*second as usize]
            {
                states[*second as usize] = NodeState::Repeated;
            }
        }
        states
    }

    /// Marks the last message, and all lines that precede it in the conversation.
    fn mark_current(&mut self, states: &[NodeState]) {
        let is_message = |index: &usize| {
            let node = &self.nodes[*index];
            matches!(node.kind, NodeKind::User | NodeKind::Assistant)
                && !node.is_sidechain
                && self.uuids[*index] != 0
                && states[*index] == NodeState::Counts
        };
        let mut next = (0..self.nodes.len()).rev().find(is_message);
        // A cycle ends at a line that was passed.
        while let Some(index) = next.filter(|index| !self.nodes[*index].is_current) {
            self.nodes[index].is_current = true;
            next = self.parent(index, states);
        }
    }

    /// Marks the prompts that begin a branch that was left: of the prompts that follow the same line, only one counts.
    /// Returns false if there are none.
    fn mark_branches(&mut self, file: &Arc<File>, states: &[NodeState]) -> io::Result<bool> {
        let mut followers: Vec<(u64, u32)> = Vec::new();
        // A conversation that begins again after a compaction does not take back what was before.
        let (mut roots, mut period) = (Vec::new(), 0_u64);
        for (index, node) in self.nodes.iter().enumerate() {
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            match node.kind {
                NodeKind::Boundary => period += 1,
                NodeKind::User
                    if !node.is_sidechain
                        && self.uuids[index] != 0
                        && states[index] == NodeState::Counts =>
                {
                    match self.parents[index] {
                        0 => roots.push((period, number)),
                        parent => followers.push((parent, number)),
                    }
                }
                _ => {}
            }
        }
        if roots.len() > 1 {
            for index in 0..self.nodes.len() {
                if let Some(parent) = self.parent(index, states) {
                    self.nodes[parent].is_followed = true;
                }
            }
        }
        // In a file without links nothing is known about the branches.
        roots.retain(|(_, root)| self.nodes[*root as usize].is_followed);
        followers.sort_unstable();
        let mut has_branches = false;
        let groups = followers
            .chunk_by(|one, other| one.0 == other.0)
            .chain(roots.chunk_by(|one, other| one.0 == other.0));
        for group in groups.filter(|group| group.len() > 1) {
            let mut prompts = Vec::new();
            for (_, index) in group {
                if is_prompt(&self.read_line(file, *index as usize)?) {
                    prompts.push(*index as usize);
                }
            }
            let kept = prompts
                .iter()
                .find(|prompt| self.nodes[**prompt].is_current)
                .or(prompts.last())
                .copied();
            for prompt in prompts.into_iter().filter(|prompt| Some(*prompt) != kept) {
                self.nodes[prompt].begins_branch = true;
                has_branches = true;
            }
        }
        Ok(has_branches)
    }

    /// Marks the lines of the branches that were left.
    fn take_back(&self, states: &mut [NodeState]) {
        for (index, node) in self.nodes.iter().enumerate() {
            if states[index] != NodeState::Counts || node.is_current {
                continue;
            }
            let inherited = self.parent(index, states).map(|parent| states[parent]);
            if let Some(NodeState::TakenBack(branch)) = inherited {
                states[index] = NodeState::TakenBack(branch);
            } else if node.begins_branch {
                states[index] = NodeState::TakenBack(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
    }

    /// A line of the file; a giant line with its long strings cut.
    fn read_line(&self, file: &Arc<File>, index: usize) -> io::Result<Vec<u8>> {
        let (start, end) = (
            self.offsets[index],
            self.offsets.get(index + 1).copied().unwrap_or(self.end),
        );
        match usize::try_from(end - start) {
            Ok(length) if length < GIANT => read_range(file, start, length),
            _ => {
                let mut lines = FileLines::new(Arc::clone(file), EntrySplit::Lines, start);
                lines.enable_shortening();
                Ok(match lines.next(end, true)? {
                    NextLine::Line(_, line) => line.to_owned(),
                    NextLine::Pending | NextLine::Shrunk => Vec::new(),
                })
            }
        }
    }

    /// The turns in the branches that were left: the branch and a hash of the message, each pair once and in order.
    fn turns(&self, file: &Arc<File>, states: &[NodeState]) -> io::Result<Vec<(u32, u64)>> {
        let (mut turns, hasher) = (Vec::new(), RandomState::new());
        for (index, node) in self.nodes.iter().enumerate() {
            if let NodeState::TakenBack(branch) = states[index]
                && node.kind == NodeKind::Assistant
                && let Some(id) = message_id(&self.read_line(file, index)?)
            {
                turns.push((branch, hasher.hash_one(id)));
            }
        }
        turns.sort_unstable();
        turns.dedup();
        Ok(turns)
    }

    /// True if a line certainly belongs to the same unit as the one before it. Lines of sub-agents may be those of
    /// several.
    fn is_of_one_unit(&self, index: usize) -> bool {
        let is_main = |at: usize| !self.nodes[at].is_sidechain;
        index.checked_sub(1).is_some_and(|before| {
            is_main(before) && is_main(index) && self.sessions[before] == self.sessions[index]
        })
    }

    /// Lines in a row of one unit with the same state. The first of those that belong together has the reason of all of them.
    fn runs(&self, file: &Arc<File>, states: &[NodeState]) -> io::Result<Vec<SetAside>> {
        let turns = self.turns(file, states)?;
        let mut runs: Vec<SetAside> = Vec::new();
        let (mut described, mut is_repeating) = (HashSet::new(), false);
        for (index, state) in states.iter().enumerate() {
            let reason = match state {
                NodeState::Counts => {
                    // Bookkeeping between repeated lines does not end them.
                    is_repeating &= self.uuids[index] == 0;
                    continue;
                }
                NodeState::Repeated if is_repeating => SetAsideReason::Continued,
                NodeState::Repeated => {
                    is_repeating = true;
                    let repeated = (index..states.len())
                        .take_while(|at| states[*at] != NodeState::Counts || self.uuids[*at] == 0)
                        .filter(|at| states[*at] == NodeState::Repeated)
                        .count();
                    SetAsideReason::Repeated(u32::try_from(repeated).unwrap_or(u32::MAX))
                }
                NodeState::TakenBack(branch) if !described.insert(*branch) => {
                    SetAsideReason::Continued
                }
                NodeState::TakenBack(branch) => {
                    let first = turns.partition_point(|turn| turn.0 < *branch);
                    let end = turns.partition_point(|turn| turn.0 <= *branch);
                    SetAsideReason::TakenBack(u32::try_from(end - first).unwrap_or(u32::MAX))
                }
            };
            match runs.last_mut() {
                Some(last)
                    if reason == SetAsideReason::Continued
                        && last.first + u64::from(last.lines) == index as u64
                        && self.is_of_one_unit(index) =>
                {
                    last.lines += 1;
                }
                _ => runs.push(SetAside {
                    first: index as u64,
                    lines: 1,
                    reason,
                }),
            }
        }
        Ok(runs)
    }
}

/// True for a text of a person, which begins a turn.
fn is_prompt(line: &[u8]) -> bool {
    let LineBody::User(chat) = decode::decode_line(line).body else {
        return false;
    };
    let is_result = |block: &MessageBlock<'_>| matches!(block, MessageBlock::ToolResult(_));
    let is_typed = |block: &MessageBlock<'_>| match block {
        MessageBlock::Text(text) => {
            let (text, _) = text.prefix(MAX_MARKUP_BYTES);
            // Some releases write the file that is open in an editor as a line before the prompt.
            is_context(&text) || matches!(UserText::parse(chat.author, &text), UserText::Prompt(_))
        }
        _ => false,
    };
    !chat.synthetic && !chat.blocks.iter().any(is_result) && chat.blocks.iter().any(is_typed)
}

/// Id of the message of a model, if the line is a part of one.
fn message_id(line: &[u8]) -> Option<String> {
    match decode::decode_line(line).body {
        LineBody::Assistant(chat) if chat.model.as_deref() != Some("<synthetic>") => {
            Some(chat.message_id?.into_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(text: &str) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Arc::new(file)
    }

    fn line(kind: &str, uuid: &str, parent: &str) -> String {
        let parent = match parent {
            "" => "null".to_owned(),
            parent => format!("\"{parent}\""),
        };
        format!(
            "{{\"type\":\"{kind}\",\"sessionId\":\"s\",\"uuid\":\"{uuid}\",\"parentUuid\":{parent},\"message\":{{\"content\":\"x\"}}}}\n"
        )
    }

    #[test]
    fn halves_of_a_file_join_to_the_whole() {
        let mut text = String::new();
        for number in 0..40 {
            text += &line("user", &format!("u{number}"), &format!("u{}", number / 2));
            text += if number % 3 == 0 { "\n  \n" } else { "" };
        }
        let (file, length, hasher) = (file(&text), text.len() as u64, RandomState::new());
        let part =
            |range, skips| Nodes::read_part(&file, range, length, true, skips, &hasher).unwrap();
        let whole = part(0..length, false);
        for middle in 1..length {
            let joined = part(0..middle, false).joined(part(middle - 1..length, true));
            assert_eq!(joined.uuids, whole.uuids, "{middle}");
            assert_eq!(
                (joined.parents, joined.offsets),
                (whole.parents.clone(), whole.offsets.clone())
            );
            assert_eq!(joined.end, whole.end);
        }
    }

    #[test]
    fn trees_that_no_program_wrote_end() {
        let set_aside = |text: &str| {
            let tree = ConversationTree::read(&file(text), text.len() as u64, true).unwrap();
            tree.into_set_aside()
        };
        // A cycle, a line that follows itself, and one that follows a later line.
        let cycle = line("user", "a", "c") + &line("user", "b", "a") + &line("user", "c", "b");
        assert_eq!(set_aside(&cycle), []);
        assert_eq!(set_aside(&line("user", "a", "a")), []);
        let cut = &cycle[..cycle.len() - 40];
        assert_eq!(set_aside(&format!("\0\0{{\n{cut}")), []);
        assert_eq!(set_aside(""), []);
        // Any number of prompts after a line that is missing: the last one counts.
        let prompts: String = (0..5000)
            .map(|at| line("user", &format!("p{at}"), "gone"))
            .collect();
        let found = set_aside(&prompts);
        assert_eq!(
            found.iter().map(|run| u64::from(run.lines)).sum::<u64>(),
            4999
        );
        assert_eq!(found[0].text().unwrap(), "1 prompt taken back");
        // A giant prompt is not read as a whole.
        let giant = line("user", "b", "").replace("\"x\"", &format!("\"{}\"", "x".repeat(GIANT)));
        let nodes = giant.clone() + &line("user", "c", "");
        let found = Nodes::read_part(
            &file(&nodes),
            0..nodes.len() as u64,
            nodes.len() as u64,
            true,
            false,
            &RandomState::new(),
        )
        .unwrap();
        let read = found.read_line(&file(&nodes), 0).unwrap();
        assert!(
            read.len() < GIANT / 10 && is_prompt(&read),
            "{}",
            read.len()
        );
    }
}
