#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::super::event::EventKind;
use super::*;

const ALL: [About; 6] = [
    About::Held,
    About::Failed,
    About::Parked,
    About::Corrupt,
    About::Unconfigured,
    About::Suspended,
];

fn notice(about: About, reason: &str, n: u128) -> Notice {
    Notice {
        id: RequestId(Uuid::from_u128(n)),
        to: "ops".parse().unwrap(),
        about,
        reason: reason.to_owned(),
        subject: format!("subject-{n}"),
        destination: format!("d{n}"),
        requester: Requester::default(),
    }
}

#[test]
fn every_text_says_what_to_do_next_and_none_tells_to_repeat_what_may_have_been_done() {
    let reasons = Reason::ALL.iter().map(|(name, _)| *name);
    for reason in reasons.chain(["x_own", "the line is torn"]) {
        for about in ALL {
            for count in [1, 2, 300] {
                let mut merged = Merged::default();
                (0..count).for_each(|n| merged.add(&notice(about, reason, n)));
                let [group] = &merged.0[..] else {
                    panic!("one group");
                };
                let text = group.text();
                let what = format!("{about:?} {reason} {count}: {text}");
                assert!(
                    text.contains("tickpost ") || text.contains("Look "),
                    "{what}"
                );
                assert!(text.contains(reason), "{what}");
                assert!(text.contains("subject-0"), "{what}");
                assert!(text.len() < 1000, "{what}");
                let lower = text.to_lowercase();
                if about == About::Parked || about == About::Corrupt {
                    assert!(lower.contains("look before you repeat"), "{what}");
                    for word in ["retry", "try again", "send again", "repeat it"] {
                        assert!(!lower.contains(word), "{what}");
                    }
                }
                let number = count.to_string();
                let counted = about == About::Suspended || text.starts_with(&number);
                assert!(counted, "{what}");
            }
        }
    }
}

#[test]
fn where_there_is_no_reason_none_is_made_up() {
    let rows = [
        (
            About::Held,
            "held",
            "is held, and no reason was given. Nothing",
        ),
        (
            About::Held,
            "operator",
            "is held by a person (operator). Nothing",
        ),
        (
            About::Failed,
            "failed",
            "failed, and no reason was given. Nothing",
        ),
        (
            About::Corrupt,
            "corrupt",
            "was set aside as unreadable. Nothing",
        ),
        (About::Held, "rate_limited", "is held: rate_limited. "),
    ];
    for (about, reason, want) in rows {
        let mut merged = Merged::default();
        merged.add(&notice(about, reason, 1));
        let text = merged.0[0].text();
        assert!(text.contains(want), "{text}");
    }
}

#[test]
fn the_form_is_the_addresses_and_the_json_holds_the_text() {
    let mut merged = Merged::default();
    merged.add(&notice(About::Parked, "interrupted", 1));
    let mut other = notice(About::Parked, "interrupted", 2);
    other.to = "phone".parse().unwrap();
    merged.add(&other);
    let phone = [other.to];
    let sent = merged.envelopes(UnixMs(7), &phone);
    let body = |index: usize| sent[index].request.body_bytes().unwrap().unwrap();
    assert_eq!(
        sent[0].request.content_type.as_deref(),
        Some("application/json")
    );
    assert_eq!(
        sent[1].request.content_type.as_deref(),
        Some("text/plain; charset=utf-8")
    );
    let json: serde_json::Value = serde_json::from_slice(&body(0)).unwrap();
    let text = String::from_utf8(body(1)).unwrap();
    assert_eq!(json["text"], merged.0[0].text());
    assert_eq!(text, merged.0[1].text());
    assert_eq!(merged.envelopes(UnixMs(7), &phone), sent, "the same bytes");
    let names: Vec<String> = merged.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["ops", "phone"]);
}

fn names(list: &[&str]) -> Vec<DestName> {
    list.iter().map(|name| name.parse().unwrap()).collect()
}

/// An item that names `own` to be told.
fn item(own: &[&str]) -> Item {
    let envelope = Envelope {
        notify: names(own),
        requester: Requester {
            principal: Some("alice".to_owned()),
            thread: None,
        },
        ..Merged(vec![group(About::Held, 1)])
            .envelopes(UnixMs(7), &[])
            .remove(0)
    };
    let envelope = Envelope {
        notice: false,
        destination: "billing".parse().unwrap(),
        ..envelope
    };
    Item {
        envelope,
        events: Vec::new(),
    }
}

fn group(about: About, count: u128) -> Group {
    let mut merged = Merged::default();
    (0..count).for_each(|n| merged.add(&notice(about, "operator", n)));
    merged.0.remove(0)
}

#[test]
fn who_is_told_of_which_move() {
    let rows = [
        (State::Held, None, Some(About::Held)),
        (State::Held, Some(UnixMs(9)), Some(About::Held)),
        (State::Failed, None, Some(About::Failed)),
        (State::Unknown, None, Some(About::Parked)),
        (State::Unknown, Some(UnixMs(9)), None),
        (State::Pending, None, None),
        (State::Confirmed, None, None),
    ];
    for (state, due, about) in rows {
        let mut event = Event::new(EventKind::Attempt, UnixMs(8), state);
        event.due = due;
        let told = Notice::of(&item(&["ops"]), &event, 2, &[]);
        assert_eq!(
            told.first().map(|notice| notice.about),
            about,
            "{state} {due:?}"
        );
        for notice in told {
            assert_eq!(
                notice.reason,
                notice.about.word(),
                "there is no better word"
            );
        }
        event.reason = Some(Reason::STALE);
        for notice in Notice::of(&item(&["ops"]), &event, 2, &[]) {
            assert_eq!(notice.reason, "stale");
            assert_eq!(notice.subject, item(&[]).envelope.request_id.to_string());
            assert_eq!(notice.destination, "billing");
            assert_eq!(notice.requester.principal.as_deref(), Some("alice"));
        }
        let mut of_notice = item(&["ops"]);
        of_notice.envelope.notice = true;
        let told = Notice::of(&of_notice, &event, 2, &names(&["phone"]));
        assert_eq!(told, [], "a notice causes no notice");
    }
}

#[test]
fn each_address_is_told_once_and_each_telling_has_its_own_id() {
    let event = Event::new(EventKind::Held, UnixMs(8), State::Held);
    let item = item(&["ops", "phone"]);
    let told = Notice::of(&item, &event, 2, &names(&["phone", "mail", "mail"]));
    let to: Vec<&str> = told.iter().map(|notice| notice.to.as_str()).collect();
    assert_eq!(to, ["ops", "phone", "mail"], "the item's own first");
    assert_eq!(
        Notice::of(&item, &event, 2, &names(&["phone", "mail"])),
        told,
        "made again"
    );
    let mut ids: BTreeSet<RequestId> = told.iter().map(|notice| notice.id).collect();
    let next = Notice::of(&item, &event, 3, &names(&["phone", "mail"]));
    ids.extend(next.iter().map(|notice| notice.id));
    assert_eq!(ids.len(), 6, "another event is another telling");
    // Fixed for ever: made again after an update, it must be the same.
    let first = Uuid::new_v5(&item.envelope.request_id.0, b"2");
    let second = Uuid::new_v5(&item.envelope.request_id.0, b"2/phone");
    assert_eq!((told[0].id.0, told[1].id.0), (first, second));
}

#[test]
fn a_reason_is_explained_unless_a_person_is_it() {
    let text = |reason: &Reason| {
        let mut merged = Merged::default();
        merged.add(&notice(About::Held, reason.as_str(), 1));
        merged.0[0].text()
    };
    let (auth, operator) = (Reason::AUTH_INVALID, Reason::OPERATOR);
    assert!(text(&auth).contains(auth.explain()));
    assert!(!text(&operator).contains(operator.explain()));
}

#[test]
fn groups_are_taken_apart_and_joined_as_they_are() {
    let mut merged = Merged::default();
    for (about, n) in [(About::Held, 1), (About::Failed, 2), (About::Held, 3)] {
        merged.add(&notice(about, "why", n));
    }
    let singly = merged.clone().singly();
    assert_eq!(singly.len(), 2);
    assert!(singly.iter().all(|one| one.0.len() == 1));
    let mut joined = Merged::default();
    for one in singly {
        joined.join(one);
    }
    assert_eq!(joined, merged);
}

#[test]
fn who_asked_for_an_item_that_can_be_read_is_told_of_its_file() {
    let mut envelope = item(&["phone"]).envelope;
    let asked = Asked::of(&envelope);
    let told = Notice::of_file(About::Corrupt, "f", "1", "billing", "torn", &asked, &[]);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].requester, envelope.requester);
    envelope.notice = true;
    assert_eq!(Asked::of(&envelope), Asked::default());
}

#[test]
fn who_asked_for_a_damaged_item_is_told_as_far_as_its_first_line_can_be_read() {
    let told = |text: &str| {
        let asked = Asked::in_damaged(text.as_bytes());
        let ops = names(&["ops"]);
        Notice::of_file(About::Corrupt, "f", "1", "billing", "torn", &asked, &ops)
    };
    let line = r#"{"v":1,"notify":["phone","ops"],"requester":{"principal":"alice"},"more":[]"#;
    let notices = told(&format!("{line}}}\n{{torn"));
    let to: Vec<&str> = notices.iter().map(|notice| notice.to.as_str()).collect();
    assert_eq!(to, ["phone", "ops"], "each once");
    assert_eq!(notices[0].requester.principal.as_deref(), Some("alice"));
    for unread in ["", "\n", line, r#"{"notify":["no such NAME"]}"#] {
        assert_eq!(told(unread).len(), 1, "{unread}");
    }
    let many = r#""phone","no such NAME",7,"#.repeat(IDS_MAX);
    let notices = told(&format!(r#"{{"notify":[{many}"pager"]}}"#));
    let to: Vec<&str> = notices.iter().map(|notice| notice.to.as_str()).collect();
    assert_eq!(to, ["phone", "pager", "ops"], "those that can be read");
    // Damage may be of any size, and a notice carries what it says.
    let long = "x".repeat(16_384);
    let text = format!(r#"{{"notify":["phone"],"requester":{{"thread":"x{long}"}}}}"#);
    let notices = told(&text);
    assert_eq!(notices.len(), 2);
    assert_eq!(notices[0].requester, Requester::default());
    let text = format!(r#"{{"notify":["phone"],"requester":{{"thread":"{long}"}}}}"#);
    assert_eq!(told(&text)[0].requester.thread, Some(long));
    let padded = |bytes| format!(r#"{{"notify":["phone"],"x":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(told(&padded(600_000)).len(), 1);
    assert_eq!(told(&padded(500_000)).len(), 2);
    let notice = told(&format!("{line},\"notice\":true}}"));
    assert_eq!(
        notice.len(),
        1,
        "a notice never causes another for whom it was"
    );
    assert_eq!(notice[0].requester, Requester::default());
}

#[test]
fn by_its_id_an_item_may_be_a_notice_or_is_none() {
    let told = &Notice::of(
        &item(&["phone"]),
        &Event::new(EventKind::Cancelled, UnixMs(1), State::Failed),
        2,
        &[],
    )[0];
    assert!(may_be_notice(told.id));
    for other in [Uuid::now_v7(), Uuid::nil()] {
        assert!(!may_be_notice(RequestId(other)), "{other}");
    }
}

#[test]
fn a_file_is_told_of_by_its_name_and_occasion() {
    let to = names(&["ops", "phone"]);
    let told = |subject, once| {
        Notice::of_file(
            About::Corrupt,
            subject,
            once,
            "billing",
            "line 3 is damaged",
            &Asked::default(),
            &to,
        )
    };
    let notices = told("a.jsonl", "1");
    assert_eq!(notices.len(), 2);
    assert_eq!((&notices[0].to, &notices[1].to), (&to[0], &to[1]));
    assert_eq!(notices[0].subject, "a.jsonl");
    assert_eq!(notices[0].destination, "billing");
    assert_eq!(notices[0].reason, "line 3 is damaged");
    assert_eq!(told("a.jsonl", "1"), notices, "made again");
    let ids: BTreeSet<RequestId> = [told("a.jsonl", "2"), told("b.jsonl", "1"), notices]
        .iter()
        .flatten()
        .map(|notice| notice.id)
        .collect();
    assert_eq!(ids.len(), 6);
}

#[test]
fn notices_merge_only_where_address_kind_and_reason_are_the_same() {
    let mut merged = Merged::default();
    assert!(merged.is_empty());
    let base = notice(About::Held, "operator", 1);
    let mut elsewhere = base.clone();
    elsewhere.to = "phone".parse().unwrap();
    let others = [
        base.clone(),
        elsewhere,
        notice(About::Failed, "operator", 1),
        notice(About::Held, "stale", 1),
    ];
    for notice in &others {
        merged.add(notice);
        merged.add(notice);
    }
    assert!(!merged.is_empty());
    let counts: Vec<u64> = merged.0.iter().map(|group| group.count).collect();
    assert_eq!(counts, [2, 2, 2, 2]);
    let firsts: Vec<&Notice> = merged.0.iter().map(|group| &group.first).collect();
    assert_eq!(firsts, others.iter().collect::<Vec<_>>());
}

#[test]
fn a_merged_notice_counts_all_and_names_the_first_hundred() {
    let mut merged = Merged::default();
    for n in 0..150 {
        let mut one = notice(About::Failed, "operator", n);
        one.requester.principal = (n % 2 == 0).then(|| format!("p{n}"));
        one.requester.thread = (n % 3 == 0).then(|| format!("t{n}"));
        merged.add(&one);
    }
    let sent = merged.envelopes(UnixMs(9), &[]).remove(0);
    assert_eq!(
        sent.request_id,
        RequestId(Uuid::from_u128(0)),
        "the first one's"
    );
    assert_eq!(
        (sent.destination.as_str(), sent.enqueued_at),
        ("ops", UnixMs(9))
    );
    assert_eq!(
        (sent.request.method.as_str(), sent.request.path.as_str()),
        ("POST", "")
    );
    assert_eq!(sent.requester.principal.as_deref(), Some("tickpost"));
    assert!(sent.notice && sent.notify.is_empty());
    assert_eq!(sent.request.check(), Ok(()));
    let body = sent.request.body_bytes().unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let ids: Vec<&str> = json["request_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    let want: Vec<String> = (0..100).map(|n| format!("subject-{n}")).collect();
    assert_eq!(ids, want);
    assert_eq!(
        (&json["notice"], &json["reason"]),
        (&"failed".into(), &"operator".into())
    );
    assert_eq!(json["count"], 150);
    assert_eq!(json["destinations"].as_array().unwrap().len(), 100);
    let requesters = json["requesters"].as_array().unwrap();
    assert!(
        requesters
            .iter()
            .all(|one| !one.as_object().unwrap().is_empty())
    );
    let bounded = &merged.0[0].requesters;
    assert_eq!(bounded.len(), IDS_MAX);
    // Of those the one of neither name is not told.
    assert_eq!(requesters.len(), IDS_MAX - 1);
    assert_eq!(requesters[0], serde_json::json!({"thread": "t105"}));
}

#[test]
fn the_text_names_a_few_destinations() {
    let to = |count: u128| {
        let text = group(About::Held, count).text();
        let (head, _) = text.split_once(" by a person").unwrap();
        head.to_owned()
    };
    assert_eq!(to(1), "1 item to d0 is held");
    assert_eq!(to(5), "5 items to d0, d1, d2, d3, d4 are held");
    assert_eq!(to(6), "6 items to d0, d1, d2, d3, d4, and others are held");
    let words: Vec<&str> = ALL.iter().map(|about| about.word()).collect();
    let want = [
        "held",
        "failed",
        "parked",
        "corrupt",
        "unconfigured",
        "suspended",
    ];
    assert_eq!(words, want);
    let advice: BTreeSet<&str> = ALL.iter().map(|about| about.advice()).collect();
    assert_eq!(advice.len(), ALL.len(), "each has its own");
}
