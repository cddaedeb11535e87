//! Read-only pictures of a store: what commands print.

pub mod item;
pub mod status;
