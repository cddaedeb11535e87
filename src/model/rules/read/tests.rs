#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::super::RuleSet;
use super::*;

/// A rule that holds, with more in it. Gives its line, or its one fault and what it points at.
fn rule(more: &str, when: &str) -> Result<super::super::RuleLine, (String, String)> {
    let text =
        format!("[[rule]]\nstate = 'held'\nreason = 'transient'\n{more}\nwhen = {{ {when} }}\n");
    let table = DeTable::parse(&text).unwrap();
    let (rules, faults) = RuleSet::from_table("d", table.get_ref());
    match &faults[..] {
        [] => Ok(rules.describe().remove(0)),
        [fault] => {
            let hint = fault.hint.as_deref().unwrap_or_default();
            let said = format!("{}; {hint}", fault.message);
            Err((said, text[fault.span.clone()].to_owned()))
        }
        more => panic!("{text}: {more:?}"),
    }
}

/// What a condition is shown as.
fn shown(when: &str) -> String {
    rule("", when).unwrap().when
}

#[test]
fn names_are_words_of_a_bounded_length() {
    let longest = "a".repeat(64);
    for name in ["a", "Az09-_.", "-", longest.as_str()] {
        let line = rule(&format!("name = '{name}'"), "").unwrap();
        assert_eq!(line.rule, format!("d/{name}"));
    }
    let long = "a".repeat(65);
    for name in ["", "a b", "a/b", "\u{e4}", long.as_str()] {
        let (said, place) = rule(&format!("name = '{name}'"), "").unwrap_err();
        assert!(said.contains("is not a name for a rule"), "{said}");
        assert_eq!(place, format!("'{name}'"));
    }
    assert_eq!(
        rule("", "").unwrap().rule,
        "d/1",
        "its number, if it has none"
    );
    let (said, _) = rule("name = 7", "").unwrap_err();
    assert!(said.contains("name is not a text"), "{said}");
}

#[test]
fn a_rule_is_counted_with_those_that_have_names() {
    let text = "[[rule]]\nname = 'a'\nstate = 'held'\nreason = 'transient'\nwhen = {}\n\
                [[rule]]\nstate = 'held'\nreason = 'transient'\nwhen = {}\n";
    let table = DeTable::parse(text).unwrap();
    let (rules, faults) = RuleSet::from_table("d", table.get_ref());
    assert_eq!(faults, []);
    let names: Vec<String> = rules.describe().into_iter().map(|line| line.rule).collect();
    assert_eq!(names[..2], ["d/a", "d/2"]);
    // So a name can be taken by a number.
    let text = text.replace("'a'", "'2'");
    let table = DeTable::parse(&text).unwrap();
    let (_, faults) = RuleSet::from_table("d", table.get_ref());
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[test]
fn the_words_of_a_rule() {
    for (word, scope) in [
        ("item", Scope::Item),
        ("destination", Scope::Destination),
        ("group", Scope::Group),
    ] {
        let line = rule(&format!("scope = '{word}'"), "").unwrap();
        assert_eq!(line.scope, scope, "{word}");
    }
    assert_eq!(rule("", "").unwrap().scope, Scope::Item);
    for action in Action::ALL {
        let line = rule(&format!("action = '{}'", action.as_str()), "").unwrap();
        assert_eq!(line.action, Some(action));
    }
    assert_eq!(rule("", "").unwrap().action, None);
    let (said, place) = rule("scope = 'everything'", "").unwrap_err();
    assert!(
        said.contains("use one of item, destination, group"),
        "{said}"
    );
    assert_eq!(place, "'everything'");
    let (said, _) = rule("zzz = 1", "").unwrap_err();
    assert!(
        said.contains("the keys of a rule are name, state, reason"),
        "{said}"
    );
}

#[test]
fn each_part_of_a_condition_is_shown() {
    let rows = [
        ("", "any answer"),
        ("status = 429", "status 429"),
        (
            "status = ['5xx', '5XX', '400-499', '400-403']",
            "status 5xx or 5xx or 4xx or 400-403",
        ),
        ("status = '404-404'", "status 404"),
        ("status = '150-249'", "status 150-249"),
        ("status = ' 1xx'", ""),
        ("transport = 'dns_failure'", "transport dns_failure"),
        (
            "transport = ['truncated_body', 'reset_after_send']",
            "transport truncated_body or reset_after_send",
        ),
        ("text = ['a', 'b']", "text matches /a/ or /b/"),
        (
            "prior = 'maybe'",
            "an earlier attempt may have been acted on",
        ),
        ("prior = 'none'", "no earlier attempt was acted on"),
        ("key_sent = true", "a key was sent"),
        ("key_sent = false", "no key was sent"),
        (
            "method = ['PUT', 'M-SEARCH', 'A_B']",
            "method PUT or M-SEARCH or A_B",
        ),
        ("header = { X-A = 'b' }", "header x-a is \"b\""),
        (
            "header = { x-a = { gt = 1, exists = true } }",
            "header x-a exists and is above 1",
        ),
        ("json = { '/a' = 1 }", "json /a is 1"),
        ("json = { '/a' = 1.5 }", "json /a is 1.5"),
        ("json = { '/a' = false }", "json /a is false"),
        ("json = { '/a' = ['b', 2] }", "json /a is \"b\" or is 2"),
        ("json = { '/a' = { exists = false } }", "json /a is absent"),
        (
            "json = { '/a' = { nonempty = true } }",
            "json /a is not empty",
        ),
        ("json = { '/a' = { nonempty = false } }", "json /a is empty"),
        ("json = { '/a' = { regex = 'b' } }", "json /a matches /b/"),
        (
            "json = { '/a' = { not = { regex = 'b' } } }",
            "json /a not (matches /b/)",
        ),
    ];
    for (when, want) in rows {
        match rule("", when) {
            Ok(line) => assert_eq!(line.when, want, "{when}"),
            Err((said, _)) => assert_eq!("", want, "{when}: {said}"),
        }
    }
}

#[test]
fn numbers_in_every_spelling() {
    for (number, want) in [
        ("16", "16"),
        ("0x10", "16"),
        ("0b11", "3"),
        ("1_000", "1000"),
        ("-3", "-3"),
        ("2.5", "2.5"),
        ("1e3", "1000"),
    ] {
        let got = shown(&format!("json = {{ '/a' = {{ gt = {number} }} }}"));
        assert_eq!(got, format!("json /a is above {want}"), "{number}");
    }
    for number in ["inf", "-inf", "nan", "true", "'1'", "[1]", "{}"] {
        let (said, place) =
            rule("", &format!("json = {{ '/a' = {{ gt = {number} }} }}")).unwrap_err();
        assert!(said.contains("`gt` is not a number"), "{number}: {said}");
        assert_eq!(place, number);
    }
    // A status is written as people know it.
    for status in ["0x1ad", "0x200", "4.29", "true", "[[429]]", "1000", "0"] {
        let (said, _) = rule("", &format!("status = {status}")).unwrap_err();
        assert!(said.contains("not a status; write 429"), "{status}: {said}");
    }
}

#[test]
fn names_of_headers_and_methods() {
    for name in ["a", "X-A_1", "!#$%&*+.^`|~"] {
        assert!(
            rule("", &format!("header = {{ \"{name}\" = '1' }}")).is_ok(),
            "{name}"
        );
    }
    for name in ["", "a b", "a:", "\u{e4}"] {
        let (said, _) = rule("", &format!("header = {{ \"{name}\" = '1' }}")).unwrap_err();
        assert!(
            said.contains("is not the name of a header"),
            "{name}: {said}"
        );
    }
    for method in ["", "post", "PO ST", "P0ST"] {
        let (said, _) = rule("", &format!("method = '{method}'")).unwrap_err();
        assert!(said.contains("is not a method"), "{method}: {said}");
    }
}

#[test]
fn a_value_of_a_header_is_a_text() {
    for value in ["1", "1.5", "true", "['a', 1]", "{ not = 1 }"] {
        let (said, _) = rule("", &format!("header = {{ a = {value} }}")).unwrap_err();
        assert!(
            said.contains("the value of a header is a text; put it in quotes"),
            "{said}"
        );
    }
    for value in ["'1'", "['a', 'b']", "{ not = '1' }", "{ gt = 1 }"] {
        assert!(
            rule("", &format!("header = {{ a = {value} }}")).is_ok(),
            "{value}"
        );
    }
    for (when, words) in [
        ("header = 1", "`header` is not a table"),
        ("json = 1", "`json` is not a table"),
        ("text = 1", "an expression is not a text"),
        (
            "json = { '/a' = { exists = 1 } }",
            "`exists` is neither true nor false",
        ),
        (
            "json = { '/a' = { not = {} } }",
            "asks nothing; the keys of a test are regex",
        ),
    ] {
        let (said, _) = rule("", when).unwrap_err();
        assert!(said.contains(words), "{when}: {said}");
    }
}

#[test]
fn places_in_an_answer() {
    for (more, words) in [
        ("raw = 7", "`raw` is not a table"),
        ("raw = {}", "name one place: `header`, `json` or `text`"),
        ("raw = { header = 'a', json = '/b' }", "name one place"),
        ("raw = { header = 'a b' }", "is not the name of a header"),
        (
            "raw = { json = 'b' }",
            "does not start with `/`; a path looks like `/error/code`",
        ),
        ("raw = { text = '(' }", "the expression is not valid"),
        (
            "raw = { header = 'a', as = 's' }",
            "`as` is not a key of `raw`",
        ),
        (
            "retry = { as = 's', text = 'a', header = 'b' }",
            "name one place",
        ),
        ("retry = { fixd = 1 }", "did you mean `fixed`?"),
        ("retry = 7", "an entry of `retry` is not a table"),
        ("retry = { fixed = 'a' }", "`fixed` is not a number"),
    ] {
        let (said, _) = rule(more, "").unwrap_err();
        assert!(said.contains(words), "{more}: {said}");
    }
    for more in [
        "raw = [{ header = 'a' }, { json = '/b' }, { text = 'c' }]",
        "raw = []",
        "retry = { fixed = 0 }",
        "retry = { text = '(\\d+)', as = 's' }",
        "retry_combine = 'first'",
        "certain = true",
    ] {
        assert!(rule(more, "").is_ok(), "{more}");
    }
}
