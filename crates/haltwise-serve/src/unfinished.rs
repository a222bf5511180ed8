//! The memory of what clients have begun to send: bodies and lines that are not complete. It is
//! bounded for all connections together, because each of thousands may begin something.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most bytes of all that is not complete.
const MOST: usize = 256 << 20;

/// Less than this is in the memory that each connection has anyway.
const FREE: usize = 4 << 10;

/// The memory for all that is not complete.
#[derive(Debug, Clone)]
pub(crate) struct UnfinishedRoom(Arc<Semaphore>);

impl UnfinishedRoom {
    /// Memory for several lines of this length.
    pub(crate) fn for_lines_of(bytes: usize) -> Self {
        let most = MOST.max(bytes.saturating_mul(4));
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// A share of it, which is empty.
    pub(crate) fn share(&self) -> UnfinishedShare {
        UnfinishedShare {
            room: Arc::clone(&self.0),
            taken: None,
        }
    }
}

/// There is no memory left for what is not complete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// What one connection has of it. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct UnfinishedShare {
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl UnfinishedShare {
    /// Makes the share as large as what is not complete.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let bytes = if bytes <= FREE { 0 } else { bytes };
        let held = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes > held {
            let more = u32::try_from(bytes - held).map_err(|_| NoRoom)?;
            let more = Arc::clone(&self.room).try_acquire_many_owned(more);
            let more = more.map_err(|_| NoRoom)?;
            match &mut self.taken {
                Some(taken) => taken.merge(more),
                None => self.taken = Some(more),
            }
        } else if let Some(taken) = &mut self.taken {
            drop(taken.split(held - bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_share_the_room_and_give_it_back() {
        let room = UnfinishedRoom::for_lines_of(1 << 20);
        let (mut one, mut other) = (room.share(), room.share());
        one.hold(MOST - (1 << 20)).unwrap();
        other.hold(1 << 20).unwrap();
        assert_eq!(other.hold((1 << 20) + 1), Err(NoRoom));
        // Little needs no room of its own.
        room.share().hold(FREE).unwrap();
        one.hold(MOST / 2).unwrap();
        other.hold(MOST / 2).unwrap();
        drop(one);
        other.hold(MOST).unwrap();
        other.hold(0).unwrap();
        room.share().hold(MOST).unwrap();
    }
}
