//! See `src/drop_box.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::drop_box::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::drop_box::TARGET.check)(data); }
);
