//! See `src/journal.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::journal::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::journal::TARGET.check)(data); }
);
