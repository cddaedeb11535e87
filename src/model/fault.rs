//! A fault in a text that a person wrote: where, what, and the way out.

use std::ops::Range;

/// One fault in a TOML text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the text, in bytes.
    pub span: Range<usize>,
    /// What is wrong, in lower case and without a period.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    #[must_use]
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The candidate that `word` was most likely meant to be, for a hint; `None` when none is near.
///
/// Near means at most one edit in three characters (and at least one), where an edit inserts,
/// drops or replaces a character or swaps two neighbours. Of equals the first wins.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let edits = distance(word, candidate);
        if edits <= limit && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The number of edits from `a` to `b`: optimal string alignment, three rows of the table.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut fewest = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                fewest = fewest.min(before[j - 1] + 1);
            }
            row.push(fewest);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_or_none() {
        let rows = [
            ("stauts", Some("status"), "two neighbours swapped"),
            ("statu", Some("status"), "of equals the first"),
            ("text", Some("text"), "itself"),
            ("txt", Some("text"), "short words get one edit"),
            ("color", None, "nothing is near"),
            ("", None, "nothing to go by"),
            ("státus", Some("status"), "characters count, not bytes"),
        ];
        for (word, want, why) in rows {
            assert_eq!(nearest(word, ["status", "state", "text"]), want, "{why}");
        }
    }

    #[test]
    fn edits_are_counted() {
        let rows = [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("a", "abc", 2),
            ("abc", "a", 2),
            ("abc", "axc", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
            // Swapped neighbours are not edited again.
            ("ca", "abc", 3),
        ];
        for (a, b, want) in rows {
            assert_eq!(super::distance(a, b), want, "{a} {b}");
            assert_eq!(super::distance(b, a), want, "{b} {a}");
        }
    }
}
