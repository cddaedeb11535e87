//! The fingerprint of a destination: what it says, whatever it looks like.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml::de::{DeTable, DeValue};

use crate::model::envelope::sha256_hex;

/// SHA-256 over a canonical form: order, spacing, comments and spellings of numbers do not count.
pub(super) fn of(table: &DeTable<'_>) -> String {
    let mut text = String::new();
    write_table(&mut text, table);
    sha256_hex(text.as_bytes())
}

fn write_table(text: &mut String, table: &DeTable<'_>) {
    text.push('{');
    let sorted: BTreeMap<&str, &DeValue<'_>> = table
        .iter()
        .map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
        .collect();
    for (key, value) in sorted {
        write_text(text, key);
        write_value(text, value);
    }
    text.push('}');
}

fn write_value(text: &mut String, value: &DeValue<'_>) {
    match value {
        DeValue::String(string) => write_text(text, string),
        DeValue::Integer(integer) => {
            match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => push(text, format_args!("i{number};")),
                Err(_) => push(text, format_args!("I{integer};")),
            }
        }
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) => push(text, format_args!("f{number:?};")),
            Err(_) => push(text, format_args!("F{float};")),
        },
        DeValue::Boolean(truth) => push(text, format_args!("b{truth};")),
        DeValue::Datetime(time) => push(text, format_args!("d{time};")),
        DeValue::Array(array) => {
            text.push('[');
            for element in array {
                write_value(text, element.get_ref());
            }
            text.push(']');
        }
        DeValue::Table(table) => write_table(text, table),
    }
}

/// With its length, so that no two values run together.
fn write_text(text: &mut String, value: &str) {
    push(text, format_args!("s{}:{value}", value.len()));
}

fn push(text: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let written = text.write_fmt(args);
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn print(text: &str) -> String {
        of(DeTable::parse(text).unwrap().get_ref())
    }

    #[test]
    fn what_it_says_counts_and_not_how() {
        let one = "a = 16\nb = [\"x\", 'y']\n[c]\nd = 1.50\n";
        for same in [
            "b = ['x', \"y\"] # comment\na = 0x10\nc = { d = 1.5 }",
            "c.d = 1.5\na = 1_6\nb = [\n'x',\n'y' ]",
        ] {
            assert_eq!(print(one), print(same), "{same}");
        }
        for other in [
            "a = 16\nb = [\"x\", 'z']\n[c]\nd = 1.50\n",
            "a = 16\nb = [\"xy\"]\n[c]\nd = 1.50\n",
            "a = '16'\nb = [\"x\", 'y']\n[c]\nd = 1.50\n",
            "a = 16\nb = [\"x\", 'y']\nd = 1.50\n",
        ] {
            assert_ne!(print(one), print(other), "{other}");
        }
    }
}
