//! Finding the ranks that are left after one was lost.
//!
//! MPI does not say who is left. So each rank tells all others, with the tags of the next session, that it is there. It
//! waits until it has heard every rank but the one that was blamed, at most for the deadline. The first of the ranks
//! that it has heard then decides: it sends each rank that it has heard the list of all of them.
//!
//! Two groups must never go on side by side. So a rank ends with an error if it does not hear more than half of all ranks;
//! of two ranks, the one that was blamed ends. Which rank is blamed decides nothing else: where ranks wait for each other,
//! some may blame one that lives.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gradwire_exchange::{ExchangeError, Result};

use crate::call::{Arrival, Fault, Tag, Transfer};
use crate::links::{GRACE, Links};
use crate::notice::Notice;
use crate::pause::Pause;

/// What errors call it.
const OPERATION: &str = "connecting the ranks that are left";

/// The links of the next session, between the ranks that are left of an ended one.
///
/// # Errors
/// `Config` if the others have given this rank up for lost, or too few are left; `PeerLost` if MPI fails.
pub(crate) fn regroup(links: &Links, deadline: Duration) -> Result<Links> {
    let _busy = links.busy(OPERATION, 2 * deadline + GRACE);
    let left = connect(links, deadline).map_err(|fault| {
        ExchangeError::lost(links.culprit().unwrap_or(0), format!("{OPERATION}, {fault}"))
    })?;
    let own = links.members[links.rank];
    match left.iter().position(|&member| member == own) {
        Some(rank) => Ok(Links::new(left, rank, links.session + 1, links.watch.clone())),
        None => Err(ExchangeError::config(
            "the other ranks have given this one up for lost, because it sent nothing within the deadline, or too few \
             are left; raise the deadline if it was only slow",
        )),
    }
}

/// The ranks that are left, in MPI's world; empty if no rank has listed this one.
fn connect(links: &Links, deadline: Duration) -> Result<Vec<usize>, Fault> {
    let own = links.members[links.rank];
    let others = || links.members.iter().copied().filter(|&member| member != own);
    // Sends to a rank that is lost may never end; dropped transfers keep their buffers.
    let mut sent: Vec<Transfer> = Vec::new();
    for to in others() {
        let notice = Transfer::send(to, Tag::Notice(links.session + 1), Notice::Here.to_bytes());
        sent.extend(notice.ok());
    }
    let here = hear(links, Instant::now() + deadline)?;
    if ends(here.len(), links.size, links.culprit() == Some(links.rank)) {
        return Ok(Vec::new());
    }
    let Some(&first) = here.first().filter(|&&first| first != own) else {
        let list: Vec<u8> = here.iter().flat_map(|&member| (member as u32).to_le_bytes()).collect();
        for &to in here.iter().filter(|&&to| to != own) {
            sent.push(Transfer::send(to, Tag::Message(links.session + 1), list.clone())?);
        }
        settle(&mut sent)?;
        return Ok(here.into_iter().collect());
    };
    // It may have begun to wait when this rank had waited for the deadline already.
    let until = Instant::now() + deadline + GRACE;
    let mut pause = Pause::default();
    while Instant::now() < until {
        let Some(arrival) = Arrival::probe(Some(first), Tag::Message(links.session + 1))? else {
            settle(&mut sent)?;
            pause.wait();
            continue;
        };
        let mut transfer = arrival.receive(Vec::new())?;
        while !transfer.is_done()? {
            if Instant::now() >= until {
                return Ok(Vec::new());
            }
            pause.wait();
        }
        let list = transfer.into_bytes();
        let (list, _) = list.as_chunks::<4>();
        return Ok(list.iter().map(|member| u32::from_le_bytes(*member) as usize).collect());
    }
    Ok(Vec::new())
}

/// Whether a rank that has heard `here` of `size` ranks, itself included, ends. Of two ranks, the one that was blamed ends also
/// if it hears the other, which has not waited for it.
fn ends(here: usize, size: usize, blamed: bool) -> bool {
    if size > 2 { here <= size / 2 } else { blamed }
}

/// The ranks that say that they are there, this one included: all but the one that was blamed, or those heard in time.
fn hear(links: &Links, until: Instant) -> Result<BTreeSet<usize>, Fault> {
    let mut here = BTreeSet::from([links.members[links.rank]]);
    let lost = links.culprit().map(|culprit| links.members[culprit]);
    let missing = |here: &BTreeSet<usize>| {
        links.members.iter().any(|member| Some(*member) != lost && !here.contains(member))
    };
    let mut pause = Pause::default();
    while missing(&here) && Instant::now() < until {
        match Arrival::probe(None, Tag::Notice(links.session + 1))? {
            Some(arrival) => {
                let from = arrival.from;
                // A rank that an earlier group has excluded may have sent one, too.
                let is_here = Notice::receive(arrival)? == Some(Notice::Here);
                if is_here && links.members.contains(&from) {
                    here.insert(from);
                }
            }
            None => pause.wait(),
        }
    }
    Ok(here)
}

/// Drops the transfers that are complete.
fn settle(transfers: &mut Vec<Transfer>) -> Result<(), Fault> {
    let mut still = Vec::new();
    for mut transfer in transfers.drain(..) {
        if !transfer.is_done().unwrap_or(true) {
            still.push(transfer);
        }
    }
    *transfers = still;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_ranks_end_and_of_two_the_one_that_was_blamed() {
        // More than half, whoever is blamed.
        for blamed in [false, true] {
            let go_on = |size: usize| (1..=size).filter(|&here| !ends(here, size, blamed)).min();
            assert_eq!([3, 4, 5, 8].map(go_on), [Some(2), Some(3), Some(3), Some(5)]);
        }
        // Of two ranks of which one blames the other, whether or not they hear each other.
        for here in [1, 2] {
            assert!(ends(here, 2, true) && !ends(here, 2, false));
        }
    }
}
