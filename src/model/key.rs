//! The key that every attempt of an item carries, in the receiver's spelling.

/// Where a destination's key goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The place in the request.
    pub place: KeyPlace,
    /// The receiver's spelling.
    pub format: KeyFormat,
}

/// The place of the key in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A header of this name.
    Header(String),
    /// A member of the JSON body, by JSON pointer.
    JsonBody(String),
    /// A field of the form body.
    FormBody(String),
    /// A query parameter.
    Query(String),
    /// The placeholder `{request_id}` in the path.
    UrlPath,
    /// The content names itself; nothing is put in.
    Natural,
    /// No key is sent.
    None,
}

/// The receiver's spelling of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// The request id as it is.
    Raw,
    /// A structured-field string: in double quotes (RFC 9651, 4.1.6).
    SfString,
    /// A UUID of version 4 made from the id's hash, where a receiver insists on that version.
    Uuid,
    /// The id's 128 bits in base64url: 22 characters.
    Short22,
    /// A timestamp identifier of AT Protocol: 13 characters from 63 bits of the id's hash.
    Tid,
}
