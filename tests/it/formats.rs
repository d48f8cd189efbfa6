//! Every published format, as committed files in `tests/fixtures/formats`. The files are the specification: a change of
//! a type, field or variant must not change one byte of them. Sentences for people are not part of a format. They are
//! replaced by a placeholder, as are ids, times and paths.
//!
//! | format | covered by |
//! |---|---|
//! | tape: header, entries, every note and every value in it | `notes`, `tape.jsonl` |
//! | `--ui json` of a run: every kind of event | `events`, `events.jsonl`; the translation of each line by `src/core/actions/tests` |
//! | words of states, causes, kinds and levels; exit codes | `words`, `words.txt` and `exit-codes.txt` |
//! | `runs list`, `runs show`, `runs prune`, `diff` | `events`, one file each |
//! | `report --format json`, and KTX's trace and memory flow | `events`, `report.json`, `trace.jsonl`, `memory-flow.json` |
//! | `report --format junit` (`md` and `html` are for people) | `src/report/snapshots` |
//! | `plan`, `doctor` | `commands`, one file each |
//! | `review_finished` | `review`, `review.jsonl` |
//! | `--events agent` | `schemas`, `agent-events.jsonl` and `assets/agent-events.schema.json` |
//! | `runs export --format otlp` | `tests/it/commands/tracing.rs`, by the rules of OTLP |
//! | `audit`, `costs` | `schemas`, one file each, and `assets/audit.schema.json` |
//! | `why` | `provenance`, `why.jsonl` and `assets/why.schema.json` |
//! | the `ktx.yaml` that `init` writes | `tests/it/commands.rs`; `init`, `config` and `completions` print nothing for programs |
//! | subcommands, arguments and flags | `surface`, `command-line.txt`; the texts of `--help` by `tests/it/commands.rs` |
//! | settings, environment variables, keys of `ktx.yaml` | `surface`, `settings.txt`, `environment.txt`, `ktx.yaml` |
//! | key bindings, theme files, command line on the screen | `surface`, `keys.txt`, `theme.toml`, `screen-commands.txt` |
//! | names and arguments of the tools that the model is offered | `tests/it/snapshots/it__ingest__tool_schemas…` |
//! | wiki page | `files`, `commit.txt`; every key by `src/ingest/snapshots/…page_is_rendered_like_ktx` |
//! | source of the semantic layer | `files`, `commit.txt`; more by `tests/it/commands/snapshots` and `src/ingest/semantic_layer/snapshots` |
//! | tool transcript | `files`, `transcript.jsonl`; failed calls by `src/ingest/snapshots/…transcript_lines_match_ktx_format` |
//! | commits, refs, ledger of worktrees, patches, marks | `files`, `commit.txt` |
//! | names and permissions in a project, with git and without, during a run and afterwards; locks | `files`, `project-git.txt`, `project.txt` |
//! | bookmarks | `files`, `bookmarks.jsonl` |
//! | index | `files`, `index.sql`; the schema is `assets/index.sql` |
//! | journal of a branch update | `src/ingest/branch_update/tests.rs` |
//!
//! Not covered: the protocol with `claude` (`tests/it/captures.rs` and `tests/it/unit_protocol.rs` test it with the
//! real program), the program's protocols with its own children (SQL worker, group guard, scripted agent), and the
//! caches below `.ktx/ingestdeck/prints`, which have a version and are rebuilt.

mod commands;
mod events;
mod files;
pub(crate) mod golden;
mod notes;
mod provenance;
mod review;
pub(crate) mod run_document;
pub(crate) mod schemas;
mod surface;
mod words;
