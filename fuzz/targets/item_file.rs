//! See `src/item_file.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: { tickpost_fuzz::item_file::TARGET.begin(); },
    |data: &[u8]| { (tickpost_fuzz::item_file::TARGET.check)(data); }
);
