//! Names in charts: lines that fit, beside each other without overlap.

use gradwire::printable;

/// The height of a line of text and the mean width of a character, in pixels: that of wide fonts,
/// because a page cannot know which one it has.
pub(super) const LINE: f64 = 14.0;
pub(super) const CHARACTER: f64 = 7.8;

/// A name in one or two lines of at most `most` characters, broken after `:`, `,` or a space if
/// possible. The middle of a longer name is left out: its end often tells it from others.
pub(super) fn wrapped(name: &str, most: usize) -> Vec<String> {
    let characters: Vec<char> = printable(name).to_string().chars().collect();
    if characters.len() <= most {
        return vec![characters.into_iter().collect()];
    }
    let breaks = |at: &usize| matches!(characters[at - 1], ':' | ',' | ' ' | '/');
    let first = (1..=most).rev().find(breaks).filter(|at| *at * 2 > most).unwrap_or(most);
    let (first, rest) = characters.split_at(first);
    let second = match rest.len() <= most {
        true => rest.to_vec(),
        false => [&['…'], &rest[rest.len() - most + 1..]].concat(),
    };
    let line = |part: &[char]| part.iter().collect::<String>().trim().to_owned();
    vec![line(first), line(&second)]
}

/// The width of the widest line, in pixels, roughly.
pub(super) fn width(lines: &[String]) -> f64 {
    // Dots are as wide as two characters.
    let count = |line: &String| line.chars().count() + line.matches('…').count();
    CHARACTER * lines.iter().map(count).max().unwrap_or(0) as f64
}

/// A name beside a chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Label {
    /// The top that it would have if it were alone.
    pub(super) wanted: f64,
    /// Its height.
    pub(super) height: f64,
}

/// Labels that touch each other.
struct Block {
    /// The index of its first label in the order from top to bottom.
    first: usize,
    /// The sum of the tops that its labels want for the block.
    wanted: f64,
    labels: usize,
    height: f64,
}

impl Block {
    fn top(&self, (low, high): (f64, f64)) -> f64 {
        (self.wanted / self.labels as f64).min(high - self.height).max(low)
    }
}

/// The tops of labels, moved as little as keeps them apart and between `low` and `high`. They
/// extend below `high` if there is too little room.
pub(super) fn apart(labels: &[Label], range: (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|&a, &b| labels[a].wanted.total_cmp(&labels[b].wanted));
    let mut blocks: Vec<Block> = Vec::new();
    for (first, &label) in order.iter().enumerate() {
        let Label { wanted, height } = labels[label];
        let mut block = Block { first, wanted, labels: 1, height };
        while let Some(above) =
            blocks.pop_if(|above| above.top(range) + above.height > block.top(range))
        {
            block = Block {
                first: above.first,
                wanted: above.wanted + block.wanted - block.labels as f64 * above.height,
                labels: above.labels + block.labels,
                height: above.height + block.height,
            };
        }
        blocks.push(block);
    }
    let mut tops = vec![0.0; labels.len()];
    for block in &blocks {
        let mut top = block.top(range);
        for &label in &order[block.first..block.first + block.labels] {
            tops[label] = top;
            top += labels[label].height;
        }
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_where_parameters_begin_and_keep_their_ends() {
        assert_eq!(wrapped("3lc:s=1.75", 16), ["3lc:s=1.75"]);
        assert_eq!(
            wrapped("topk:ratio=0.05,select=sampled", 16),
            ["topk:ratio=0.05,", "select=sampled"]
        );
        let schedule = "dgc:ratio=0.01 from ratio=0.25 over 0.2";
        assert_eq!(wrapped(schedule, 16), ["dgc:ratio=0.01", "…o=0.25 over 0.2"]);
        assert_eq!(wrapped(&"x".repeat(40), 10), ["x".repeat(10), "…".to_owned() + &"x".repeat(9)]);
        assert_eq!(wrapped("a\u{202e}", 16), ["a\\u{202e}"]);
    }

    #[test]
    fn labels_move_apart_about_the_places_they_want() {
        let tops = |wanted: &[f64]| {
            let labels: Vec<Label> =
                wanted.iter().map(|&wanted| Label { wanted, height: 10.0 }).collect();
            apart(&labels, (0.0, 100.0))
        };
        assert_eq!(tops(&[50.0, 20.0]), [50.0, 20.0]);
        assert_eq!(tops(&[50.0, 50.0, 50.0]), [40.0, 50.0, 60.0]);
        // At the ends of the range.
        assert_eq!(tops(&[0.0, 1.0]), [0.0, 10.0]);
        assert_eq!(tops(&[99.0, 99.0]), [80.0, 90.0]);
        assert_eq!(tops(&[]), [0.0; 0]);
    }
}
