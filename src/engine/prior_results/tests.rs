//! Tests of the results of prior runs as the next plan reads them.

mod settling;

use super::*;
use ingestdeck_ingest::{baseline::FileOwners, source_diff::SourceDiff};

const HASH: &str = "99b249fbeab03e4b814d96c32f14560cee4f011d38306c5c9497536f6b7be9e2";

fn written(
    began_ms: u64,
    path: &str,
    (target, connection, key): ArtifactId<'_>,
    change: &str,
) -> WrittenArtifact {
    let row = ArtifactIndexRow {
        connection: "kb".into(),
        path: path.into(),
        target: target.into(),
        target_connection: connection.into(),
        key: key.into(),
        change: change.into(),
    };
    WrittenArtifact {
        began_ms,
        run: format!("r{began_ms}"),
        row,
    }
}

fn past(paths: &[&str], artifacts: impl IntoIterator<Item = WrittenArtifact>) -> PriorResults {
    let mut past = PriorResults::default();
    for path in paths {
        let event = FileEvent {
            content: Fingerprint::parse(HASH),
            outcome: FileOutcome::Processed,
            ..FileEvent::default()
        };
        past.baseline.add_file(
            "kb",
            "docs",
            (*path).to_owned(),
            PriorFileRecord::from_events([event]),
        );
    }
    artifacts
        .into_iter()
        .for_each(|artifact| past.add_artifact(artifact));
    past
}

fn gone(past: &PriorResults, paths: &[&str]) -> Vec<String> {
    let diff = SourceDiff {
        deleted: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..SourceDiff::default()
    };
    let source = SourcePlan {
        connection: "kb".into(),
        adapter: "docs".into(),
        diff,
        ..SourcePlan::default()
    };
    let mut planned = IngestPlan {
        sources: vec![source],
        ..IngestPlan::default()
    };
    past.annotate(&mut planned);
    let artifacts_by_deleted_file = planned.sources[0].eviction_candidates.iter();
    artifacts_by_deleted_file
        .flat_map(|(path, found)| {
            found
                .iter()
                .map(move |artifact| format!("{path}: {artifact}"))
        })
        .collect()
}

#[test]
fn gone_files_list_what_rests_on_them() {
    let page = |key: &'static str| ("wiki", "", key);
    let past = past(
        &["a.md", "b.md", "c.md"],
        [
            written(1, "b.md", page("b"), "created"),
            written(1, "b.md", page("shared"), "created"),
            written(2, "a.md", page("shared"), "updated"),
            written(2, "c.md", page("shared"), "updated"),
            written(2, "long-gone.md", page("shared"), "updated"),
            written(1, "b.md", ("sl", "wh", "orders"), "updated"),
            written(1, "b.md", page("dropped"), "created"),
            written(3, "a.md", page("dropped"), "removed"),
            written(1, "b.md", page("back"), "removed"),
        ],
    );
    assert_eq!(
        gone(&past, &["b.md", "c.md"]),
        [
            "b.md: wiki b (created in run r1)",
            "b.md: wiki shared (created in run r1), also rests on kb/a.md",
            "b.md: sl wh/orders (updated in run r1)",
            "c.md: wiki shared (updated in run r2), also rests on kb/a.md",
        ]
    );
    assert_eq!(gone(&past, &[]), Vec::<String>::new());
}

#[test]
fn newest_record_of_an_artifact_wins() {
    let id = ("wiki", "", "p");
    let by_ktx = |ms| written(ms, "a.md", id, "wiki_written");
    let past_of = |ms| past(&["a.md"], [written(5, "a.md", id, "updated"), by_ktx(ms)]);
    assert_eq!(
        gone(&past_of(4), &["a.md"]),
        ["a.md: wiki p (updated in run r5)"]
    );
    assert_eq!(
        gone(&past_of(6), &["a.md"]),
        ["a.md: wiki p (wiki_written in run r6)"]
    );
}

#[test]
fn ktx_record_counts_unless_own_run_is_newer() {
    let run = |ms: u64| {
        let [_, _, time @ ..] = ms.to_be_bytes();
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&time);
        RunId(uuid::Uuid::from_bytes(bytes))
    };
    const OTHER: &str = "0aac26aac5954c003aafda0c973840f2a4970fbca8101369094138e1e47ce9d8";
    let by_ktx = |sha256: Option<&str>| KtxFile {
        connection: "kb".into(),
        adapter: "docs".into(),
        path: "a.md".into(),
        sha256: sha256.map(str::to_owned),
        completed_ms: 10,
    };
    let own = |sha256: Option<&str>, state: FileState, at: u64| {
        let result = match state {
            FileState::Processed => Some(UnitFileResult::Succeeded(run(at))),
            FileState::Failed => Some(UnitFileResult::Failed),
            _ => None,
        };
        let record = FileRecord {
            run: run(at),
            sha256: sha256.map(str::to_owned),
            state,
            units: result
                .map(|result| ("docs-a".to_owned(), result))
                .into_iter()
                .collect(),
            unread: BTreeMap::new(),
            defines: None,
        };
        file_event(record, &HashSet::from([run(at)]))
    };
    // The content for which the file is settled, and who recorded it.
    let settled = |ktx: Option<&str>, own: &[FileEvent]| {
        let mut events = own.to_vec();
        events.push(ktx_event(&by_ktx(ktx)));
        events.sort_by_key(|event| event.time);
        let record = PriorFileRecord::from_events(events);
        let is_settled = |content: &&&str| {
            record
                .settled_at(
                    Some("docs-a"),
                    Fingerprint::parse(content).unwrap(),
                    &FileOwners::default(),
                    |_| None,
                )
                .is_some()
        };
        let content = [HASH, OTHER]
            .iter()
            .find(is_settled)
            .map(|content| if *content == HASH { "hash" } else { "other" });
        (
            content,
            record
                .origin()
                .map(|origin| matches!(origin, RecordOrigin::Ktx { .. })),
        )
    };
    let ktx = Some(HASH);
    let (processed, failed) = (FileState::Processed, FileState::Failed);
    assert_eq!(settled(ktx, &[]), (Some("hash"), Some(true)));
    assert_eq!(
        settled(ktx, &[own(None, FileState::Evicted, 20)]),
        (None, None),
        "gone since"
    );
    assert_eq!(
        settled(ktx, &[own(Some(OTHER), processed, 5)]),
        (Some("hash"), Some(true))
    );
    assert_eq!(
        settled(ktx, &[own(Some(OTHER), processed, 15)]),
        (Some("other"), Some(false))
    );
    assert_eq!(
        settled(ktx, &[own(ktx, processed, 5)]),
        (Some("hash"), Some(false)),
        "the same state is its own"
    );
    let failed_before = [own(Some(OTHER), processed, 5), own(Some(OTHER), failed, 8)];
    assert_eq!(
        settled(ktx, &failed_before),
        (Some("hash"), Some(true)),
        "KTX made good"
    );
    assert_eq!(settled(ktx, &[own(ktx, failed, 12)]), (None, Some(true)));
    assert_eq!(settled(None, &[]), (None, None));
    assert_eq!(
        settled(None, &[own(ktx, processed, 5)]),
        (None, None),
        "KTX processed its deletion later"
    );
    assert_eq!(
        settled(None, &[own(ktx, processed, 15)]),
        (Some("hash"), Some(false)),
        "it came back since"
    );
}
