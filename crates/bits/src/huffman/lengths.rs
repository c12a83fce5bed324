//! Optimal code lengths up to a limit, by package-merge.
//!
//! A code of length l buys coins of 1/2, 1/4, …, 1/2^l at the price of its symbol's count; what is
//! looked for are the cheapest coins worth n − 1. From the smallest coins on, pairs become packages that
//! compete with the next larger coins. Of the largest the 2n − 2 cheapest are taken, and with a
//! package its pair: how often a symbol's coins are among them is the length of its code.

use alloc::vec::Vec;

use super::room;

/// Working memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Packages {
    /// The symbols that occur, by how often.
    order: Vec<u32>,
    /// Prices of packages made of the last coins, and of those in the making.
    packages: Vec<u64>,
    merged: Vec<u64>,
    /// Of each size of coins, cheapest first: whether it is a symbol's own, not a package.
    own: Vec<bool>,
    /// Where each size's coins end there.
    ends: Vec<usize>,
}

impl Packages {
    /// Makes room for so many symbols.
    pub(super) fn reserve(&mut self, symbols: usize, limit: u32) {
        room(&mut self.order, symbols);
        room(&mut self.packages, symbols);
        room(&mut self.merged, 2 * symbols);
        room(&mut self.own, 2 * symbols * limit as usize);
        room(&mut self.ends, limit as usize);
    }

    /// Replaces `lengths` by the code lengths of symbols that occur so often.
    ///
    /// # Panics
    /// If more symbols occur than the limit has codes for.
    pub(super) fn lengths(&mut self, counts: &[u32], limit: u32, lengths: &mut Vec<u8>) {
        lengths.clear();
        lengths.resize(counts.len(), 0);
        self.order.clear();
        self.order.extend((0..counts.len() as u32).filter(|&at| counts[at as usize] > 0));
        // Of equally common symbols the first has the longer code.
        self.order.sort_unstable_by_key(|&at| (counts[at as usize], at));
        let used = self.order.len();
        assert!(used <= 1 << limit, "{used} symbols have no codes of up to {limit} bits");
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
            // The cheapest coins are those of the rarest symbols.
            self.order[..own].iter().for_each(|&symbol| lengths[symbol as usize] += 1);
            taken = 2 * (taken - own);
        }
    }

    /// Lays out all coins, from the smallest on.
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
