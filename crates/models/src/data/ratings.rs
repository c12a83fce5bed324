//! Ratings of items by users, read from MovieLens' files. Their values are ignored: only the pairs
//! of user and item count.
//!
//! | file | a line |
//! |---|---|
//! | `u.data` | user, item, rating and time, separated by tabs |
//! | `ratings.dat` | the same, separated by `::` |
//! | `ratings.csv` | the same, separated by commas, below a line of names |
//!
//! Users and items are numbered from 0 in the order of their numbers in the file. As in the
//! evaluation of He, Liao, Zhang, Nie, Hu and Chua ("Neural collaborative filtering", WWW 2017,
//! section 4.1), the last item of each user is held out for testing, and ranked among 99 items that
//! the user has never taken. These items are drawn once, keyed by the user's number, so every run
//! is tested on the same items. A user with a single item is not tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use gradwire::Rng;

use super::DataError;
use super::files::Checksums;

/// Files that hold ratings, and the separator of their fields.
const FORMS: [(&str, &str); 3] = [("u.data", "\t"), ("ratings.dat", "::"), ("ratings.csv", ",")];
/// The number of other items in the ranking of the held-out item.
const OTHERS: u64 = 99;
/// The random stream of these items.
const STREAM: u32 = 0x7261_6e6b;

/// The items that users have taken.
#[derive(Clone, PartialEq, Eq)]
pub struct Ratings {
    /// Number of users.
    pub users: usize,
    /// Number of items.
    pub items: usize,
    /// User and item of each training rating.
    pub train: Vec<(u32, u32)>,
    /// The users and items to evaluate on.
    pub test: Vec<Question>,
    /// For each user, all items taken except the held-out one, in order.
    taken: Vec<Vec<u32>>,
}

/// The held-out item of a user, and others to rank it among.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The user.
    pub user: u32,
    /// The held-out item, then up to 99 items that the user has never taken.
    pub items: Vec<u32>,
}

impl Ratings {
    /// Sorts ratings of user, item and time. Users and items get numbers from 0, in the order of
    /// their ids.
    ///
    /// A user's last item is the item with the latest time; among equal times, the last in the
    /// file.
    pub fn new(lines: &[(u32, u32, u64)]) -> Self {
        let ids = |of: fn(&(u32, u32, u64)) -> u32| -> Vec<u32> {
            lines.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let (users, items) = (ids(|line| line.0), ids(|line| line.1));
        let place = |ids: &[u32], id| ids.binary_search(&id).expect("an id is among all") as u32;
        let mut by_user: Vec<Vec<(u32, u64)>> = vec![Vec::new(); users.len()];
        for &(user, item, time) in lines {
            by_user[place(&users, user) as usize].push((place(&items, item), time));
        }
        let (mut train, mut test, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for (user, all) in (0..).zip(&by_user) {
            let own: BTreeSet<u32> = all.iter().map(|(item, _)| *item).collect();
            let own: Vec<u32> = own.into_iter().collect();
            // Among equal times the last counts.
            let latest = all.iter().max_by_key(|(_, time)| *time).map(|(item, _)| *item);
            let kept = latest.filter(|_| own.len() > 1);
            if let Some(kept) = kept {
                let items = std::iter::once(kept).chain(others(user, items.len(), &own)).collect();
                test.push(Question { user, items });
            }
            let known: Vec<u32> = own.into_iter().filter(|item| kept != Some(*item)).collect();
            train.extend(known.iter().map(|&item| (user, item)));
            taken.push(known);
        }
        Self { users: users.len(), items: items.len(), train, test, taken }
    }

    /// An item that the user has not taken in the training set, drawn from `rng`. It may be the
    /// held-out item: otherwise a model could learn that item from its absence. If all items are
    /// taken, it is any item.
    pub fn untaken(&self, user: u32, rng: &mut Rng) -> u32 {
        let taken = &self.taken[user as usize];
        loop {
            let item = rng.below(self.items as u64) as u32;
            if taken.binary_search(&item).is_err() || taken.len() == self.items {
                return item;
            }
        }
    }
}

/// Distinct items that a user has not taken, in drawing order: the beginning of a shuffle (Fisher
/// and Yates) of all such items. A list of all of them for each user would take too much time and
/// memory, so only swapped items are stored.
fn others(user: u32, items: usize, taken: &[u32]) -> Vec<u32> {
    let mut rng = Rng::new(0, u64::from(user), 0, 0, STREAM);
    let free = (items - taken.len()) as u64;
    let mut swapped = BTreeMap::new();
    let draw = |at: u64| {
        let other = at + rng.below(free - at);
        let here = swapped.get(&at).copied().unwrap_or_else(|| untaken(at, taken));
        swapped.insert(other, here).unwrap_or_else(|| untaken(other, taken))
    };
    (0..free.min(OTHERS)).map(draw).collect()
}

/// The item after `before` other items that are not in `taken`, a sorted list.
fn untaken(before: u64, taken: &[u32]) -> u32 {
    // Before the item `taken[at]` there are `taken[at] - at` untaken ones.
    let (mut at, mut end) = (0, taken.len());
    while at < end {
        let middle = at.midpoint(end);
        match u64::from(taken[middle]) - middle as u64 <= before {
            true => at = middle + 1,
            false => end = middle,
        }
    }
    before as u32 + at as u32
}

impl fmt::Debug for Ratings {
    /// Sizes only: the ratings would fill many screens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { users, items, train, test, .. } = self;
        write!(f, "Ratings({} and {} of {users} users, {items} items)", train.len(), test.len())
    }
}

/// Whether a file of this name holds ratings.
pub(super) fn is_ratings(name: &str) -> bool {
    FORMS.iter().any(|(known, _)| *known == name)
}

/// Loads the file `name` of `dir`.
pub(super) fn load_file(
    dir: &Path,
    name: &str,
    sums: &mut Checksums,
) -> Result<Ratings, DataError> {
    let bytes = sums.read(dir, name)?;
    let path = dir.join(name);
    let text = String::from_utf8_lossy(&bytes);
    let between = FORMS.iter().find(|(known, _)| *known == name).map_or("\t", |(_, parts)| *parts);
    let mut lines = Vec::new();
    // A table may begin with a byte-order mark and the names of its columns.
    let named = between == ",";
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        match parse(line, between) {
            Some(rating) => lines.push(rating),
            None if line.trim().is_empty() || (number == 1 && (named || lettered(line))) => {}
            None => {
                let reason = format!(
                    "line {number} is not a user, an item, a rating and a time: '{}'",
                    line.chars().take(60).collect::<String>()
                );
                return Err(DataError::damaged(&path, reason));
            }
        }
    }
    let ratings = Ratings::new(&lines);
    if ratings.test.is_empty() {
        let reason = "no user has rated two items, so there is nothing to test on".to_owned();
        return Err(DataError::damaged(&path, reason));
    }
    Ok(ratings)
}

/// Whether a line begins with a letter, like a line of column names.
fn lettered(line: &str) -> bool {
    line.starts_with(|first: char| first.is_alphabetic())
}

fn parse(line: &str, between: &str) -> Option<(u32, u32, u64)> {
    let mut fields = line.split(between).map(str::trim);
    let (user, item) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let _: f64 = fields.next()?.parse().ok()?;
    let time = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some((user, item, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str, text: &str) -> Result<Ratings, DataError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
        load_file(dir.path(), name, &mut Checksums::default())
    }

    #[test]
    fn the_last_item_of_each_user_is_kept_back() {
        // User 7 takes 30 last; user 3 takes 10 and 20 at one time; user 9 has taken one item only.
        let text = "7\t10\t5\t100\n7\t30\t1\t300\n3\t10\t4\t50\n7\t20\t3\t200\n3\t20\t4\t50\n9\t40\t2\t1\n";
        let ratings = load("u.data", text).unwrap();
        assert_eq!((ratings.users, ratings.items), (3, 4));
        assert_eq!(ratings.train, [(0, 0), (1, 0), (1, 1), (2, 3)]);
        let kept: Vec<_> = ratings.test.iter().map(|q| (q.user, q.items[0])).collect();
        assert_eq!(kept, [(0, 1), (1, 2)]);
        // All others, each once, as there are fewer than 99.
        let mut rest = ratings.test[0].items[1..].to_vec();
        rest.sort_unstable();
        assert_eq!(rest, [2, 3]);
        assert_eq!(ratings.test[1].items[1..], [3]);
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let rows = [(1, 2, 100), (1, 5, 200), (4, 2, 7), (4, 9, 8)];
        let joined = |between: &str| -> String {
            let line =
                |(user, item, time)| format!("{user}{between}{item}{between}3.5{between}{time}\n");
            rows.into_iter().map(line).collect()
        };
        let first = load("u.data", &joined("\t")).unwrap();
        assert_eq!(load("ratings.dat", &joined("::")).unwrap(), first);
        let named = format!("userId,movieId,rating,timestamp\n{}", joined(","));
        assert_eq!(load("ratings.csv", &named).unwrap(), first);
        // As spreadsheets write it.
        let quoted =
            format!("\u{feff}\"userId\",\"movieId\",\"rating\",\"timestamp\"\r\n{}\n", joined(","));
        assert_eq!(load("ratings.csv", &quoted).unwrap(), first);
    }

    #[test]
    fn what_is_no_rating_is_named() {
        for (text, says) in [
            ("1\t2\t3\t4\n1\t2\n", "line 2"),
            ("1\t2\t3\t4\n1\tx\t3\t4\n", "line 2"),
            ("1\t2\t3\t4\t5\n", "line 1"),
            ("1\t2\t3\t4\n", "nothing to test on"),
            ("", "nothing to test on"),
        ] {
            let error = load("u.data", text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// A shuffle of a list of all items that are not taken.
    fn others_of_all(user: u32, items: usize, taken: &[u32]) -> Vec<u32> {
        let mut free: Vec<u32> = (0..items as u32).filter(|item| !taken.contains(item)).collect();
        let mut rng = Rng::new(0, u64::from(user), 0, 0, STREAM);
        let count = free.len().min(99);
        for at in 0..count {
            let other = at as u64 + rng.below((free.len() - at) as u64);
            free.swap(at, other as usize);
        }
        free.truncate(count);
        free
    }

    #[test]
    fn others_are_those_of_a_shuffle() {
        let mut rng = Rng::new(7, 0, 0, 0, 0);
        for user in 0..300 {
            let items = rng.below(250);
            let some = 1 + rng.below(9);
            let taken: Vec<u32> = (0..items as u32).filter(|_| rng.below(some) == 0).collect();
            let items = items as usize;
            assert_eq!(
                others(user, items, &taken),
                others_of_all(user, items, &taken),
                "{taken:?}"
            );
        }
        // A list of all items would not fit into memory.
        assert_eq!(others(1, 1 << 32, &[0]).len(), 99);
    }

    #[test]
    fn others_are_distinct_and_never_taken() {
        let taken: Vec<u32> = (0..300).step_by(2).collect();
        let drawn = others(5, 300, &taken);
        let distinct: BTreeSet<_> = drawn.iter().copied().collect();
        assert_eq!((drawn.len(), distinct.len()), (99, 99));
        assert!(drawn.iter().all(|item| item % 2 == 1 && *item < 300));
        assert_ne!(drawn, others(6, 300, &taken));
        assert_eq!(drawn, others(5, 300, &taken));
    }

    #[test]
    fn draws_are_never_of_what_may_be_learned_from() {
        let ratings = load("u.data", "1\t1\t1\t1\n1\t2\t1\t2\n2\t3\t1\t1\n2\t4\t1\t2\n").unwrap();
        let mut rng = Rng::new(1, 0, 0, 0, 0);
        let drawn: BTreeSet<u32> = (0..100).map(|_| ratings.untaken(0, &mut rng)).collect();
        // Item 1 is kept back.
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        let all = load("u.data", "1\t1\t1\t1\n2\t1\t1\t1\n2\t2\t1\t2\n3\t1\t1\t1\n").unwrap();
        assert_eq!(all.untaken(0, &mut rng), 1);
        let one = Ratings { items: 1, ..all };
        assert_eq!(one.untaken(0, &mut rng), 0, "ends where all are taken");
    }
}
