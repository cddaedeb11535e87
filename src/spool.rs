//! Enqueueing from a Rust program, without a process for each item.
//!
//! ```
//! use std::io::Read as _;
//!
//! use tickpost::{Draft, Spool};
//! # let dir = tempfile::tempdir()?;
//! # let root = dir.path().join("spool");
//! # tickpost::store::file::FileStore::init(&root, "[destination.billing]\nbase_url = \"http://127.0.0.1:9\"\n", uuid::Uuid::max(), tickpost::model::time::UnixMs(0))?;
//!
//! let spool = Spool::open(&root)?;
//! let draft = Draft::to("billing")?
//!     .path("/v1/charges")
//!     .json(&serde_json::json!({"amount": 5}))?
//!     .key("invoice-17");
//! let id = spool.enqueue(draft.clone())?;
//!
//! // Offered again under its key it is the same item.
//! assert_eq!(spool.enqueue(draft)?, id);
//! assert!(spool.item(id)?.is_some());
//!
//! // A body of any length goes through in pieces.
//! let draft = Draft::to("billing")?.path("/v1/files");
//! let id = spool.enqueue_from(draft, &mut std::io::repeat(b'x').take(100_000))?;
//! assert_eq!(spool.item(id)?.unwrap().envelope.request.file_bytes(), Some(100_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is accepted is sent by `tickpost tick`, run by a timer: see the README. The program runs
//! as the spool's owner; another user's program uses the drop box.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, ConfigError};
use crate::intake::{self, By, Full, Refused};
use crate::model::draft::Draft;
use crate::model::ids::RequestId;
use crate::model::item::{Damage, Item};
use crate::store::file::FileStore;
use crate::store::{Answer, BodyError, NewBody, Store as _, StoreError};
use crate::users;

/// A spool, for programs that hand items in. Cheap, and may be shared between threads.
#[derive(Clone, Debug)]
pub struct Spool {
    root: PathBuf,
    config: Config,
}

/// Why an item was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The draft cannot become an item. The text says what is wrong with it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A limit of the configuration is reached.
    #[error(transparent)]
    Full(#[from] Full),
    /// Another process has been accepting an item under the same key or id for half a minute.
    #[error("another process accepts an item under the same key; offer it again")]
    Busy,
    /// The body cannot be read where it comes from.
    #[error("cannot read the body")]
    Body(#[source] std::io::Error),
    /// The store cannot do it. After [`StoreError::Io`] the item is perhaps accepted: offer it
    /// again under the same key or id, and it is accepted once.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The item's file is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
}

impl Spool {
    /// Opens a spool with the `tickpost.toml` in it.
    ///
    /// # Errors
    ///
    /// [`SpoolError::Config`] or [`SpoolError::Store`].
    pub fn open(root: impl AsRef<Path>) -> Result<Self, SpoolError> {
        let root = root.as_ref();
        crate::store::file::look(root)?;
        Self::open_with(root, &root.join("tickpost.toml"))
    }

    /// Opens a spool with another configuration.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_with(root: impl AsRef<Path>, config: &Path) -> Result<Self, SpoolError> {
        let spool = Self {
            root: root.as_ref().to_owned(),
            config: Config::load(config)?,
        };
        let store = spool.store()?;
        store.check_owner()?;
        store.check_original()?;
        Ok(spool)
    }

    /// Accepts an item. When this returns, it is durable. A repeat gets the id of the first, also
    /// when that has ended, or its file was damaged and set aside: then [`Self::item`] gives `None`,
    /// and sending it again takes a new key.
    ///
    /// # Errors
    ///
    /// [`SpoolError`]; nothing is accepted unless it is [`StoreError::Io`].
    pub fn enqueue(&self, draft: Draft) -> Result<RequestId, SpoolError> {
        self.accept(draft, None)
    }

    /// Accepts an item whose body is read piece by piece, and never as a whole in memory.
    ///
    /// # Errors
    ///
    /// As [`Self::enqueue`].
    pub fn enqueue_from(
        &self,
        mut draft: Draft,
        body: &mut dyn Read,
    ) -> Result<RequestId, SpoolError> {
        let store = self.store()?;
        match intake::take_body(&self.config, &store, body) {
            Ok((bytes, body)) => {
                draft.body = bytes;
                self.accept(draft, body)
            }
            Err(BodyError::Input(source)) => Err(SpoolError::Body(source)),
            Err(BodyError::TooLarge) => Err(Refused::new(intake::too_large(&self.config)).into()),
            Err(BodyError::Store(error)) => Err(self.not_accepted(&store, error)),
        }
    }

    /// Accepts many items with few syncs. Each gets its answer, in order; those that are refused
    /// keep back none of the others.
    ///
    /// # Errors
    ///
    /// [`SpoolError::Store`], after which any number is perhaps accepted.
    pub fn enqueue_all(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Result<RequestId, SpoolError>>, SpoolError> {
        let store = self.store()?;
        let by = by();
        let mut told = Vec::with_capacity(drafts.len());
        let mut offers = Vec::with_capacity(drafts.len());
        let mut places = Vec::with_capacity(drafts.len());
        for draft in drafts {
            match intake::offer(&self.config, draft, None, &store, &by) {
                Ok(offer) => {
                    places.push(told.len());
                    told.push(Ok(offer.envelope.request_id));
                    offers.push(offer);
                }
                Err((refused, _)) => told.push(Err(refused.into())),
            }
        }
        let mut answers = Vec::new();
        store.accept_all(offers, &intake::limits(&self.config), &mut answers)?;
        for (place, answer) in places.into_iter().zip(answers) {
            told[place] = self.of(answer);
        }
        Ok(told)
    }

    /// Reads an item: its envelope, its events, and by [`Item::standing`] its state. `None` if
    /// no such id is there.
    ///
    /// # Errors
    ///
    /// [`SpoolError::Store`] or [`SpoolError::Damage`].
    pub fn item(&self, id: RequestId) -> Result<Option<Item>, SpoolError> {
        let store = self.store()?;
        // One that moves between being found and being read is looked for again.
        while let Some(found) = store.find(id)? {
            if let Some(read) = store.read(&found)? {
                return Ok(Some(read?));
            }
        }
        Ok(None)
    }

    fn store(&self) -> Result<FileStore, StoreError> {
        FileStore::open(&self.root, self.config.store.allow_network_filesystem)
    }

    fn accept(&self, draft: Draft, body: Option<NewBody>) -> Result<RequestId, SpoolError> {
        let store = self.store()?;
        match intake::offer(&self.config, draft, body, &store, &by()) {
            Ok(offer) => {
                let mut answers = Vec::new();
                store
                    .accept_all(vec![offer], &intake::limits(&self.config), &mut answers)
                    .map_err(|error| self.not_accepted(&store, error))?;
                self.of(answers.pop().unwrap_or(Answer::Open))
            }
            Err((refused, body)) => {
                if let Some(body) = body {
                    store.discard_body(body);
                }
                Err(refused.into())
            }
        }
    }

    fn not_accepted(&self, store: &FileStore, error: StoreError) -> SpoolError {
        match intake::no_room(&self.config, store, &error) {
            Some(full) => full.into(),
            None => error.into(),
        }
    }

    fn of(&self, answer: Answer) -> Result<RequestId, SpoolError> {
        match answer {
            Answer::New(id) | Answer::Known(id) | Answer::Aside(id) => Ok(id),
            Answer::Refused(refusal) => Err(Refused::new(refusal.to_string()).into()),
            Answer::Full(full) => Err(intake::full(&self.config, &full).into()),
            Answer::Busy | Answer::Open => Err(SpoolError::Busy),
        }
    }
}

fn by() -> By {
    let uid = rustix::process::getuid().as_raw();
    By {
        now: SystemClock::new().now(),
        who: users::with_uid(uid),
        principal: users::name(uid),
        id: None,
    }
}
