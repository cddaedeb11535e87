//! The five states and every legal move between them, in one table.
//!
//! ```text
//!                 release            settle: success
//!        ┌──────────────────┐   ┌──────────────────────► confirmed
//!        ▼                  │   │                            ▲
//!   pending ──claim──► unknown ─┤ settle: refused            │ resolve
//!    │  ▲ ▲               │  ▲  ├──────────► held ──┐        │
//!    │  │ └──settle: later─┘  │  │            ▲      │        │
//!    │  │                     │  └────────────┼──────┼──► failed
//!    │  └─resolve/retry       └─interrupted   │      │        ▲
//!    └────────hold────────────────────────────┘      └─cancel─┤
//!    └────────cancel, expire──────────────────────────────────┘
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where an item stands; the name is also the directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted, certainly not acted on; will be sent when due.
    Pending,
    /// Being sent, or perhaps acted on.
    Unknown,
    /// Good, certainly not acted on, but something outside must change first.
    Held,
    /// The receiver acknowledged it.
    Confirmed,
    /// Rejected, expired, cancelled or out of attempts; certainly not acted on.
    Failed,
}

impl State {
    /// Every state, in the order of an item's life.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Unknown,
        Self::Held,
        Self::Confirmed,
        Self::Failed,
    ];

    /// The state's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
        }
    }

    /// Reads a state by its name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the item's story is over: confirmed or failed.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Confirmed | Self::Failed => true,
            Self::Pending | Self::Unknown | Self::Held => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What may be done to an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// A tick is about to send it.
    Claim,
    /// A tick settles an attempt as this state.
    Settle(State),
    /// A person, or a rule about time, holds it back.
    Hold,
    /// A person, or a time, gives it back.
    Release,
    /// A person gives it up.
    Cancel,
    /// A person has a failed item tried again.
    Retry,
    /// A person says what became of it.
    Resolve(Resolution),
    /// `not_after` or the last attempt is over.
    Expire,
}

/// What a person says of an unknown item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The receiver acted on it.
    Confirmed,
    /// The receiver did not act on it, and it should not be sent again.
    Failed,
    /// The receiver did not act on it; send it again.
    Resend,
}

/// Why a move is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The receiver may have acted on it: only `resolve` can say more.
    #[error("the receiver may have acted on it: look there first, then use `tickpost resolve`")]
    MaybeActed,
    /// Its place says one state and its last event another: something is damaged.
    #[error(
        "its file lies in {place}/ and its last event says {event}: look at the file; nothing was done"
    )]
    Disagrees {
        /// What the place says.
        place: State,
        /// What the last event says.
        event: State,
    },
    /// The item is in a state that this move does not start from.
    #[error("it is {0}, which this does not apply to")]
    WrongState(State),
}

/// The state after a move.
///
/// `maybe_acted` is the flag of guarantee G6; while it is set only [`Move::Resolve`], or a
/// settle that a rule with `prior` decided, leaves unknown.
///
/// # Errors
///
/// [`Refused`] if the move is not legal from `from`.
#[expect(
    clippy::match_same_arms,
    reason = "one row a move, so that it reads as a table"
)]
pub fn after(from: State, maybe_acted: bool, step: Move) -> Result<State, Refused> {
    use State::{Confirmed, Failed, Held, Pending, Unknown};
    match (from, step) {
        (Pending | Unknown, Move::Claim) => Ok(Unknown),
        (Unknown, Move::Settle(to)) => Ok(to),
        (Pending | Held, Move::Hold) => Ok(Held),
        (Unknown, Move::Hold | Move::Expire) => Ok(Unknown),
        (Unknown, Move::Resolve(Resolution::Confirmed)) => Ok(Confirmed),
        (Unknown, Move::Resolve(Resolution::Failed)) => Ok(Failed),
        (Unknown, Move::Resolve(Resolution::Resend)) => Ok(Pending),
        (Unknown, Move::Release | Move::Cancel | Move::Retry) if maybe_acted => {
            Err(Refused::MaybeActed)
        }
        (Held, Move::Release) | (Failed, Move::Retry) => Ok(Pending),
        (Pending | Held, Move::Cancel | Move::Expire) => Ok(Failed),
        (
            _,
            Move::Claim
            | Move::Settle(_)
            | Move::Hold
            | Move::Release
            | Move::Cancel
            | Move::Retry
            | Move::Resolve(_)
            | Move::Expire,
        ) => Err(Refused::WrongState(from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_move_from_every_state() {
        use State::{Confirmed, Failed, Held, Pending, Unknown};
        // Columns: pending, unknown, held, confirmed, failed; None is a refusal.
        let table = [
            (
                Move::Claim,
                [Some(Unknown), Some(Unknown), None, None, None],
            ),
            (Move::Settle(Held), [None, Some(Held), None, None, None]),
            (
                Move::Hold,
                [Some(Held), Some(Unknown), Some(Held), None, None],
            ),
            (Move::Release, [None, None, Some(Pending), None, None]),
            (Move::Cancel, [Some(Failed), None, Some(Failed), None, None]),
            (Move::Retry, [None, None, None, None, Some(Pending)]),
            (
                Move::Resolve(Resolution::Confirmed),
                [None, Some(Confirmed), None, None, None],
            ),
            (
                Move::Resolve(Resolution::Failed),
                [None, Some(Failed), None, None, None],
            ),
            (
                Move::Resolve(Resolution::Resend),
                [None, Some(Pending), None, None, None],
            ),
            (
                Move::Expire,
                [Some(Failed), Some(Unknown), Some(Failed), None, None],
            ),
        ];
        for (step, row) in table {
            for (from, want) in State::ALL.into_iter().zip(row) {
                let got = after(from, from == Unknown, step);
                assert_eq!(got.ok(), want, "{step:?} from {from}");
            }
        }
    }

    #[test]
    fn what_may_have_been_acted_on_is_only_resolved() {
        for step in [Move::Release, Move::Cancel, Move::Retry] {
            assert_eq!(after(State::Unknown, true, step), Err(Refused::MaybeActed));
        }
    }

    #[test]
    fn names_and_ends() {
        use State::{Confirmed, Failed, Held, Pending, Unknown};
        let rows = [
            (Pending, "pending", false),
            (Unknown, "unknown", false),
            (Held, "held", false),
            (Confirmed, "confirmed", true),
            (Failed, "failed", true),
        ];
        assert_eq!(rows.map(|(state, _, _)| state), State::ALL);
        for (state, name, terminal) in rows {
            assert_eq!((state.as_str(), state.is_terminal()), (name, terminal));
            assert_eq!(
                (State::parse(name), state.to_string()),
                (Some(state), name.to_owned())
            );
            assert_eq!(format!("{state:>9}").len(), 9, "it can be padded");
            let json = serde_json::to_value(state).ok();
            assert_eq!(json, Some(serde_json::Value::from(name)), "as in files");
        }
        assert_eq!(State::parse("Pending"), None);
    }

    #[test]
    fn a_refusal_says_why() {
        let steps = [Move::Release, Move::Cancel, Move::Retry];
        for from in State::ALL {
            for step in steps {
                for maybe_acted in [false, true] {
                    let want = if from == State::Unknown && maybe_acted {
                        Refused::MaybeActed
                    } else {
                        Refused::WrongState(from)
                    };
                    if let Err(why) = after(from, maybe_acted, step) {
                        assert_eq!(why, want, "{step:?}");
                    }
                }
            }
            for to in State::ALL {
                let settled = after(from, true, Move::Settle(to));
                let want = (from == State::Unknown).then_some(to);
                assert_eq!(settled.ok(), want, "only what was claimed is settled");
            }
        }
    }
}
