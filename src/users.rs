//! Names of users, by the system's list.

/// The name of a user id; `None` if the list has none.
#[must_use]
pub fn name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// A user as events store it: `alice(1000)`, or `(1000)` without a name.
#[must_use]
pub fn with_uid(uid: u32) -> String {
    format!("{}({uid})", name(uid).unwrap_or_default())
}
