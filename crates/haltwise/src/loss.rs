//! The gap, the loss that everything here controls: 1 where the full
//! prediction is right and the early one wrong, else 0.

use crate::trace::Block;

/// The gap of one sequence.
///
/// ```
/// assert!(haltwise::stats::gap(true, false));
/// // A sequence the classifier gets wrong anyway costs nothing to stop.
/// assert!(!haltwise::stats::gap(false, false));
/// ```
pub fn gap(full_is_right: bool, early_is_right: bool) -> bool {
    full_is_right && !early_is_right
}

/// The gaps of 64 sequences of a block at step `t`, one bit each.
///
/// At a sequence's own last step the early prediction is the full one, so its
/// bit is 0 there; past its end the bit means nothing.
#[inline(always)]
pub(crate) fn gaps(block: &Block, t: usize, word: usize) -> u64 {
    block.full[word] & !block.correct(t)[word]
}
