//! Just enough of Rust's grammar to find the paths of a source file: comments and literals are
//! blanked, test code can be cut out, and the trees of `use` are spelled out.

/// A path such as `crate::store::disk`, and the line that it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The text with every comment, string and character literal turned into blanks. Lines stay.
pub(crate) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match literal_end(&chars, at) {
            Some(end) => end,
            None if is_word(chars[at]) => {
                // A whole word, so that the `r` of `for` begins no raw string.
                let length = chars[at..].iter().take_while(|c| is_word(**c)).count();
                out.extend(&chars[at..at + length]);
                at += length;
                continue;
            }
            None => {
                out.push(chars[at]);
                at += 1;
                continue;
            }
        };
        let blanked = chars[at..end].iter();
        out.extend(blanked.map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `None` if none begins there.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let starts = |word: &str| rest.iter().copied().take(word.len()).eq(word.chars());
    let from = |skip: usize, end: Option<usize>| Some(end.map_or(chars.len(), |e| at + skip + e));
    if starts("//") {
        return from(0, rest.iter().position(|c| *c == '\n'));
    }
    if starts("/*") {
        let (mut depth, mut i) = (0, 0);
        while i + 1 < rest.len() {
            match (rest[i], rest[i + 1]) {
                ('/', '*') => (depth, i) = (depth + 1, i + 2),
                ('*', '/') => (depth, i) = (depth - 1, i + 2),
                _ => i += 1,
            }
            if depth == 0 {
                return Some(at + i);
            }
        }
        return Some(chars.len());
    }
    let prefix = rest.iter().take_while(|c| "bcr".contains(**c)).count();
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let is_raw = rest[..prefix].contains(&'r');
    match rest.get(prefix + hashes) {
        Some('"') if is_raw || hashes == 0 => {
            let open = prefix + hashes + 1;
            let body = &rest[open..];
            let close = if is_raw {
                (0..body.len())
                    .find(|i| {
                        body[*i] == '"' && body[i + 1..].iter().take(hashes).eq(vec![&'#'; hashes])
                    })
                    .map(|i| i + 1 + hashes)
            } else {
                end_of_escaped(body, '"')
            };
            from(open, close)
        }
        Some('\'') if hashes == 0 && prefix <= 1 && !is_raw => {
            let body = &rest[prefix + 1..];
            // Anything else is a lifetime.
            let is_char = body.first() == Some(&'\\') || body.get(1) == Some(&'\'');
            is_char.then_some(())?;
            from(prefix + 1, end_of_escaped(body, '\''))
        }
        _ => None,
    }
}

fn end_of_escaped(body: &[char], quote: char) -> Option<usize> {
    let mut i = 0;
    while i < body.len() {
        match body[i] {
            '\\' => i += 2,
            c if c == quote => return Some(i + 1),
            _ => i += 1,
        }
    }
    None
}

/// Blanked text with every item under `#[cfg(test)]` blanked too.
pub(crate) fn without_tests(blanked: &str) -> String {
    let mut out = blanked.to_owned();
    let mark = "#[cfg(test)]";
    while let Some(start) = out.find(mark) {
        let mut depth = 0;
        let mut end = out.len();
        for (i, c) in out[start + mark.len()..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && (c == '}' || c == ';') {
                end = start + mark.len() + i + c.len_utf8();
                break;
            }
        }
        let cut: String = out[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        out.replace_range(start..end, &cut);
    }
    out
}

/// Every path in blanked text, with the groups of `use` spelled out: `use a::{b, c::d}` holds
/// `a::b` and `a::c::d`. A name alone is a path only after `use`.
pub(crate) fn paths(blanked: &str) -> Vec<Path> {
    let chars: Vec<char> = blanked.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    let mut line = 1;
    let mut after_use = false;
    while at < chars.len() {
        if is_word(chars[at]) {
            let mut trees = Vec::new();
            let end = tree(&chars, at, "", &mut trees);
            let is_path = after_use || trees != [word(&chars, at)];
            after_use = trees == ["use"];
            if is_path {
                found.extend(trees.into_iter().map(|text| Path { line, text }));
            }
            line += chars[at..end].iter().filter(|c| **c == '\n').count();
            at = end;
        } else {
            line += usize::from(chars[at] == '\n');
            // `use` may be followed by `::`.
            after_use &= chars[at].is_whitespace() || chars[at] == ':';
            at += 1;
        }
    }
    found
}

/// Reads one path, or tree of paths, at `at`; returns where it ends.
fn tree(chars: &[char], at: usize, before: &str, found: &mut Vec<String>) -> usize {
    let name = word(chars, at);
    let whole = if before.is_empty() {
        name.clone()
    } else {
        format!("{before}::{name}")
    };
    let end = at + name.chars().count();
    let next = skip_blanks(chars, end);
    let goes_on = chars.get(next) == Some(&':') && chars.get(next + 1) == Some(&':');
    // `use ::a` is no path that begins with `use`.
    if !goes_on || whole == "use" {
        found.push(whole);
        return end;
    }
    let after = skip_blanks(chars, next + 2);
    match chars.get(after) {
        Some(c) if is_word(*c) => tree(chars, after, &whole, found),
        Some('{') => {
            let mut i = after + 1;
            while i < chars.len() && chars[i] != '}' {
                if is_word(chars[i]) {
                    i = tree(chars, i, &whole, found);
                    i = skip_alias(chars, i);
                } else {
                    if chars[i] == '*' {
                        found.push(format!("{whole}::*"));
                    }
                    i += 1;
                }
            }
            i + 1
        }
        Some('*') => {
            found.push(format!("{whole}::*"));
            after + 1
        }
        // A turbofish, or a macro's variable.
        _ => {
            found.push(whole);
            next + 2
        }
    }
}

fn skip_alias(chars: &[char], at: usize) -> usize {
    let next = skip_blanks(chars, at);
    if word(chars, next) == "as" {
        let name = skip_blanks(chars, next + 2);
        return name + word(chars, name).chars().count();
    }
    at
}

fn skip_blanks(chars: &[char], at: usize) -> usize {
    at + chars[at.min(chars.len())..]
        .iter()
        .take_while(|c| c.is_whitespace())
        .count()
}

fn word(chars: &[char], at: usize) -> String {
    chars[at.min(chars.len())..]
        .iter()
        .take_while(|c| is_word(**c))
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let paths = paths(&blank(source));
        paths.into_iter().map(|path| path.text).collect()
    }

    #[test]
    fn comments_and_literals_are_blank() {
        for source in [
            "// std::fs\n",
            "/* std::fs /* std::env */ std::fs */",
            "\"std::fs \\\" std::fs\"",
            "r#\"std::fs \" std::fs\"#",
            "b\"std::fs\" br\"std::fs\"",
            "/// std::fs\n//! std::fs",
        ] {
            assert_eq!(blank(source).trim(), "", "{source}");
        }
        assert_eq!(
            blank("'a' '\\'' '{' b'\"' x"),
            format!("{}x", " ".repeat(18))
        );
        assert_eq!(blank("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(blank("for \"a\" in br"), "for     in br");
        assert_eq!(blank("\"a\nb\" c"), "  \n   c");
    }

    #[test]
    fn use_trees_are_spelled_out() {
        assert_eq!(
            texts("use std::{fs::{self, File}, io as other, net::*};"),
            ["std::fs::self", "std::fs::File", "std::io", "std::net::*"]
        );
        assert_eq!(texts("use ::tokio;"), ["tokio"]);
        assert_eq!(texts("pub(crate) use crate::a::b;"), ["crate::a::b"]);
        assert_eq!(
            texts("let x = a.b(std::env::var::<T>(\"c::d\"), super::super::e);"),
            ["std::env::var", "super::super::e"]
        );
        assert_eq!(
            paths(&blank("\n\nuse a::{\n b,\n};\nc::d")),
            [
                Path {
                    line: 3,
                    text: "a::b".to_owned()
                },
                Path {
                    line: 6,
                    text: "c::d".to_owned()
                }
            ]
        );
    }

    #[test]
    fn test_code_is_cut_out() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { '}' } }\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}";
        let left = without_tests(&blank(source));
        let words: Vec<_> = left.split_whitespace().collect();
        assert_eq!(words.join(" "), "fn a() {} fn c() {} fn e() {}");
        assert_eq!(left.lines().count(), source.lines().count());
    }
}
