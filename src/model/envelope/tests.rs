use super::*;

fn request(path: &str) -> Request {
    Request {
        method: "POST".into(),
        path: path.into(),
        query: vec![],
        headers: vec![],
        content_type: None,
        body: None,
        body_sha256: sha256_hex(b""),
    }
}

#[test]
fn paths_that_would_leave_the_origin_are_refused() {
    for path in [
        "",
        "/",
        "/v1/charges",
        "/a..b/c",
        "/a%2Fb",
        "/a;b=1/c",
        "/100%25",
        "/{request_id}",
    ] {
        assert_eq!(request(path).check(), Ok(()), "{path}");
    }
    for path in [
        "v1",
        "//evil.example",
        "/../x",
        "/a/..",
        "/%2e%2E/x",
        "/..%2fadmin",
        "/%2e%2e%2Fadmin",
        "/a%2f..%2f..%2fb",
        "/..%5cadmin",
        "/..;x/a",
        "/%2e%2e;/a",
        "/..%3b/a",
        "/%252e%252e/x",
        "/..%00/a",
        "/%25%32%65%25%32%65/x",
        "/..%23/x",
        "/..%3fx",
        "/..%20/x",
        "/.",
        "/a?b",
        "/a#b",
        "/a\\b",
        "/a b",
        "/a\r\nX: y",
        "/ü",
        "@evil",
        "http://evil.example/",
    ] {
        assert!(request(path).check().is_err(), "{path:?}");
    }
}

#[test]
fn headers_that_would_break_the_request_are_refused() {
    for (name, value) in [("X-A", "1"), ("x", "tab\tis fine"), ("X-Ü", "")] {
        let mut request = request("/");
        request.headers = vec![(name.into(), value.into())];
        assert_eq!(request.check().is_ok(), name.is_ascii(), "{name}");
    }
    for (name, value) in [
        ("X-A", "1\r\nX-B: 2"),
        ("X-A", "\0"),
        ("", "x"),
        ("a b", "x"),
        ("Host", "evil"),
        ("content-LENGTH", "0"),
        ("Transfer-Encoding", "chunked"),
    ] {
        let mut request = request("/");
        request.headers = vec![(name.into(), value.into())];
        assert!(request.check().is_err(), "{name}: {value:?}");
    }
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    // The method and the path are counted as they are, a header with what stands around it,
    // a query as long as encoding can make it.
    let most = |change: &dyn Fn(&mut Request, usize)| -> usize {
        let fits = |bytes: usize| {
            let mut request = request("/12345678");
            change(&mut request, bytes);
            request.check() == Ok(())
        };
        let (mut fits_still, mut too_long) = (0, HEAD_BYTES_MAX + 1);
        while too_long - fits_still > 1 {
            let half = fits_still.midpoint(too_long);
            if fits(half) {
                fits_still = half;
            } else {
                too_long = half;
            }
        }
        fits_still
    };
    let left = HEAD_BYTES_MAX - "POST/12345678".len();
    let header = most(&|request, bytes| {
        request.headers = vec![("x-a".into(), "y".repeat(bytes))];
    });
    assert_eq!(header, left - 7);
    let content_type = most(&|request, bytes| request.content_type = Some("y".repeat(bytes)));
    assert_eq!(content_type, left - 16);
    let path = most(&|request, bytes| request.path = format!("/12345678{}", "y".repeat(bytes)));
    assert_eq!(path, left);
    let name = most(&|request, bytes| request.query = vec![("y".repeat(bytes), String::new())]);
    assert_eq!(name, (left - 2) / 3);
    let two = most(&|request, bytes| {
        request.query = vec![("ab".into(), "y".repeat(bytes)), ("c".into(), "d".into())];
    });
    assert_eq!(two, (left - 2 * 2 - 3 * 4) / 3);
    let mut request = request("/");
    request.headers = vec![("x".into(), "y".repeat(HEAD_BYTES_MAX))];
    let bytes = 5 + 5 + HEAD_BYTES_MAX;
    assert_eq!(request.check(), Err(RequestError::HeadTooLong(bytes)));
    assert_eq!(HEAD_BYTES_MAX, 65_536);
}

#[test]
fn methods_are_tokens() {
    for (method, want) in [("GET", true), ("X-1", true), ("", false), ("A B", false)] {
        let mut request = request("/");
        request.method = method.into();
        assert_eq!(request.check().is_ok(), want, "{method:?}");
    }
}

#[test]
fn sums_are_of_the_bytes_and_of_what_makes_the_request() {
    assert_eq!(hex(&[0x00, 0x1f, 0xa0, 0xff]), "001fa0ff");
    assert_eq!(
        sha256_hex(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    let one = request("/a");
    assert_eq!(
        one.sha256(),
        sha256_hex(format!(r#"["POST","/a",[],"{}"]"#, one.body_sha256).as_bytes())
    );
    let mut traced = one.clone();
    traced.headers = vec![("X-Trace".into(), "7".into())];
    assert_eq!(traced.sha256(), one.sha256(), "headers trace who asked");
    let mut others = vec![request("/b"), one.clone(), one.clone(), one.clone()];
    others[1].method = "PUT".into();
    others[2].query = vec![("a".into(), "b".into())];
    others[3].body_sha256 = sha256_hex(b"x");
    for other in others {
        assert_ne!(other.sha256(), one.sha256(), "{other:?}");
    }
}

#[test]
fn a_body_is_checked_against_its_sum() {
    let mut with = request("/");
    assert_eq!(with.body_bytes(), Ok(Some(vec![])), "none is empty");
    assert_eq!(with.file_bytes(), None);
    with.body = Some(Body::Text("a".into()));
    assert_eq!(with.body_bytes(), Err(RequestError::BodyHash));
    with.body_sha256 = sha256_hex(b"a");
    assert_eq!(with.body_bytes(), Ok(Some(b"a".to_vec())));
    assert_eq!(with.file_bytes(), None);
    with.body = Some(Body::Base64("?".into()));
    assert_eq!(with.body_bytes(), Err(RequestError::Base64));
    let id = RequestId(uuid::Uuid::from_u128(7));
    with.body = Some(Body::File { id, bytes: 70_000 });
    assert_eq!(
        (with.body_bytes(), with.file_bytes()),
        (Ok(None), Some(70_000))
    );
}

#[test]
fn whoever_is_not_known_is_not_written() {
    let some = || Some("a".to_owned());
    for (principal, thread) in [
        (None, None),
        (some(), None),
        (None, some()),
        (some(), some()),
    ] {
        let nobody = principal.is_none() && thread.is_none();
        let requester = Requester { principal, thread };
        assert_eq!(requester.is_empty(), nobody, "{requester:?}");
    }
}
