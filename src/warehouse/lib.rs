//! The child process that reads a warehouse through its ADBC driver.
//!
//! A driver is native code that the user installed, a statement comes from an agent, and a server may be hostile, so none
//! of them meets the process that owns a run. The child limits itself, reads the
//! [`Warehouse`](ingestdeck_ingest::Warehouse) as the first line of its stdin, and answers every
//! [`WarehouseStatement`](ingestdeck_ingest::WarehouseStatement) after it with one line. It is the only process that
//! reads the secrets of a connection.

mod cells;
mod drivers;
mod options;
mod read_only;
mod session;
mod worker;

pub use worker::run;
