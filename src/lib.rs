//! tickpost: sendmail for HTTP APIs.
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod entropy;
pub mod model;
pub mod store;
pub mod transport;
pub mod view;
