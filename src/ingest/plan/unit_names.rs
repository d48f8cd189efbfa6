//! Keys of units in a run. KTX runs each connection separately, so its keys are unique only within a connection. Where
//! several connections of a run have the same key, the connection's name is appended to each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::IngestPlan;
use crate::{slug, source::ChunkedConnection};
use ingestdeck_core::tape::{UnitKey, note::PlannedUnit};

/// Units of one connection whose key in the run differs from KTX's key.
#[derive(Debug, Default)]
pub(super) struct RunUnitKeys(BTreeMap<String, String>);

impl RunUnitKeys {
    /// Assigns the keys of all connections of a run, in their order.
    pub(super) fn assign(cuts: &[ChunkedConnection<'_>]) -> Vec<Self> {
        let bearers = slug::count_bearers(
            cuts.iter()
                .flat_map(|cut| &cut.chunks)
                .map(|chunk| &*chunk.key),
        );
        let is_shared = |key: &str| bearers.get(key).is_some_and(|count| *count > 1);
        let mut taken: BTreeSet<String> = bearers
            .keys()
            .filter(|key| !is_shared(key))
            .map(|key| (*key).to_owned())
            .collect();
        let mut named = |cut: &ChunkedConnection<'_>| {
            let shared = cut.chunks.iter().filter(|chunk| is_shared(&chunk.key));
            shared
                .map(|chunk| {
                    (
                        chunk.key.clone(),
                        claim_key(&chunk.key, &cut.connection.id, &mut taken),
                    )
                })
                .collect()
        };
        cuts.iter().map(|cut| Self(named(cut))).collect()
    }

    /// The key in the run of the unit with KTX's key `key`.
    pub(super) fn run_key<'a>(&'a self, key: &'a str) -> &'a str {
        self.0.get(key).map_or(key, String::as_str)
    }
}

/// The key in the run of a unit that shares its key with units of other connections. Older runs appended the connection
/// even if they had no other connection, and did not record KTX's key.
pub(super) fn qualified_key(key: &str, connection: &str) -> String {
    format!("{key}-{}", slug::slugify(connection))
}

/// Returns an unused key for the unit `key` of `connection` and adds it to `taken`.
fn claim_key(key: &str, connection: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = qualified_key(key, connection);
    let mut name = plain.clone();
    let mut length = 6;
    while taken.contains(&name) {
        name = format!("{plain}-{}", slug::short_hash(connection, length));
        length += 2;
    }
    taken.insert(name.clone());
    name
}

impl IngestPlan {
    /// Gives units the keys that they have in `earlier`, the units of the run that this one resumes. Its tape
    /// identifies units by these keys, and whether units share their keys may have changed since.
    pub fn reuse_unit_keys<'a>(&mut self, earlier: impl Iterator<Item = &'a PlannedUnit>) {
        let mut names: HashMap<(&str, &str), &UnitKey> = HashMap::new();
        for unit in earlier {
            names
                .entry((unit.connection.as_str(), unit.ktx_key().as_str()))
                .or_insert(&unit.unit);
        }
        let mut taken: BTreeSet<String> = names.values().map(|name| name.to_string()).collect();
        for PlannedUnit {
            unit,
            ktx_key,
            connection,
            ..
        } in self.units.iter_mut().map(|unit| &mut unit.planned)
        {
            let key = ktx_key.take().unwrap_or_else(|| unit.clone());
            let shared = qualified_key(&key, connection);
            let name = [key.as_str(), &shared]
                .into_iter()
                .find_map(|key| names.get(&(connection.as_str(), key)));
            match name {
                Some(name) => (*name).clone_into(unit),
                None if taken.contains(unit.as_str()) => {
                    *unit = claim_key(&key, connection, &mut taken).as_str().into()
                }
                None => drop(taken.insert(unit.to_string())),
            }
            *ktx_key = (key != *unit).then_some(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work_unit::WorkUnit;

    fn planned(unit: &str, key: Option<&str>) -> PlannedUnit {
        let (unit, ktx_key) = (unit.into(), key.map(UnitKey::from));
        PlannedUnit {
            unit,
            ktx_key,
            connection: "b".into(),
            ..PlannedUnit::default()
        }
    }

    #[test]
    fn resumed_run_keeps_its_unit_keys() {
        let old_and_new = [
            planned("docs-page-b", None),
            planned("docs-page-b", Some("docs-page")),
        ];
        for earlier in [
            old_and_new[0].clone(),
            old_and_new[1].clone(),
            planned("docs-page", None),
        ] {
            for now in [
                planned("docs-page", None),
                planned("docs-page-b", Some("docs-page")),
            ] {
                let unit = WorkUnit {
                    planned: now,
                    ..WorkUnit::default()
                };
                let mut plan = IngestPlan {
                    units: vec![unit],
                    ..IngestPlan::default()
                };
                plan.reuse_unit_keys(std::iter::once(&earlier));
                let called = &plan.units[0].planned;
                assert_eq!(
                    (&called.unit, called.ktx_key().as_str()),
                    (&earlier.unit, "docs-page")
                );
            }
        }
    }
}
