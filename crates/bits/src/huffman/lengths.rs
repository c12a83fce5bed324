//! Optimal code lengths up to a limit.
//!
//! Lengths without a limit come first: Huffman's algorithm joins the two cheapest nodes, symbols or
//! pairs, into a pair. Pairs arise in the order of their prices, so both symbols and pairs are
//! lists that are read from the front. If a length exceeds the limit, the package-merge algorithm
//! follows, which takes ten times as long.
//!
//! Package-merge solves the coin collector's problem. A code of length l corresponds to coins of
//! face value 1/2, 1/4, …, 1/2^l, each at the price of its symbol's count; the algorithm finds the
//! cheapest set of coins of total value n − 1. Starting with the smallest value, it joins pairs of
//! coins into packages, which compete with the coins of the next larger value. It selects the 2n −
//! 2 cheapest items of the largest value; a package includes its pair. The length of a symbol's
//! code is the number of its selected coins.

use alloc::vec::Vec;

use crate::reserve::room;

/// Working memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Packages {
    /// The symbols that occur, in order of their counts: the count from bit 32 up, and the symbol.
    order: Vec<u64>,
    /// The prices of pairs, in order; then their depths.
    pairs: Vec<u64>,
    /// Of each symbol in order, then of each pair: the pair it belongs to.
    parents: Vec<u32>,
    /// The prices of the packages of the last face value and of the current one.
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
        room(&mut self.pairs, symbols);
        room(&mut self.parents, 2 * symbols);
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
        let used = counts.iter().zip(0u64..).filter(|&(&count, _)| count > 0);
        self.order.extend(used.map(|(&count, symbol)| u64::from(count) << 32 | symbol));
        // Of symbols with equal counts, the first gets the longer code.
        self.order.sort_unstable();
        let used = self.order.len();
        assert!(used <= 1 << limit, "{used} symbols need codes of more than {limit} bits");
        if used == 1 {
            lengths[symbol_of(self.order[0])] = 1;
        }
        if used < 2 || self.unlimited(limit, lengths) {
            return;
        }
        self.merge(limit);
        self.take(limit, lengths);
    }

    /// Counts the selected coins of each symbol.
    fn take(&self, limit: u32, lengths: &mut [u8]) {
        let mut taken = 2 * self.order.len() - 2;
        for size in (0..limit as usize).rev() {
            let start = if size == 0 { 0 } else { self.ends[size - 1] };
            let coins = &self.own[start..self.ends[size]];
            let own = coins[..taken].iter().filter(|&&own| own).count();
            // The cheapest coins belong to the rarest symbols.
            self.order[..own].iter().for_each(|&symbol| lengths[symbol_of(symbol)] += 1);
            taken = 2 * (taken - own);
        }
    }

    /// Writes the optimal unlimited lengths, if none exceeds the limit. Returns whether it did.
    fn unlimited(&mut self, limit: u32, lengths: &mut [u8]) -> bool {
        let Self { order, pairs, parents, .. } = self;
        pairs.clear();
        parents.clear();
        parents.resize(2 * order.len() - 1, 0);
        let (mut symbol, mut pair) = (0, 0);
        for parent in 0..order.len() as u32 - 1 {
            let mut price = 0;
            for _ in 0..2 {
                let next = order.get(symbol).map_or(u64::MAX, |&count| count >> 32);
                if pairs.get(pair).is_none_or(|&pair| next <= pair) {
                    price += next;
                    parents[symbol] = parent;
                    symbol += 1;
                } else {
                    price += pairs[pair];
                    parents[order.len() + pair] = parent;
                    pair += 1;
                }
            }
            pairs.push(price);
        }
        // Prices are no longer needed. The last pair is at depth 0.
        let last = pairs.len() - 1;
        pairs[last] = 0;
        for pair in (0..last).rev() {
            pairs[pair] = pairs[parents[order.len() + pair] as usize] + 1;
        }
        // The rarest symbol has the longest code.
        let length = |parent: u32| pairs[parent as usize] + 1;
        if length(parents[0]) > u64::from(limit) {
            return false;
        }
        for (&symbol, &parent) in order.iter().zip(&*parents) {
            lengths[symbol_of(symbol)] = length(parent) as u8;
        }
        true
    }

    /// Lists the items of all face values, from the smallest up.
    fn merge(&mut self, limit: u32) {
        let Self { order, packages, merged, own, ends, .. } = self;
        packages.clear();
        own.clear();
        ends.clear();
        for _ in 0..limit {
            merged.clear();
            let mut symbols = order.iter().map(|&symbol| symbol >> 32).peekable();
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

/// The symbol of an entry of the order.
fn symbol_of(entry: u64) -> usize {
    entry as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Two independent algorithms give the same lengths.
        #[test]
        fn both_algorithms_agree_where_the_limit_does_not_bind(
            counts in prop::collection::vec(prop_oneof![0..4u32, 1..40u32, 1..100_000u32], 2..300),
        ) {
            let (mut packages, mut lengths) = (Packages::default(), vec![]);
            packages.lengths(&counts, 18, &mut lengths);
            let used = packages.order.len();
            prop_assume!(used >= 2);
            packages.merge(18);
            let mut merged = vec![0; counts.len()];
            packages.take(18, &mut merged);
            prop_assert_eq!(lengths, merged);
        }
    }
}
