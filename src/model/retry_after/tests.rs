use super::*;

/// 2026-01-01T00:00:00Z.
const NOW: UnixMs = UnixMs(1_767_225_600_000);

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_form() {
    use WaitForm as F;
    let rows: &[(F, &str, Option<u64>, &str)] = &[
        (F::Http, "120", Some(120), "delay-seconds"),
        (F::Http, " 2.0 ", Some(2), "decimals"),
        (F::Http, "120.1", Some(121), "up, never down"),
        (F::Http, "0", Some(0), "zero is a wish too"),
        (F::Http, "soon", None, "unparseable"),
        (F::Http, "", None, "empty"),
        (F::Http, "-5", None, "not in the grammar"),
        (F::Http, "1e3", None, "not in the grammar"),
        (
            F::Http,
            "99999999999999999999",
            Some(253_402_300_799),
            "saturates",
        ),
        (
            F::Http,
            "Thu, 01 Jan 2026 00:02:00 GMT",
            Some(120),
            "IMF-fixdate",
        ),
        (
            F::Http,
            "Thu, 01 Jan 2026 00:02:00 UTC",
            Some(120),
            "UTC for GMT",
        ),
        (
            F::Http,
            "Mon, 01 Jan 2026 00:02:00 GMT",
            Some(120),
            "a wrong day name",
        ),
        (
            F::Http,
            "Thursday, 01-Jan-26 00:02:00 GMT",
            Some(120),
            "RFC 850",
        ),
        (F::Http, "Thu Jan  1 00:02:00 2026", Some(120), "asctime"),
        (
            F::Http,
            "Wed, 31 Dec 2025 23:59:00 GMT",
            Some(0),
            "the past is zero",
        ),
        (
            F::Http,
            "Thu, 01 Jan 2026 00:02:00 PST",
            None,
            "another zone",
        ),
        (F::Http, "2026-01-01T00:02:00Z", None, "ISO is not HTTP"),
        (F::Seconds, "7.2", Some(8), ""),
        (F::Seconds, "-1", Some(0), "clamped"),
        (F::Seconds, "inf", None, "a word"),
        (F::Millis, "1500", Some(2), ""),
        (F::Millis, "1", Some(1), "rounded up"),
        (F::EpochSeconds, "1767225630", Some(30), ""),
        (F::EpochSeconds, "1767225630.5", Some(31), ""),
        (F::EpochSeconds, "1767225599", Some(0), "the past"),
        (F::EpochMillis, "1767225600001", Some(1), ""),
        (F::EpochMillis, "1767225605000", Some(5), ""),
        (F::Date, "2026-01-01T00:01:00.000Z", Some(60), ""),
        (F::Date, "2026-01-01T01:01:00+01:00", Some(60), "an offset"),
        (F::Date, "2026-01-01 00:01:00", Some(60), "no offset is UTC"),
        (F::Date, "2026-01-01 00:01:00 UTC", Some(60), ""),
        (F::Date, "2026-01-02", Some(86_400), "a day"),
        (
            F::Date,
            "Thu, 01 Jan 2026 00:01:00 UTC",
            Some(60),
            "HTTP date",
        ),
        (F::Date, "tomorrow", None, ""),
        (F::Duration, "34.2s", Some(35), "protobuf"),
        (F::Duration, "50ms", Some(1), ""),
        (F::Duration, "6m0s", Some(360), "Go"),
        (F::Duration, "1h", Some(3_600), ""),
        (F::Duration, "30", None, "no unit"),
        (F::Duration, "", None, ""),
        (F::Duration, "5 parsecs", None, ""),
        (F::Unit, "6 minutes", Some(360), ""),
        (
            F::Unit,
            "error 14: try again in 2 hours.",
            Some(7_200),
            "skips other numbers",
        ),
        (F::Unit, "1.5 seconds", Some(2), ""),
        (F::Unit, "24-hour", Some(86_400), ""),
        (
            F::Unit,
            "v1.2.3: in 5 minutes",
            Some(300),
            "a version is no number",
        ),
        (F::Unit, "later", None, ""),
        (F::Unit, "in 5 ", None, ""),
        (F::RateLimitT, "\"d\";r=0;t=30", Some(30), ""),
        (
            F::RateLimitT,
            "\"b\";r=12;t=30,\"d\";r=0;t=600",
            Some(600),
            "only r=0 counts",
        ),
        (
            F::RateLimitT,
            "\"b\";r=0;t=30, \"d\";r=0;t=600",
            Some(600),
            "all must be over",
        ),
        (
            F::RateLimitT,
            "\"a,b;r=9\";r=0;t=3",
            Some(3),
            "separators in quotes",
        ),
        (F::RateLimitT, "\"d\";r=5;t=30", None, "some remain"),
        (F::RateLimitT, "\"d\";r=0;t=x", None, "malformed"),
        (F::RateLimitT, "\"d;r=0;t=30", None, "an open quote"),
        (F::RateLimitT, "100, 100;w=60", None, "an older form"),
        (F::Auto, "1767225630000", Some(30), "milliseconds"),
        (F::Auto, "1767225630", Some(30), "seconds"),
        (F::Auto, "30", Some(30), "a span"),
        (F::Auto, "soon", None, ""),
    ];
    for (form, text, want, why) in rows {
        let got = form.read(text, NOW).map(|ms| ms / 1_000);
        assert_eq!(got, *want, "{} `{text}` {why}", form.as_str());
    }
}

#[test]
fn names_come_back() {
    for form in WaitForm::ALL {
        assert_eq!(WaitForm::parse(form.as_str()), Some(*form));
    }
    assert_eq!(WaitForm::parse("minutes"), None);
}

#[test]
fn every_word_for_a_unit() {
    let rows: [(u64, &str); 6] = [
        (1, "s sec secs second seconds Seconds"),
        (60, "m min mins minute minutes"),
        (3_600, "h hr hrs hour hours HOURS"),
        (86_400, "d day days"),
        (604_800, "week weeks"),
        (0, "year fortnight"),
    ];
    for (seconds, words) in rows {
        for word in words.split(' ') {
            for text in [
                format!("in 3 {word}."),
                format!("3{word}"),
                format!("3 -\t{word}, or so"),
            ] {
                let want = (seconds > 0).then_some(3 * seconds * 1_000);
                assert_eq!(WaitForm::Unit.read(&text, NOW), want, "{text}");
            }
        }
    }
    for word in ["ms", "msec", "millisecond", "milliseconds"] {
        let got = WaitForm::Unit.read(&format!("2500 {word}"), NOW);
        assert_eq!(got, Some(3_000), "{word}");
    }
    let first = WaitForm::Unit.read("2 minutes or 3 hours", NOW);
    assert_eq!(first, Some(120_000), "the first");
}

#[test]
fn every_short_unit() {
    let rows = [
        ("3000000000ns", 3),
        ("3000000us", 3),
        ("3000000µs", 3),
        ("3000ms", 3),
        ("3s", 3),
        ("3m", 180),
        ("3h", 10_800),
        ("3d", 259_200),
        ("1d2h3m4s5ms", 93_785),
        (" 1.5m ", 90),
    ];
    for (text, seconds) in rows {
        let got = WaitForm::Duration.read(text, NOW);
        assert_eq!(got, Some(seconds * 1_000), "{text}");
    }
    for text in ["3", "s", "3x", "3s4", "-3s", "3 s", "..s"] {
        assert_eq!(WaitForm::Duration.read(text, NOW), None, "{text}");
    }
}

#[test]
fn a_list_of_limits_is_read_whole_or_not_at_all() {
    let rows = [
        ("default;r=0;t=3", Some(3), "a token"),
        ("*;r=0;t=3", Some(3), "a token that begins with a star"),
        (" \"d\" ; r=0 ; t=3 ", Some(3), "blanks"),
        ("\"d\";r=0;t=3;w=60;pk=:cHsd:", Some(3), "other parameters"),
        ("\"d\";r=0;t=3;x", Some(3), "a parameter without a value"),
        ("\"a\\\"b,c\";r=0;t=3", Some(3), "an escaped quote"),
        ("\"a\\\\\";r=0;t=3", Some(3), "an escaped backslash"),
        ("\"a\";r=0;t=600,\"b\";r=0;t=30", Some(600), "the longest"),
        ("\"a\";r=0", None, "no time"),
        ("\"a\";t=3", None, "nothing of what remains"),
        ("12;r=0;t=3", None, "a number is no name"),
        ("a b;r=0;t=3", None, "nor are two words"),
        ("a\"b\";r=0;t=3", None, "nor is half a text"),
        ("a=b;r=0;t=3", None, "nor is a pair"),
        ("\"a\";r=0;t=3,", None, "an empty member"),
        ("\"a\";r=0;t=3,\"b\";r=x;t=1", None, "one that is malformed"),
        ("\"a\";r=0;t=-3", None, "a sign"),
        ("\"a\\\";r=0;t=3", None, "an escape that opens"),
        ("", None, "nothing"),
    ];
    for (text, want, why) in rows {
        let got = WaitForm::RateLimitT.read(text, NOW);
        assert_eq!(got, want.map(|s: u64| s * 1_000), "{text}: {why}");
    }
}

#[test]
fn a_bare_number_is_taken_by_its_size() {
    let at = UnixMs(999_999_990_000);
    let rows = [
        ("999999999", 999_999_999, "the longest span"),
        ("1000000000", 10, "the first instant in seconds"),
        (
            "999999999990",
            253_402_300_799,
            "an instant in seconds far ahead",
        ),
        ("1000000000000", 10, "the first instant in milliseconds"),
        ("1", 1, "a second"),
        ("-5", 0, "the past"),
    ];
    for (text, seconds, why) in rows {
        let got = WaitForm::Auto.read(text, at);
        assert_eq!(
            got,
            Some(u64::min(seconds, 253_402_300_799) * 1_000),
            "{why}"
        );
    }
}

#[test]
fn instants_before_the_epoch_and_other_zones_are_none() {
    let rows = [
        ("1969-12-31T23:59:59Z", None),
        ("1969-12-31", None),
        ("2026-01-01T00:00:01.5", Some(1_767_225_601_500)),
        ("2026-01-01 00:00:01.5 GMT", Some(1_767_225_601_500)),
        ("2026-01-01 00:00:01 Z", Some(1_767_225_601_000)),
        ("Thu, 01 Jan 2026 00:00:01 +0000", Some(1_767_225_601_000)),
        ("Thu, 01 Jan 2026 00:00:01 +0100", None),
        ("Wed Dec 31 23:59:59 1969", None),
    ];
    for (text, want) in rows {
        assert_eq!(date(text), want.map(UnixMs), "{text}");
    }
}
