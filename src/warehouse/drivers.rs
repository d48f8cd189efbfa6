//! Where driver libraries come from: the user's settings, and the ADBC directories of the user and the system.
//!
//! A library runs as the user, so no other place is searched: not the project, not the current directory, not a virtual
//! environment.

#![expect(
    clippy::disallowed_methods,
    reason = "looks for libraries where the user's settings name them"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use adbc_core::{
    LOAD_FLAG_SEARCH_SYSTEM, LOAD_FLAG_SEARCH_USER,
    error::{Error, Status},
    options::AdbcVersion,
};
use adbc_driver_manager::ManagedDriver;

use ingestdeck_ingest::{QueryError, Warehouse, WarehouseDriver};

/// Most entries of a directory of the settings that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Names of a driver: of its manifest, of its library without prefix and suffix, and of its entry point if that does not
/// follow from the name of the library.
struct DriverNames {
    manifest: &'static str,
    library: &'static str,
    entry: Option<&'static [u8]>,
}

fn names(driver: WarehouseDriver) -> DriverNames {
    let (manifest, library) = match driver {
        // Redshift speaks the protocol of PostgreSQL.
        WarehouseDriver::Postgres | WarehouseDriver::Redshift => {
            ("postgresql", "adbc_driver_postgresql")
        }
        WarehouseDriver::DuckDb => ("duckdb", "duckdb"),
        WarehouseDriver::Snowflake => ("snowflake", "adbc_driver_snowflake"),
        WarehouseDriver::BigQuery => ("bigquery", "adbc_driver_bigquery"),
        WarehouseDriver::Databricks => ("databricks", "adbc_driver_databricks"),
        WarehouseDriver::MySql => ("mysql", "adbc_driver_mysql"),
        WarehouseDriver::SqlServer => ("mssql", "adbc_driver_mssql"),
    };
    let entry: Option<&[u8]> = match driver {
        WarehouseDriver::DuckDb => Some(b"duckdb_adbc_init"),
        _ => None,
    };
    DriverNames {
        manifest,
        library,
        entry,
    }
}

/// Loads the driver of `warehouse`.
pub(crate) fn load(warehouse: &Warehouse) -> Result<ManagedDriver, QueryError> {
    let names = names(warehouse.driver);
    let missing = || QueryError::MissingDriver {
        driver: names.manifest.to_owned(),
    };
    let failed = |error: Error| match error.status {
        Status::NotFound => missing(),
        _ => QueryError::InvalidDriver {
            driver: names.manifest.to_owned(),
            why: error.message,
        },
    };
    match find_in_settings(&warehouse.drivers, names.library) {
        Some(path) => with_version(|version| {
            ManagedDriver::load_dynamic_from_filename(&path, names.entry, version)
        })
        .map_err(|error| QueryError::InvalidDriver {
            driver: names.manifest.to_owned(),
            why: error.message,
        }),
        None => with_version(|version| {
            let flags = LOAD_FLAG_SEARCH_USER | LOAD_FLAG_SEARCH_SYSTEM;
            ManagedDriver::load_from_name(names.manifest, names.entry, version, flags, None)
        })
        .map_err(failed),
    }
}

/// Loads with the newest version of the interface that the driver has; only the newer one can cancel.
fn with_version(
    load: impl Fn(AdbcVersion) -> Result<ManagedDriver, Error>,
) -> Result<ManagedDriver, Error> {
    load(AdbcVersion::V110).or_else(|_| load(AdbcVersion::V100))
}

/// The library `name` among the files and directories of the settings. A directory may contain the folder of a Python wheel.
fn find_in_settings(places: &[PathBuf], name: &str) -> Option<PathBuf> {
    places
        .iter()
        .filter(|place| place.is_absolute())
        .find_map(|place| {
            if place.is_file() {
                return is_library(place, name).then(|| place.clone());
            }
            library_in(place, name).or_else(|| library_in(&place.join(name), name))
        })
}

fn library_in(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.take(MAX_ENTRIES);
    let mut libraries: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_library(path, name) && path.is_file())
        .collect();
    libraries.sort_unstable();
    libraries.into_iter().next()
}

/// Whether a file is the library `name`: `libNAME.so`, `libNAME.so.1` or `libNAME.dylib`.
fn is_library(path: &Path, name: &str) -> bool {
    let file = path.file_name().and_then(|file| file.to_str());
    file.and_then(|file| file.strip_prefix("lib")?.strip_prefix(name))
        .is_some_and(|rest| rest == ".dylib" || rest == ".so" || rest.starts_with(".so."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_only_in_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = dir.path().join("site/adbc_driver_postgresql");
        fs::create_dir_all(&wheel).unwrap();
        let library = wheel.join("libadbc_driver_postgresql.so");
        for path in [
            &library,
            &wheel.join("libadbc_driver_postgresql.so.txt.bak"),
        ] {
            fs::write(path, "").unwrap();
        }
        let find =
            |place: &Path| find_in_settings(&[place.to_path_buf()], "adbc_driver_postgresql");
        for place in [library.as_path(), &wheel, &dir.path().join("site")] {
            assert_eq!(find(place).as_deref(), Some(library.as_path()), "{place:?}");
        }
        assert_eq!(find(dir.path()), None);
        assert_eq!(find(Path::new("site")), None);
        assert_eq!(find_in_settings(&[library], "duckdb"), None);
    }
}
