//! A request body that knows how far it got.
//!
//! hyper asks for the body after it has taken the request to write it and before it writes the
//! first byte. A body that was dropped without being asked for was therefore never on the wire:
//! the one positive proof of "not sent" beyond a failed connection. It cannot be cloned, so
//! nothing below can send it a second time.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest as _, Sha256};

use crate::model::envelope::hex;

/// The body is handed over in pieces of this size, so that a body that stuck half way shows it.
const PIECE_BYTES: usize = 64 * 1024;

/// How far a body got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nobody asked for it, and it still exists. Proves nothing.
    Untouched,
    /// Asked for; not all of it was handed over.
    Begun,
    /// All of it was handed over; how much was written is not known.
    HandedOver,
    /// Dropped without having been asked for: not a byte of the request was written.
    NeverAsked,
}

const UNTOUCHED: u8 = 0;
const BEGUN: u8 = 1;
const HANDED_OVER: u8 = 2;
const NEVER_ASKED: u8 = 3;

/// Reads a body's progress after the body itself is gone.
#[derive(Clone, Debug)]
pub(super) struct Marker(Arc<AtomicU8>);

impl Marker {
    /// How far the body got by now.
    pub(super) fn progress(&self) -> Progress {
        match self.0.load(Ordering::SeqCst) {
            UNTOUCHED => Progress::Untouched,
            BEGUN => Progress::Begun,
            HANDED_OVER => Progress::HandedOver,
            _ => Progress::NeverAsked,
        }
    }
}

/// The body. Not `Clone`, on purpose.
pub(super) struct Marked {
    rest: Rest,
    state: Arc<AtomicU8>,
}

/// What is still to be handed over.
enum Rest {
    Bytes(Bytes),
    /// So many bytes of a file. Its pieces are read where the network runs: it is a file of this
    /// machine, read a moment ago to check it, and the thread is this destination's own. The
    /// mutex is for the library's sake, which shares what it only ever passes on.
    File(Mutex<Box<dyn Read + Send>>, u64, Box<Check>),
}

/// Whether what is handed over is what was accepted: its last piece is kept back if it is not.
struct Check {
    sum: Sha256,
    wanted: String,
}

impl Rest {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, left, _) => *left,
        }
    }

    fn piece(&mut self) -> io::Result<Bytes> {
        let len = usize::try_from(self.len()).map_or(PIECE_BYTES, |len| len.min(PIECE_BYTES));
        match self {
            Self::Bytes(bytes) => Ok(bytes.split_to(len)),
            Self::File(file, left, check) => {
                let mut piece = vec![0; len];
                let file = file.get_mut().map_err(|_| io::ErrorKind::Other)?;
                file.read_exact(&mut piece)?;
                check.sum.update(&piece);
                if *left == len as u64 && hex(&check.sum.clone().finalize()) != check.wanted {
                    return Err(io::Error::other("the body changed while it was sent"));
                }
                *left -= len as u64;
                Ok(Bytes::from(piece))
            }
        }
    }
}

impl Marked {
    /// Wraps a body.
    pub(super) fn new(bytes: Vec<u8>) -> (Self, Marker) {
        Self::of(Rest::Bytes(Bytes::from(bytes)))
    }

    /// Wraps a body of so many bytes and this SHA-256 that is read while it is sent.
    pub(super) fn streamed(
        file: Box<dyn Read + Send>,
        bytes: u64,
        sha256: String,
    ) -> (Self, Marker) {
        let check = Check {
            sum: Sha256::new(),
            wanted: sha256,
        };
        Self::of(Rest::File(Mutex::new(file), bytes, Box::new(check)))
    }

    fn of(rest: Rest) -> (Self, Marker) {
        let state = Arc::new(AtomicU8::new(UNTOUCHED));
        let body = Self {
            rest,
            state: Arc::clone(&state),
        };
        (body, Marker(state))
    }
}

impl Body for Marked {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        // Asked for, whatever becomes of it.
        self.state.store(BEGUN, Ordering::SeqCst);
        let piece = match self.rest.piece() {
            Ok(piece) => piece,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        if self.rest.len() == 0 {
            self.state.store(HANDED_OVER, Ordering::SeqCst);
        }
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.len() == 0
    }

    /// Exact, so that the request goes out with a content length and not in chunks.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len())
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        // A body that was asked for stays what it is. Only the body itself writes its state.
        if self.state.load(Ordering::SeqCst) == UNTOUCHED {
            self.state.store(NEVER_ASKED, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(body: &mut Marked) -> Option<usize> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map(Bytes::len),
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => None,
        }
    }

    #[test]
    fn a_streamed_body_that_ends_early_has_begun() {
        let file = Box::new(io::Cursor::new(vec![1; PIECE_BYTES + 5]));
        let (mut body, marker) = Marked::streamed(file, PIECE_BYTES as u64 + 10, String::new());
        assert_eq!(body.size_hint().exact(), Some(PIECE_BYTES as u64 + 10));
        assert_eq!(poll(&mut body), Some(PIECE_BYTES));
        assert_eq!(poll(&mut body), None);
        assert_eq!(marker.progress(), Progress::Begun);
        assert!(!body.is_end_stream());

        // One that is not what was accepted never arrives whole.
        for (bytes, arrives) in [(vec![1; 10], Some(10)), (vec![2; 10], None)] {
            let sum = hex(&Sha256::digest([1; 10]));
            let (mut body, marker) = Marked::streamed(Box::new(io::Cursor::new(bytes)), 10, sum);
            assert_eq!(poll(&mut body), arrives);
            assert_eq!(body.is_end_stream(), arrives.is_some());
            assert_eq!(marker.progress() == Progress::HandedOver, arrives.is_some());
        }
        let sum = hex(&Sha256::digest([1; 10]));
        let (mut body, marker) = Marked::streamed(Box::new(io::Cursor::new(vec![1; 10])), 10, sum);
        assert_eq!(poll(&mut body), Some(10));
        assert_eq!(marker.progress(), Progress::HandedOver);
        assert!(body.is_end_stream());
    }

    #[test]
    fn progress_of_a_body() {
        let (body, marker) = Marked::new(vec![1; 10]);
        assert_eq!(marker.progress(), Progress::Untouched);
        drop(body);
        assert_eq!(marker.progress(), Progress::NeverAsked);

        let (mut body, marker) = Marked::new(vec![1; PIECE_BYTES + 1]);
        assert_eq!(poll(&mut body), Some(PIECE_BYTES));
        assert_eq!(marker.progress(), Progress::Begun);
        assert_eq!(body.size_hint().exact(), Some(1));
        assert_eq!(poll(&mut body), Some(1));
        assert_eq!(marker.progress(), Progress::HandedOver);
        assert!(body.is_end_stream());
        assert_eq!(poll(&mut body), None);
        drop(body);
        assert_eq!(
            marker.progress(),
            Progress::HandedOver,
            "dropping changes nothing"
        );
    }
}
