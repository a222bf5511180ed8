//! How much work fits on the GPU at the same time, and how it is cut into blocks.

use super::{Network, SCORED_TOGETHER};
use crate::launch::{MANY, Recurrence, UNITS, WAVE, WAVE_UNITS};

impl Network {
    /// How many slices of this many eights run at the same time.
    pub(super) fn slices(&self, eights: usize, backward: bool) -> usize {
        let hidden = self.layout.padded().hidden;
        let shared = 2 * Recurrence::shared(hidden, eights) <= self.gpu.shared;
        let blocks = match backward {
            false if shared => self.gpu.blocks * Recurrence::twice(hidden, eights),
            _ => self.gpu.blocks,
        };
        blocks / (hidden / UNITS)
    }

    /// How slices may be cut, by how many eights of sequences they have: the narrowest first.
    /// On the way forward, two slices of 32 on a multiprocessor beat one of 64.
    pub(super) fn cuts(&self, backward: bool) -> Vec<usize> {
        let hidden = self.layout.padded().hidden;
        let fits = |eights: &usize| Recurrence::shared(hidden, *eights) <= self.gpu.shared;
        let twice = !backward && Recurrence::twice(hidden, 4) == 2;
        let cuts = [1, 2, 4, 8].into_iter().filter(|e| !(twice && *e == 8));
        cuts.filter(fits).collect()
    }

    /// How many eights of sequences a block may take through all layers; none where a layer is so
    /// narrow that it would leave threads idle, or the inputs so wide that float32 is too slow.
    pub(super) fn many_cuts(&self) -> Vec<usize> {
        let sizes = self.layout.padded();
        let shared = |eights| Recurrence::shared_by_many(sizes.hidden, sizes.layers, eights);
        let fits = |eights: &usize| shared(*eights) <= self.gpu.shared;
        match sizes.hidden >= 128 && sizes.features <= 32 {
            true => MANY.into_iter().filter(fits).collect(),
            false => Vec::new(),
        }
    }

    /// How many slices of a wave run at the same time, for scoring; none where the network
    /// is not the one that they are for, or the inputs are so wide that float32 is too slow.
    pub(super) fn waves(&self) -> usize {
        let sizes = self.layout.padded();
        let widest = WAVE[WAVE.len() - 1];
        let shared = Recurrence::shared_by_wave(sizes.features, widest);
        let shape = (sizes.layers, sizes.hidden) == (2, WAVE_UNITS);
        if shape && sizes.features <= 16 && shared <= self.gpu.shared {
            self.gpu.blocks / (WAVE_UNITS / UNITS)
        } else {
            0
        }
    }

    /// How many sequences groups of blocks can work on together.
    pub(super) fn by_groups(&self, backward: bool) -> usize {
        if !backward && self.waves() > 0 {
            return 8 * WAVE[WAVE.len() - 1] * self.waves();
        }
        let widest = self.cuts(backward).into_iter().next_back();
        widest.map_or(0, |eights| 8 * eights * self.slices(eights, backward))
    }

    /// Up to how many sequences groups of blocks are faster than a block for every slice.
    fn enough_for_many(&self, eights: usize) -> usize {
        if self.waves() > 0 {
            8 * eights * self.gpu.blocks
        } else {
            2 * self.by_groups(false)
        }
    }

    /// How many of `sequences` sequences of `steps` steps can be worked on together. Groups of
    /// blocks are the faster the fewer there are; from three times what they take layer by layer, a
    /// block of its own for every slice is faster. Waves in a row are faster than one round of
    /// those, but not than several.
    pub fn capacity(&self, sequences: usize, steps: usize, backward: bool) -> usize {
        let sizes = self.layout.padded();
        let (hidden, outputs) = (sizes.hidden, self.layout.outputs());
        let groups = self.by_groups(backward);
        let widest = self.many_cuts().into_iter().next_back();
        let (by_blocks, sequence) = match widest {
            Some(eights) if !backward && sequences > self.enough_for_many(eights) => {
                let step = hidden + sizes.features + 2 * outputs + 4;
                let sequence = (steps + 1) * step + sizes.layers * hidden;
                // What comes back has to fit on this side too.
                let by_host = SCORED_TOGETHER / (steps + 1) / (outputs + 2);
                let by_blocks = 8 * eights * self.gpu.blocks;
                (by_blocks.min(by_host).max(groups), 4 * sequence)
            }
            _ => {
                let per_layer = if backward { 6 * hidden } else { hidden };
                let step = sizes.layers * per_layer + sizes.features + 5 * hidden + 2 * outputs + 4;
                let ring = 2 * hidden * (hidden / UNITS);
                (groups, 4 * ((steps + 1) * step + ring))
            }
        };
        by_blocks.min(self.budget / sequence / 8 * 8)
    }
}
