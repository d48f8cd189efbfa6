//! Files and processes of the machine, for all crates that do input and output: directories whose links are not
//! followed, programs by name, and a guard that ends process groups.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

pub mod file_size_limit;
pub mod group_guard;
pub mod open_file_limit;
pub mod program_path;
pub mod scoped_dir;
pub mod user_dirs;
