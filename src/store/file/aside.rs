//! What is known of items whose files were set aside in `corrupt/`: by the reasons beside them, which
//! stay when a person has removed the files.

use serde::Deserialize;

use super::super::StoreError;
use super::FileStore;
use super::audit::set_aside_id;
use crate::model::ids::RequestId;
use crate::model::time::UnixMs;

/// What a name of a reason ends with.
const WHY: &str = ".why.json";

/// The longest reason that is read, in bytes.
const WHY_BYTES_MAX: u64 = 64 * 1024;

/// An item's file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The item.
    pub id: RequestId,
    /// The file's name in `corrupt/`.
    pub name: String,
    /// It is still there: nobody has removed it.
    pub is_there: bool,
    /// Where it was, relative to the spool. `None` if its reason cannot be read.
    pub from: Option<String>,
    /// What was wrong with it.
    pub why: Option<String>,
    /// When it was set aside.
    pub at: Option<UnixMs>,
}

#[derive(Deserialize)]
struct Why {
    from: String,
    reason: String,
}

impl FileStore {
    /// The files of items, whose ids begin so, that were set aside: one an id, at most `most`, one
    /// that is still there before one that is not.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if `corrupt/` cannot be listed.
    pub fn set_aside(&self, beginning: &str, most: usize) -> Result<Vec<Aside>, StoreError> {
        let mut all: std::collections::BTreeMap<RequestId, (String, bool)> = [].into();
        self.list("corrupt", &mut |name, _| {
            let Some(name) = name.to_str().filter(|name| name.starts_with(beginning)) else {
                return;
            };
            let (file, is_there) = match name.strip_suffix(WHY) {
                Some(file) => (file, false),
                None => (name, true),
            };
            let Some(id) = set_aside_id(file) else {
                return;
            };
            let known = all.get(&id).is_some_and(|(_, known)| *known);
            if !known && (is_there || all.len() < most || all.contains_key(&id)) {
                all.insert(id, (file.to_owned(), is_there));
            }
        })?;
        let told = all.into_iter().take(most);
        Ok(told
            .map(|(id, (name, is_there))| self.aside(id, name, is_there))
            .collect())
    }

    fn aside(&self, id: RequestId, name: String, is_there: bool) -> Aside {
        let path = self.path(&format!("corrupt/{name}{WHY}"));
        let read = self.disk.read(&path, WHY_BYTES_MAX);
        let why: Option<Why> = read
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let (from, why) = why.map(|why| (why.from, why.reason)).unzip();
        let at = self.disk.stat(&path).map(|meta| meta.mtime).ok();
        Aside {
            id,
            name,
            is_there,
            from,
            why,
            at,
        }
    }
}
