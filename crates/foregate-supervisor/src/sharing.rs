//! Messages between generations that the supervisor forwards: purges, changes that operators have made,
//! metrics.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use crate::channel::{DESCRIPTORS_LIMIT, blob};
use crate::generation::{Generation, NoAnswer};
use crate::protocol::{Item, Order, Report};
use crate::supervisor::{PATIENCE, Supervisor};

impl Supervisor {
    /// Sends the purges of a generation to all others.
    pub(crate) async fn tell_purges(
        self: Rc<Self>,
        asking: Rc<Generation>,
        id: Option<u64>,
        purges: Vec<OwnedFd>,
    ) {
        let _busy = self.busy();
        let others: Vec<_> = {
            let state = self.state.borrow();
            let other = |known: &&Rc<Generation>| {
                known.number != asking.number && *known.ready.borrow() && known.purges.get()
            };
            state.generations.iter().filter(other).cloned().collect()
        };
        let purges: Vec<_> = purges.iter().map(AsFd::as_fd).collect();
        let mut silent = false;
        for other in others {
            // A generation that is just ending serves nobody any more, so it may end without an answer.
            let answer = other.ask(Order::Purges, &purges, PATIENCE).await;
            silent |= matches!(answer, Err(NoAnswer::Silent(_)));
        }
        if silent {
            // Another generation has not confirmed the purges, so the asking process gets no answer and runs into its
            // time limit.
            return;
        }
        let _ = asking.tell(id, Order::Purged, &[]).await;
    }

    /// Sends pieces of a generation's state to all others. Keeps the pieces if they come from the serving
    /// generation.
    pub(crate) async fn share(
        self: Rc<Self>,
        of: Rc<Generation>,
        id: Option<u64>,
        items: Vec<Item>,
        blobs: Vec<OwnedFd>,
    ) {
        let _busy = self.busy();
        let blobs: Vec<_> = blobs.into_iter().map(Rc::new).collect();
        let others: Vec<_> = {
            let mut state = self.state.borrow_mut();
            if state.serving == of.number {
                for (item, blob) in items.iter().zip(&blobs) {
                    state.items.retain(|(known, _)| known.tag != item.tag);
                    state.items.push((item.clone(), Rc::clone(blob)));
                }
            }
            let other = |known: &&Rc<Generation>| {
                known.number != of.number && *known.ready.borrow() && known.inherits.get()
            };
            state.generations.iter().filter(other).cloned().collect()
        };
        let descriptors: Vec<_> = blobs.iter().map(AsFd::as_fd).collect();
        for other in others {
            // A generation that is just ending serves nobody any more, so it may end without an answer.
            let _ = other.ask(Order::Inherit { items: items.clone() }, &descriptors, PATIENCE).await;
        }
        let _ = of.tell(id, Order::Shared, &[]).await;
    }

    /// Sends a generation the metrics of all others.
    pub(crate) async fn tell_others(self: Rc<Self>, asking: Rc<Generation>, id: Option<u64>) {
        let _busy = self.busy();
        let others: Vec<_> = {
            let state = self.state.borrow();
            let other = |known: &&Rc<Generation>| known.number != asking.number && *known.ready.borrow();
            state.generations.iter().filter(other).cloned().collect()
        };
        let mut blobs = Vec::new();
        for other in others.iter().take(DESCRIPTORS_LIMIT - 1) {
            // A generation that is just ending sends its last metrics by itself.
            if let Ok((Report::Exposition, mut texts)) = other.ask(Order::Exposition, &[], PATIENCE).await {
                other.shown.replace(texts.first().and_then(|text| text.try_clone().ok()));
                blobs.append(&mut texts);
            }
        }
        let ended = {
            let state = self.state.borrow();
            state.any_ended.then(|| state.ended.text())
        };
        blobs.extend(ended.and_then(|text| blob(text.as_bytes()).ok()));
        let descriptors: Vec<_> = blobs.iter().map(AsFd::as_fd).collect();
        // The process may have ended meanwhile.
        let _ = asking.tell(id, Order::Others, &descriptors).await;
    }
}
