//! See `src/response.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::response::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::response::TARGET.check)(data); }
);
