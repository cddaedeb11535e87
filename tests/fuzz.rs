//! The properties of `fuzz/`, each on its seeds and on a bounded number of mutations of them: the
//! same bytes every time. `fuzz/run` goes on from there, guided by coverage.
//!
//! `TICKPOST_FUZZ_RUNS=N` tries N mutations of each instead of a few hundred.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may panic, and says then of what"
)]

#[path = "../fuzz/src/lib.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "it is the library of the fuzz targets, which write their seeds"
)]
mod properties;

use properties::Target;

/// How many mutations of each are tried.
const RUNS: u64 = 300;

/// Words that reach into formats faster than chance does.
const WORDS: [&str; 24] = [
    "\n",
    "\0",
    "\r\n",
    "{",
    "}",
    "\"",
    "..",
    "/",
    "%2e",
    "null",
    "-1",
    "0",
    "4294967295",
    "18446744073709551615",
    "1e999",
    "\u{feff}",
    "é",
    "9999-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00Z",
    "pending/../",
    "[[rule]]\n",
    "state = 'unknown'\n",
    "retry-after: 1\r\n",
    "{\"event\":\"released\",\"at\":\"2026-11-29T15:40:03.123Z\",\"state\":\"pending\"}\n",
];

/// xorshift64*: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound.max(1)
    }
}

/// Says which bytes it was, if the property panics.
struct Under<'a>(&'a Target, &'a [u8]);

impl Drop for Under<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = String::from_utf8_lossy(self.1);
            eprintln!("`{}` does not hold for {text:?}", self.0.name);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = (at + 1 + numbers.below(24)).min(bytes.len());
    match numbers.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let word = WORDS[numbers.below(WORDS.len())];
            drop(bytes.splice(at..at, word.bytes()));
        }
        3 => {
            let word = WORDS[numbers.below(WORDS.len())];
            drop(bytes.splice(at..end, word.bytes()));
        }
        4 => {
            let other = &seeds[numbers.below(seeds.len())];
            let from = numbers.below(other.len());
            drop(bytes.splice(at.., other[from..].iter().copied()));
        }
        5 => {
            let again = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, again));
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
    }
}

fn holds(target: &Target) {
    let runs = std::env::var("TICKPOST_FUZZ_RUNS");
    let runs = runs.map_or(RUNS, |text| text.parse().unwrap());
    let seeds = (target.seeds)();
    assert!(seeds.len() > 5, "{} begins with something", target.name);
    for seed in &seeds {
        let _under = Under(target, seed);
        (target.check)(seed);
    }
    let mut numbers = Numbers(0x7469_636b_706f_7374);
    for _ in 0..runs {
        let mut bytes = seeds[numbers.below(seeds.len())].clone();
        for _ in 0..=numbers.below(4) {
            mutate(&mut bytes, &seeds, &mut numbers);
        }
        let _under = Under(target, &bytes);
        (target.check)(&bytes);
    }
}

#[test]
fn item_files() {
    holds(&properties::item_file::TARGET);
}

#[test]
fn journals() {
    holds(&properties::journal::TARGET);
}

#[test]
fn drop_boxes() {
    holds(&properties::drop_box::TARGET);
}

#[test]
fn configurations() {
    holds(&properties::config::TARGET);
}

#[test]
fn rules_and_answers() {
    holds(&properties::rules::TARGET);
}

#[test]
fn responses() {
    holds(&properties::response::TARGET);
}

#[test]
fn every_property_has_its_fuzz_target_and_its_test() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/targets");
    for target in properties::TARGETS {
        let file = directory.join(format!("{}.rs", target.name));
        assert!(file.is_file(), "{}", file.display());
    }
}
