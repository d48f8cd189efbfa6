//! The records of runs on disk: [`store`] keeps tapes and their index, [`replay`] reads every format that can be
//! replayed.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests prepare files")
)]

pub mod replay;
pub mod store;
