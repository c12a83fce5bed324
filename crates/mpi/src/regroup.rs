//! Finding the ranks that are left after one was lost.
//!
//! MPI does not say who is left. So each rank tells all others, with the tags of the next session,
//! that it is there. It waits, at most for the deadline, until it has heard from every rank except
//! the blamed one. It then waits a moment for the blamed rank, which reports itself if it ended
//! with an error of its own. Each rank leaves the decision to the first of the ranks that it has
//! heard from. This rank sends the list of all that it has heard from to each of them.
//!
//! Two groups must not go on side by side. So a rank ends with an error unless it hears from more
//! than half of all ranks. Of two ranks neither is more than half: the blamed one leaves the
//! decision to the other, and ends if it gets no list. If only the link between the two fails, each
//! blames the other, and both go on. With more ranks, the blame decides nothing: if ranks wait for
//! each other, some may blame a rank that is alive.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gradwire_exchange::patience::GRACE;
use gradwire_exchange::{ExchangeError, Result};

use crate::call::{Arrival, Fault, Tag, Transfer};
use crate::links::Links;
use crate::notice::Notice;
use crate::pause::Pause;

/// The name of the operation in errors.
const OPERATION: &str = "connecting the ranks that are left";

/// The links of the next session, between the ranks that are left of an ended one.
///
/// # Errors
/// `Config` if the others have given this rank up for lost, or too few are left; `PeerLost` if MPI
/// fails.
pub(crate) fn regroup(links: &Links, deadline: Duration) -> Result<Links> {
    let _busy = links.busy(OPERATION, 2 * deadline + GRACE);
    let left = connect(links, deadline).map_err(|fault| {
        ExchangeError::lost(links.culprit().unwrap_or(0), format!("{OPERATION}, {fault}"))
    })?;
    let own = links.members[links.rank];
    match left.iter().position(|&member| member == own) {
        Some(rank) => Ok(Links::new(left, rank, links.session + 1, links.watch.clone())),
        None => Err(ExchangeError::config(
            "the other ranks continue without this rank because it sent nothing within the deadline, or have ended \
             because too few ranks are left; raise the deadline if this rank was only slow",
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
    let Some(decides) = decides(&here, own, links.size, links.culprit() == Some(links.rank)) else {
        return Ok(Vec::new());
    };
    if decides == own {
        let list: Vec<u8> = here.iter().flat_map(|&member| (member as u32).to_le_bytes()).collect();
        for &to in here.iter().filter(|&&to| to != own) {
            sent.push(Transfer::send(to, Tag::Message(links.session + 1), list.clone())?);
        }
        settle(&mut sent)?;
        return Ok(here.into_iter().collect());
    }
    // It may have begun to wait only when this rank had already waited for the deadline.
    let until = Instant::now() + deadline + GRACE;
    let mut pause = Pause::default();
    while Instant::now() < until {
        let Some(arrival) = Arrival::probe(Some(decides), Tag::Message(links.session + 1))? else {
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

/// The rank that decides who is left, for a rank that has heard the ranks `here` of `size`, itself
/// included; `None` if it ends.
fn decides(here: &BTreeSet<usize>, own: usize, size: usize, blamed: bool) -> Option<usize> {
    match (size, blamed) {
        // The other one may not have waited for it.
        (2, true) => here.iter().copied().find(|&member| member != own),
        (2, false) => Some(own),
        _ => here.first().copied().filter(|_| here.len() > size / 2),
    }
}

/// The ranks that say that they are there, this one included. After the others, the blamed rank has
/// only a moment.
fn hear(links: &Links, until: Instant) -> Result<BTreeSet<usize>, Fault> {
    let mut here = BTreeSet::from([links.members[links.rank]]);
    let lost = links.culprit().map(|culprit| links.members[culprit]);
    let missing = |here: &BTreeSet<usize>| {
        links.members.iter().any(|member| Some(*member) != lost && !here.contains(member))
    };
    let (mut pause, mut until) = (Pause::default(), until);
    let mut waits_for_lost = lost.is_some();
    while Instant::now() < until {
        if !missing(&here) {
            if lost.is_none_or(|lost| here.contains(&lost)) {
                break;
            }
            if std::mem::take(&mut waits_for_lost) {
                until = until.min(Instant::now() + GRACE);
            }
        }
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

/// Drops complete transfers.
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
    fn the_first_of_more_than_half_decides() {
        for blamed in [false, true] {
            let decides = |heard: usize, size| {
                // The last ranks have heard each other.
                let here: BTreeSet<usize> = (size - heard..size).collect();
                decides(&here, size - 1, size, blamed)
            };
            let least = |size: usize| (1..=size).find(|&heard| decides(heard, size).is_some());
            assert_eq!([3, 4, 5, 8].map(least), [Some(2), Some(3), Some(3), Some(5)]);
            assert_eq!(decides(3, 4), Some(1));
        }
    }

    #[test]
    fn of_two_ranks_the_one_that_was_not_blamed_decides() {
        for own in [0, 1] {
            let (alone, both) = (BTreeSet::from([own]), BTreeSet::from([0, 1]));
            let all = [(&alone, false), (&both, false), (&alone, true), (&both, true)];
            let found = all.map(|(here, blamed)| decides(here, own, 2, blamed));
            assert_eq!(found, [Some(own), Some(own), None, Some(1 - own)]);
        }
    }
}
