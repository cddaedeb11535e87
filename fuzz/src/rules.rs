//! Rules: any text is read or refused with places within it, and what was read judges any answer
//! without breaking a guarantee.

use tickpost::model::rules::RuleSet;
use tickpost::model::saved;
use toml::de::DeTable;

use super::Target;
use super::response::{SAVED, judged};

/// See [`check`].
pub const TARGET: Target = Target {
    name: "rules",
    check,
    seeds,
};

/// What stands between the rules and the response.
const BETWEEN: &str = "\n----\n";

/// Holds for any text: rules, a line of `----`, and a response.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (text, response) = text.split_once(BETWEEN).unwrap_or((text, SAVED[0]));
    let Ok(table) = DeTable::parse(text) else {
        return;
    };
    let (rules, faults) = RuleSet::from_table("destination:d", table.get_ref());
    for fault in &faults {
        let place = text.get(fault.span.clone());
        assert!(place.is_some(), "{fault:?} is not within the text");
        assert!(!fault.message.is_empty() && !fault.message.ends_with('.'));
    }
    let lines = rules.describe();
    let names: Vec<&str> = lines.iter().map(|line| line.rule.as_str()).collect();
    for (index, name) in names.iter().enumerate() {
        let own = name.starts_with("destination:d/") && !name.ends_with("/success");
        assert!(
            !own || !names[..index].contains(name),
            "{name} is of two rules"
        );
    }
    if let Ok(answer) = saved::parse(response.as_bytes()) {
        judged(&rules, &lines, &answer, true);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let rules = [
        "success = 'require'\nstrict_503 = true\natomic_body = true\n",
        "[[rule]]\nname = 'a'\nstate = 'failed'\nreason = 'content_rejected'\nscope = 'group'\naction = 'disable'\nraw = { json = '/error/code' }\nwhen = { status = [402, '5xx', '400-403'], json = { '/error/**/code' = ['a', { regex = '^b' }] } }\n",
        "[[rule]]\nstate = 'confirmed'\nreason = 'accepted'\nreceipt = [{ header = 'x-id' }, { json = '/id' }]\nwhen = { status = '2xx', header = { x-a = { exists = true }, x-b = { gt = 0.5, not = '2' } } }\n",
        "[[rule]]\nstate = 'pending'\nreason = 'rate_limited'\nretry = [{ header = 'retry-after', as = 'http' }, { json = '/w', as = 's' }, { text = 'in (\\d+) (min)', as = 'unit' }, { fixed = 7 }]\nretry_combine = 'max'\nwhen = { text = ['(?i)limit', 'slow'], method = 'POST', key_sent = true, prior = 'none' }\n",
        "[[rule]]\nstate = 'unknown'\nreason = 'x_mine'\nwhen = { transport = ['truncated_body', 'timeout_after_send'] }\n[[rule]]\nstate = 'held'\nreason = 'transient'\nwhen = { transport = 'reset_after_send' }\n",
        "[[rule]]\nstate = 'failed'\nreason = 'transient'\nwhen = { transport = 'reset_after_send', prior = 'maybe' }\n[[rule]]\nstate = 'confirmed'\nreason = 'duplicate_confirmed'\ncertain = true\nwhen = { status = 409, json = { '/*/a' = { nonempty = true } } }\n",
    ];
    let mut seeds = Vec::new();
    for (index, rules) in rules.iter().enumerate() {
        for response in [SAVED[index % SAVED.len()], SAVED[(index + 3) % SAVED.len()]] {
            seeds.push(format!("{rules}{BETWEEN}{response}").into_bytes());
        }
    }
    seeds
}
