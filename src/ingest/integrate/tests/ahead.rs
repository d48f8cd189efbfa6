//! Integration ahead, compared with one that begins when all patches exist.

use proptest::{prelude::*, sample::subsequence};

use super::*;

impl IntegrationFixture {
    /// Patches that build on, conflict with, or repeat each other, and some that are always refused.
    fn related_patches(&self) -> Vec<UnitPatch> {
        const NEW: &str = "wiki/global/new.md";
        const OLD: &str = "wiki/global/old.md";
        let old = self.read(OLD).unwrap();
        let (second, other) = (old.replace("second", "2nd"), old.replace("second", "zwei"));
        let fourth = old.replace("fourth", "4th");
        let (new, refers, fan) = (page("x", &[]), page("x", &["new"]), page("fan", &[]));
        let source =
            "name: orders\ntable: orders\ngrain: [id]\ncolumns:\n  - {name: id, type: string}\n";
        let cited = "---\nsummary: s\nsl_refs: [orders]\n---\n\ny\n";
        let unit = |unit: &str, files: &[(&str, Option<&str>)]| self.patch(unit, files);
        let mut all = vec![
            unit("creates", &[(NEW, Some(&new))]),
            unit("refers", &[("wiki/global/refers.md", Some(&refers))]),
            unit("creates-too", &[(NEW, Some(&new))]),
            unit("creates-other", &[(NEW, Some(&fan))]),
            unit("case", &[("wiki/global/NEW.md", Some(&new))]),
            unit("second", &[(OLD, Some(&second))]),
            unit(
                "second-too",
                &[(OLD, Some(&second)), ("wiki/global/z.md", Some(&new))],
            ),
            unit("second-other", &[(OLD, Some(&other))]),
            unit("fourth", &[(OLD, Some(&fourth))]),
            unit("removes-old", &[(OLD, None)]),
            unit("frees-old", &[("wiki/global/fan.md", Some(&fan))]),
            unit("source", &[("semantic-layer/w/orders.yaml", Some(source))]),
            unit("cites", &[("wiki/global/cites.md", Some(cited))]),
            self.raw_patch("broken", b"no patch"),
        ];
        let none = |unit: &str, file: Option<&str>| UnitPatch {
            unit: unit.into(),
            file: file.map(|file| self.root.join(file)),
            ..all[0].clone()
        };
        let more = [none("nothing", None), none("lost", Some("x.patch"))];
        all.extend(more);
        all
    }
}

/// Outcomes without the ids of commits, which contain the time.
fn plain(outcomes: &[PatchOutcome]) -> Vec<PatchOutcome> {
    let mut plain = outcomes.to_vec();
    for outcome in &mut plain {
        if let PatchOutcome::Accepted { commit, .. } = outcome {
            commit.clear();
        }
    }
    plain
}

/// What an integration leaves for the review, the save and later patches.
fn result_of(run: &IntegrationFixture, of: &PatchIntegrator) -> (String, String, String) {
    let tree = format!("{}^{{tree}}", of.head().unwrap());
    (
        run.git(&["rev-parse", &tree]),
        format!("{:?}", of.writers_by_path),
        format!("{:?}", of.originals),
    )
}

const PATCHES: usize = 16;

/// The plan, and what is applied ahead: after the first patches so far, others follow.
fn plans() -> impl Strategy<Value = (Vec<usize>, Vec<(usize, Vec<usize>)>)> {
    let some = |most: usize| subsequence((0..PATCHES).collect::<Vec<_>>(), 0..=most).prop_shuffle();
    (
        some(PATCHES),
        prop::collection::vec((0..5usize, some(4)), 0..4),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn integration_ahead_has_the_result_of_the_plan((plan, ahead) in plans(), is_prefix: bool) {
        let run = IntegrationFixture::new();
        let all = run.related_patches();
        let patches: Vec<UnitPatch> = plan.iter().map(|at| all[*at].clone()).collect();
        let (expected, outcomes) = run.integrate(&patches);
        let wanted = result_of(&run, &expected);
        drop(expected);
        let mut integration = PatchIntegrator::open(&run.trees, vec!["w".into()]).unwrap();
        for (kept, next) in &ahead {
            integration.keep_first(*kept).unwrap();
            let count = integration.applied_count();
            let of_plan = patches[count.min(patches.len())..].iter().take(next.len()).cloned();
            let next: Vec<_> = match is_prefix {
                true => of_plan.collect(),
                false => next.iter().map(|at| all[*at].clone()).collect(),
            };
            next.iter().for_each(|patch| integration.apply_next(patch).unwrap());
        }
        prop_assert!(integration.is_current().unwrap());
        let mut results = Vec::new();
        integration
            .integrate_exactly(&patches, |of, outcome| results.push((of.unit.clone(), outcome.clone())))
            .unwrap();
        let (units, results): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        prop_assert_eq!(units, patches.iter().map(|of| of.unit.clone()).collect::<Vec<_>>());
        prop_assert_eq!(plain(&results), plain(&outcomes));
        prop_assert_eq!(result_of(&run, &integration), wanted);
        let saved = integration.save(&message("all"), &[]).unwrap();
        drop(integration);
        let head = run.git(&["rev-parse", "HEAD"]);
        prop_assert_eq!(run.trees.base().to_string(), head.trim());
        prop_assert_eq!(saved.commit.is_some(), run.git(&["rev-list", "HEAD"]).lines().count() > 1);
        run.assert_tidy();
    }
}

#[test]
fn moved_branch_ends_what_was_applied_ahead() {
    let run = IntegrationFixture::new();
    let patch = run.patch("a", &[("wiki/global/new.md", Some(&page("new", &[])))]);
    let (integration, _) = run.integrate(&[patch]);
    assert!(integration.is_current().unwrap());
    run.git(&["commit", "--quiet", "--allow-empty", "-m", "later"]);
    assert!(!integration.is_current().unwrap());
}
