//! See `src/config.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::config::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::config::TARGET.check)(data); }
);
