//! tickpost: sendmail for HTTP APIs.
pub mod clock;
pub mod config;
pub mod model;
pub mod store;
pub mod transport;
