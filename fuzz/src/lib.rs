//! What must hold for any bytes at all. A property panics when it does not.
//!
//! The fuzz targets of `targets/` look for bytes that break one; `tests/fuzz.rs` includes this file
//! and tries a bounded number of them.

pub mod config;
pub mod drop_box;
pub mod item_file;
pub mod journal;
pub mod response;
pub mod rules;

/// One property and where to begin.
pub struct Target {
    /// Its name, and that of its fuzz target.
    pub name: &'static str,
    /// Panics if the property does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Bytes that reach far, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every property.
pub const TARGETS: [&Target; 6] = [
    &item_file::TARGET,
    &journal::TARGET,
    &drop_box::TARGET,
    &config::TARGET,
    &rules::TARGET,
    &response::TARGET,
];

impl Target {
    /// Writes the seeds into the directory that `$TICKPOST_FUZZ_SEEDS` names, if it does.
    ///
    /// # Panics
    ///
    /// If they cannot be written.
    pub fn begin(&self) {
        let Some(dir) = std::env::var_os("TICKPOST_FUZZ_SEEDS") else {
            return;
        };
        for (index, seed) in (self.seeds)().iter().enumerate() {
            let path = std::path::Path::new(&dir).join(format!("seed-{index:03}"));
            std::fs::write(path, seed).unwrap();
        }
    }
}

/// A number that the bytes decide, below `bound`: where to cut, which bit to flip.
fn pick(bytes: &[u8], salt: u64, bound: usize) -> usize {
    // FNV-1a.
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ salt, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    usize::try_from(hash % bound.max(1) as u64).unwrap()
}

/// The blocks of `spool/README.md` that are fenced as `language`.
fn examples(language: &str) -> Vec<String> {
    let text = include_str!("../../spool/README.md");
    let mut found = Vec::new();
    let mut inside: Option<String> = None;
    for line in text.lines() {
        match &mut inside {
            Some(block) if line.starts_with("```") => {
                found.push(std::mem::take(block));
                inside = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line == format!("```{language}") => inside = Some(String::new()),
            None => {}
        }
    }
    found
}
