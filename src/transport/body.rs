//! A request body that knows how far it got.
//!
//! hyper asks for the body after it has taken the request to write it and before it writes the
//! first byte. A body that was dropped without being asked for was therefore never on the wire:
//! the one positive proof of "not sent" beyond a failed connection. It cannot be cloned, so
//! nothing below can send it a second time.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

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
    rest: Bytes,
    state: Arc<AtomicU8>,
}

impl Marked {
    /// Wraps a body.
    pub(super) fn new(bytes: Vec<u8>) -> (Self, Marker) {
        let state = Arc::new(AtomicU8::new(UNTOUCHED));
        let body = Self {
            rest: Bytes::from(bytes),
            state: Arc::clone(&state),
        };
        (body, Marker(state))
    }
}

impl Body for Marked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(len);
        let state = if self.rest.is_empty() {
            HANDED_OVER
        } else {
            BEGUN
        };
        self.state.store(state, Ordering::SeqCst);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    /// Exact, so that the request goes out with a content length and not in chunks.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
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
            Poll::Ready(Some(Err(never))) => match never {},
            Poll::Ready(None) | Poll::Pending => None,
        }
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
