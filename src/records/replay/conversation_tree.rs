//! Which lines of a session file count. A compaction writes earlier lines again, and a person who goes back to an earlier
//! message leaves a branch behind: such lines are shown, but not counted.
//!
//! Lines are known by `uuid` and form a tree by `parentUuid`. Calls that run in parallel form branches, too; only a
//! second prompt after the same line takes back the first one. It must not interpret what the agent did.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    io,
};

use ingestdeck_core::{
    decode::{
        self, LineBody, MessageBlock,
        line_fields::{LineFields, line_fields},
        user_text::UserText,
    },
    text::pluralize,
};

use super::{
    file_lines::{FileLines, NextLine, read_range},
    index::is_blank,
};

/// Maximum number of lines whose place in the conversation is determined.
const MAX_LINES: usize = 2_000_000;
/// Bytes of a text that determine who wrote it.
const MAX_MARKUP_BYTES: usize = 4096;

/// Lines in a row that do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetAside {
    /// Number of the first of them, among the lines that are not blank.
    pub(super) first: u64,
    pub(super) lines: u32,
    /// The text for readers, at the first of several that belong together.
    pub(super) text: Option<String>,
}

/// What reading a whole session file found.
#[derive(Debug, Default)]
pub(super) struct ConversationTree {
    /// Ordered by their positions.
    set_aside: VecDeque<SetAside>,
    /// A line belongs to a sub-agent.
    pub(super) has_sidechains: bool,
    /// A line follows one that has the id of another session: the session was resumed under this id.
    pub(super) has_earlier_ids: bool,
    /// Number of lines whose place in the conversation is determined.
    line_count: u64,
    /// The last line that was added repeats an earlier one.
    is_repeating: bool,
    /// Lines that were seen, by a hash of their `uuid`.
    known: HashMap<u64, usize>,
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

/// A line of the file.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: NodeKind,
    is_sidechain: bool,
    /// Hashes; 0 for none.
    uuid: u64,
    parent: u64,
    session: u64,
    offset: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Counts,
    Repeated,
    /// Number of the prompt that began the branch, among all lines.
    TakenBack(usize),
}

impl ConversationTree {
    /// Reads the lines of a file up to `length`. The rest of the file counts as a line if it is `finished`.
    pub(super) fn read(
        file: &File,
        lines: &mut FileLines,
        length: u64,
        finished: bool,
    ) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut nodes: Vec<Node> = Vec::new();
        let mut states: Vec<NodeState> = Vec::new();
        while let NextLine::Line(offset, line) = lines.next(length, finished)? {
            if is_blank(line) {
                continue;
            }
            let fields = line_fields(line);
            tree.has_sidechains |= fields.is_sidechain == Some(true);
            if nodes.len() == MAX_LINES {
                continue;
            }
            let node = tree.node(&fields, offset, line.len() as u64);
            tree.has_earlier_ids |= tree
                .known
                .get(&node.parent)
                .and_then(|parent| nodes.get(*parent))
                .is_some_and(|parent| ![0, parent.session].contains(&node.session));
            let is_new = node.uuid == 0 || tree.known.insert_if_new(node.uuid, nodes.len());
            states.push(if is_new {
                NodeState::Counts
            } else {
                NodeState::Repeated
            });
            nodes.push(node);
        }
        tree.line_count = nodes.len() as u64;
        tree.take_back(file, &nodes, &mut states)?;
        tree.set_aside = runs(file, &nodes, &states)?.into();
        Ok(tree)
    }

    /// How line `number` of the file does not count. Lines that were added since are only compared with earlier ones.
    pub(super) fn set_aside(&mut self, number: u64, line: &[u8]) -> Option<SetAside> {
        if number < self.line_count {
            let is_next = self.set_aside.front().is_some_and(|it| it.first == number);
            return is_next.then(|| self.set_aside.pop_front()).flatten();
        }
        let uuid = self.hash(line_fields(line).uuid.as_deref());
        let is_new = uuid == 0
            || self.known.len() >= MAX_LINES
            || self.known.insert_if_new(uuid, usize::MAX);
        let continues = self.is_repeating;
        self.is_repeating = !is_new || uuid == 0 && continues;
        (!is_new).then(|| SetAside {
            first: number,
            lines: 1,
            text: (!continues).then(|| "lines repeated after a compaction".to_owned()),
        })
    }

    /// True if every line counts.
    pub(super) fn counts_every_line(&self) -> bool {
        self.set_aside.is_empty()
    }

    fn hash(&self, id: Option<&str>) -> u64 {
        id.map_or(0, |id| self.hasher.hash_one(id).max(1))
    }

    fn node(&self, fields: &LineFields<'_>, offset: u64, length: u64) -> Node {
        let kind = match fields.kind.as_deref() {
            Some("user") => NodeKind::User,
            Some("assistant") => NodeKind::Assistant,
            Some("system") if fields.subtype.as_deref() == Some("compact_boundary") => {
                NodeKind::Boundary
            }
            _ => NodeKind::Other,
        };
        let parent = fields
            .parent
            .as_deref()
            .or(fields.logical_parent.as_deref());
        Node {
            kind,
            is_sidechain: fields.is_sidechain == Some(true),
            uuid: self.hash(fields.uuid.as_deref()),
            parent: self.hash(parent),
            session: self.hash(fields.session.as_deref()),
            offset,
            length,
        }
    }

    /// Marks the branches that were left.
    fn take_back(&self, file: &File, nodes: &[Node], states: &mut [NodeState]) -> io::Result<()> {
        let siblings = self.sibling_prompts(file, nodes, states)?;
        if siblings.is_empty() {
            return Ok(());
        }
        let current = self.current_branch(nodes, states);
        let mut branches: HashSet<usize> = HashSet::new();
        for prompts in siblings {
            let kept = prompts
                .iter()
                .find(|prompt| current.contains(*prompt))
                .or(prompts.last());
            branches.extend(prompts.iter().filter(|prompt| Some(*prompt) != kept));
        }
        for (index, node) in nodes.iter().enumerate() {
            if states[index] != NodeState::Counts || current.contains(&index) {
                continue;
            }
            let inherited = self
                .known
                .get(&node.parent)
                .and_then(|parent| states.get(*parent))
                .copied();
            if let Some(NodeState::TakenBack(branch)) = inherited {
                states[index] = NodeState::TakenBack(branch);
            } else if branches.contains(&index) {
                states[index] = NodeState::TakenBack(index);
            }
        }
        Ok(())
    }

    /// Prompts that follow the same line, where there are several.
    fn sibling_prompts(
        &self,
        file: &File,
        nodes: &[Node],
        states: &[NodeState],
    ) -> io::Result<Vec<Vec<usize>>> {
        let mut by_parent: HashMap<u64, Vec<usize>> = HashMap::new();
        // A conversation that begins again after a compaction does not take back what was before.
        let (mut roots, mut all_roots) = (Vec::new(), Vec::new());
        let parents: HashSet<u64> = nodes.iter().map(|node| node.parent).collect();
        for (index, node) in nodes.iter().enumerate() {
            match node.kind {
                NodeKind::Boundary => all_roots.push(std::mem::take(&mut roots)),
                NodeKind::User
                    if !node.is_sidechain
                        && node.uuid != 0
                        && states[index] == NodeState::Counts =>
                {
                    if node.parent != 0 {
                        by_parent.entry(node.parent).or_default().push(index);
                    } else if parents.contains(&node.uuid) {
                        // In a file without links nothing is known about the branches.
                        roots.push(index);
                    }
                }
                _ => {}
            }
        }
        all_roots.push(roots);
        let mut siblings = Vec::new();
        for group in by_parent.into_values().chain(all_roots) {
            if group.len() < 2 {
                continue;
            }
            let mut prompts = Vec::new();
            for index in group {
                if is_prompt(&read_line(file, &nodes[index])?) {
                    prompts.push(index);
                }
            }
            if prompts.len() > 1 {
                siblings.push(prompts);
            }
        }
        Ok(siblings)
    }

    /// The last message, and all lines that precede it in the conversation.
    fn current_branch(&self, nodes: &[Node], states: &[NodeState]) -> HashSet<usize> {
        let is_message = |index: &usize| {
            let node = &nodes[*index];
            matches!(node.kind, NodeKind::User | NodeKind::Assistant)
                && !node.is_sidechain
                && node.uuid != 0
                && states[*index] == NodeState::Counts
        };
        let mut current = HashSet::new();
        let mut next = (0..nodes.len()).rev().find(is_message);
        // A cycle ends at a line that was passed.
        while let Some(index) = next.filter(|index| current.insert(*index)) {
            next = self.known.get(&nodes[index].parent).copied();
        }
        current
    }
}

trait InsertIfNew {
    /// Returns false if the key exists.
    fn insert_if_new(&mut self, key: u64, value: usize) -> bool;
}

impl InsertIfNew for HashMap<u64, usize> {
    fn insert_if_new(&mut self, key: u64, value: usize) -> bool {
        let mut is_new = false;
        self.entry(key).or_insert_with(|| {
            is_new = true;
            value
        });
        is_new
    }
}

fn read_line(file: &File, node: &Node) -> io::Result<Vec<u8>> {
    read_range(
        file,
        node.offset,
        usize::try_from(node.length).unwrap_or(usize::MAX),
    )
}

/// True for a text of a person, which begins a turn.
fn is_prompt(line: &[u8]) -> bool {
    let LineBody::User(chat) = decode::decode_line(line).body else {
        return false;
    };
    let is_result = |block: &MessageBlock<'_>| matches!(block, MessageBlock::ToolResult(_));
    let is_typed = |block: &MessageBlock<'_>| match block {
        MessageBlock::Text(text) => matches!(
            UserText::parse(chat.author, &text.prefix(MAX_MARKUP_BYTES).0),
            UserText::Prompt(_)
        ),
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

/// Lines in a row with the same state. The first of those that belong together has the text about all of them.
fn runs(file: &File, nodes: &[Node], states: &[NodeState]) -> io::Result<Vec<SetAside>> {
    let mut runs: Vec<SetAside> = Vec::new();
    let (mut described, mut is_repeating) = (HashSet::new(), false);
    for (index, state) in states.iter().enumerate() {
        let text = match state {
            NodeState::Counts => {
                // Bookkeeping between repeated lines does not end them.
                is_repeating &= nodes[index].uuid == 0;
                continue;
            }
            NodeState::Repeated if is_repeating => None,
            NodeState::Repeated => {
                is_repeating = true;
                let repeated = (index..states.len())
                    .take_while(|at| states[*at] != NodeState::Counts || nodes[*at].uuid == 0)
                    .filter(|at| states[*at] == NodeState::Repeated)
                    .count();
                Some(format!(
                    "{} repeated after a compaction",
                    pluralize(repeated, "line")
                ))
            }
            NodeState::TakenBack(branch) if !described.insert(*branch) => None,
            NodeState::TakenBack(branch) => {
                let mut messages = HashSet::new();
                for (node, _) in nodes.iter().zip(states).filter(|(node, state)| {
                    **state == NodeState::TakenBack(*branch) && node.kind == NodeKind::Assistant
                }) {
                    messages.extend(message_id(&read_line(file, node)?));
                }
                Some(match messages.len() {
                    0 => "1 prompt taken back".to_owned(),
                    turns => format!("{} taken back", pluralize(turns, "turn")),
                })
            }
        };
        match runs.last_mut() {
            Some(last) if text.is_none() && last.first + u64::from(last.lines) == index as u64 => {
                last.lines += 1;
            }
            _ => runs.push(SetAside {
                first: index as u64,
                lines: 1,
                text,
            }),
        }
    }
    Ok(runs)
}
