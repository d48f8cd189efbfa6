//! The records of runs on disk: [`store`] keeps tapes and their index, [`replay`] reads every format that can be
//! replayed.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for developers and includes private items"
)]

pub mod replay;
pub mod store;
