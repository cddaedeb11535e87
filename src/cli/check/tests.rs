use super::*;

/// A spool in which all is well.
fn well() -> Values {
    Values {
        has_ticked: true,
        ..Values::default()
    }
}

fn usual() -> Limits {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        check: CheckArgs,
    }
    let Ok(usual) = limits(&Line::parse_from(["test", "--check"]).check) else {
        return Limits {
            tick_age: OFF,
            pending_age: OFF,
            parked: OFF,
            held: OFF,
            corrupt: OFF,
            suspended: OFF,
            unconfigured: OFF,
            incoming_age: OFF,
            untold: OFF,
            failed: OFF,
        };
    };
    usual
}

const OFF: Limit = Limit {
    warn: None,
    crit: None,
};

const MIN: u64 = MINUTE_MS;

#[test]
fn every_value_is_judged_by_its_own_limit() {
    type Change = fn(&mut Values);
    let rows: &[(&str, Change, Level)] = &[
        ("tick_age", |v| v.tick_age = 15 * MIN, Level::Ok),
        ("tick_age", |v| v.tick_age = 15 * MIN + 1, Level::Warning),
        ("tick_age", |v| v.tick_age = 60 * MIN, Level::Warning),
        ("tick_age", |v| v.tick_age = 60 * MIN + 1, Level::Critical),
        ("clock", |v| v.tick_ahead = MIN, Level::Ok),
        ("clock", |v| v.tick_ahead = MIN + 1, Level::Warning),
        ("pending_age", |v| v.pending_age = 60 * MIN, Level::Ok),
        ("pending_age", |v| v.pending_age = 61 * MIN, Level::Warning),
        ("pending_age", |v| v.pending_age = DAY_MS, Level::Warning),
        (
            "pending_age",
            |v| v.pending_age = DAY_MS + 1,
            Level::Critical,
        ),
        ("parked", |v| v.parked = 1, Level::Warning),
        ("held", |v| v.held = 1, Level::Warning),
        ("corrupt", |v| v.corrupt = 1, Level::Warning),
        (
            "suspended",
            |v| v.suspended = vec!["a (down)".to_owned()],
            Level::Warning,
        ),
        (
            "unconfigured",
            |v| v.unconfigured = vec![("a".to_owned(), 1)],
            Level::Warning,
        ),
        (
            "configuration",
            |v| v.no_tick = Some("line 2".to_owned()),
            Level::Critical,
        ),
        (
            "access",
            |v| v.barred = vec!["keys".to_owned()],
            Level::Critical,
        ),
        ("incoming_age", |v| v.incoming_age = 15 * MIN, Level::Ok),
        (
            "incoming_age",
            |v| v.incoming_age = 16 * MIN,
            Level::Warning,
        ),
        (
            "incoming_age",
            |v| v.incoming_age = DAY_MS + 1,
            Level::Critical,
        ),
        (
            "untold",
            |v| v.untold = vec![("ops".to_owned(), 1)],
            Level::Warning,
        ),
        (
            "unreadable",
            |v| v.unreadable = vec!["incoming/a".to_owned()],
            Level::Warning,
        ),
        (
            "room",
            |v| v.full = Some("no room".to_owned()),
            Level::Critical,
        ),
        ("pending", |v| v.pending = 1_000_000, Level::Ok),
        ("failed", |v| v.failed = 1_000_000, Level::Ok),
    ];
    for (what, change, level) in rows {
        let mut values = well();
        change(&mut values);
        let problems = judge(&values, &usual());
        let got: Vec<_> = problems.iter().map(|p| (p.what, p.level)).collect();
        let wanted: &[_] = match level {
            Level::Ok => &[],
            Level::Warning | Level::Critical | Level::Unknown => &[(*what, *level)],
        };
        assert_eq!(got, wanted, "{values:?}");
    }
}

#[test]
fn a_second_value_is_the_limit_of_critical_for_counts_too() {
    let mut own = usual();
    own.held = Limit {
        warn: Some(1),
        crit: Some(3),
    };
    for (held, level) in [
        (1, None),
        (2, Some(Level::Warning)),
        (3, Some(Level::Warning)),
        (4, Some(Level::Critical)),
    ] {
        let values = Values { held, ..well() };
        let got = judge(&values, &own).first().map(|problem| problem.level);
        assert_eq!(got, level, "{held}");
    }
    own.held = OFF;
    let values = Values {
        held: u64::MAX,
        ..well()
    };
    assert_eq!(judge(&values, &own), []);
}

#[test]
fn the_worst_stands_first() {
    let values = Values {
        held: 1,
        tick_age: DAY_MS,
        parked: 1,
        ..well()
    };
    let words: Vec<&str> = judge(&values, &usual()).iter().map(|p| p.what).collect();
    assert_eq!(words, ["tick_age", "parked", "held"]);
}

#[test]
fn limits_are_read_as_they_are_documented() {
    let limit = |warn, crit| Ok(Limit { warn, crit });
    let count = |text: &str| Limit::parse("held", text, whole);
    assert_eq!(count("0"), limit(Some(0), None));
    assert_eq!(count("1,20"), limit(Some(1), Some(20)));
    assert_eq!(count("1, 1"), limit(Some(1), Some(1)));
    assert_eq!(count("off"), limit(None, None));
    let age = |text: &str| Limit::parse("tick-age", text, times::span_ms);
    assert_eq!(age("90s,1h"), limit(Some(90_000), Some(3_600_000)));
    for text in ["", "x", "1,", ",1", "1,2,3", "2,1", "-1", "1.5", "off,1"] {
        assert!(count(text).is_err(), "{text}");
    }
    for text in ["", "5", "1h,15m", "1h,off"] {
        assert!(age(text).is_err(), "{text}");
    }
}

#[test]
fn a_place_tells_when_an_item_is_due_at_the_latest() {
    let at = |text: &str| UnixMs::parse(text).ok();
    let rows = [
        (
            "pending/shop/20261129T1540Z/x.jsonl",
            at("2026-11-29T15:41:00Z"),
        ),
        ("pending/shop/20261203/x.jsonl", at("2026-12-04T00:00:00Z")),
        ("pending/shop/x.jsonl", None),
        ("unknown/shop/x.1.jsonl", None),
    ];
    for (place, due) in rows {
        assert_eq!(due_by_place(place), due, "{place}");
    }
}

#[test]
fn the_bar_ends_the_line_once_only() {
    assert_eq!(one_line("a|b\n  c\u{1b}"), "a/b c\u{fffd}");
}
