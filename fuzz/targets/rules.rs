//! See `src/rules.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::rules::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::rules::TARGET.check)(data); }
);
