//! Optimal code lengths up to a limit (package-merge algorithm).
//!
//! The problem is a coin collector's. A code of length l corresponds to coins of face value 1/2, 1/4, …,
//! 1/2^l, each at the price of its symbol's count; the algorithm finds the cheapest set of coins of total
//! value n − 1. Starting with the smallest value, it joins pairs of coins into packages, which compete with
//! the coins of the next larger value. It selects the 2n − 2 cheapest items of the largest value, and
//! with each package its pair. The length of a symbol's code is the number of its selected coins.

use alloc::vec::Vec;

use super::room;

/// Working memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Packages {
    /// The symbols that occur, in order of their counts.
    order: Vec<u32>,
    /// The prices of the packages of the last face value, and of those of the current one.
    packages: Vec<u64>,
    merged: Vec<u64>,
    /// For each face value, cheapest first: whether an item is a coin, not a package.
    own: Vec<bool>,
    /// The end of each face value's items in `own`.
    ends: Vec<usize>,
}

impl Packages {
    /// Reserves memory for `symbols` symbols.
    pub(super) fn reserve(&mut self, symbols: usize, limit: u32) {
        room(&mut self.order, symbols);
        room(&mut self.packages, symbols);
        room(&mut self.merged, 2 * symbols);
        room(&mut self.own, 2 * symbols * limit as usize);
        room(&mut self.ends, limit as usize);
    }

    /// Replaces `lengths` by the code lengths of symbols with the given counts.
    ///
    /// # Panics
    /// If more than 2^`limit` symbols occur.
    pub(super) fn lengths(&mut self, counts: &[u32], limit: u32, lengths: &mut Vec<u8>) {
        lengths.clear();
        lengths.resize(counts.len(), 0);
        self.order.clear();
        self.order.extend((0..counts.len() as u32).filter(|&at| counts[at as usize] > 0));
        // Of symbols with equal counts, the first gets the longer code.
        self.order.sort_unstable_by_key(|&at| (counts[at as usize], at));
        let used = self.order.len();
        assert!(used <= 1 << limit, "{used} symbols need codes of more than {limit} bits");
        if used == 1 {
            lengths[self.order[0] as usize] = 1;
        }
        if used < 2 {
            return;
        }
        self.merge(counts, limit);
        let mut taken = 2 * used - 2;
        for size in (0..limit as usize).rev() {
            let start = if size == 0 { 0 } else { self.ends[size - 1] };
            let coins = &self.own[start..self.ends[size]];
            let own = coins[..taken].iter().filter(|&&own| own).count();
            // The cheapest coins belong to the rarest symbols.
            self.order[..own].iter().for_each(|&symbol| lengths[symbol as usize] += 1);
            taken = 2 * (taken - own);
        }
    }

    /// Lists the items of all face values, from the smallest up.
    fn merge(&mut self, counts: &[u32], limit: u32) {
        let Self { order, packages, merged, own, ends } = self;
        packages.clear();
        own.clear();
        ends.clear();
        for _ in 0..limit {
            merged.clear();
            let mut symbols = order.iter().map(|&at| u64::from(counts[at as usize])).peekable();
            let mut pairs = packages.iter().copied().peekable();
            loop {
                let is_own = match (symbols.peek(), pairs.peek()) {
                    (None, None) => break,
                    (Some(symbol), Some(pair)) => symbol <= pair,
                    (symbol, _) => symbol.is_some(),
                };
                merged.extend(if is_own { symbols.next() } else { pairs.next() });
                own.push(is_own);
            }
            ends.push(own.len());
            packages.clear();
            packages.extend(merged.chunks_exact(2).map(|pair| pair[0] + pair[1]));
        }
    }
}
