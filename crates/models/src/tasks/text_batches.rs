//! Batches of text for recurrent models: the tokens of a worker at a step, and the tokens for
//! testing.
//!
//! The training text is cut into as many equal parts as there are workers, and each part into as
//! many equal streams as the batch has; remainders are not used. A step reads the next chunk of
//! each stream, as many tokens as the model is unrolled for, and predicts the tokens one position
//! later. When a stream has no whole chunk left, the epoch is over, and all streams restart from
//! their beginning.

use std::ops::Range;

use super::TaskConfig;
use crate::data::Text;
use crate::models::Chunk;

/// The training batches of one worker.
#[derive(Debug)]
pub(super) struct TextBatches<'a> {
    /// The worker's part of the text.
    part: &'a [u32],
    streams: usize,
    /// The length of a chunk.
    unroll: usize,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

/// The number of steps for `workers` with batches of `streams` to read a text of `tokens` tokens
/// once, in chunks of `unroll` tokens; 0 if the text is too short.
pub(super) fn steps_per_epoch(tokens: usize, workers: usize, streams: usize, unroll: usize) -> u64 {
    let stream = tokens / workers / streams;
    (stream.saturating_sub(1) / unroll) as u64
}

/// Refuses texts that are too short for training or evaluation.
pub(super) fn check(
    name: &str,
    text: &Text,
    config: &TaskConfig,
    unroll: usize,
) -> Result<(), String> {
    let &TaskConfig { workers, batch, .. } = config;
    let (tokens, unit) = (text.train.len(), text.unit);
    if steps_per_epoch(tokens, workers, batch, unroll) == 0 {
        return Err(format!(
            "the training text of '{name}' has {tokens} {unit}, but {workers} workers with {batch} streams each need \
             at least {} per stream; use fewer workers, a smaller batch or a longer text",
            unroll + 1
        ));
    }
    Ok(())
}

impl<'a> TextBatches<'a> {
    /// The batches of a worker. The text has a chunk and one more token for each stream of each
    /// worker.
    pub(super) fn new(
        text: &'a [u32],
        rank: usize,
        workers: usize,
        streams: usize,
        unroll: usize,
    ) -> Self {
        let size = text.len() / workers;
        let part = &text[rank * size..][..size];
        Self { part, streams, unroll, inputs: Vec::new(), targets: Vec::new() }
    }

    /// Tokens of a batch.
    pub(super) fn tokens(&self) -> usize {
        self.streams * self.unroll
    }

    /// Whether all streams start from their beginning with this step.
    pub(super) fn starts_epoch(&self, step: u64) -> bool {
        step.is_multiple_of(self.steps_per_epoch())
    }

    /// The length of a chunk.
    pub(super) fn unroll(&self) -> usize {
        self.unroll
    }

    fn steps_per_epoch(&self) -> u64 {
        steps_per_epoch(self.part.len(), 1, self.streams, self.unroll)
    }

    /// Loads the batch of a step.
    pub(super) fn load(&mut self, step: u64) {
        let size = self.part.len() / self.streams;
        let start = (step % self.steps_per_epoch()) as usize * self.unroll;
        self.inputs.clear();
        self.targets.clear();
        for time in start..start + self.unroll {
            for stream in self.part.chunks_exact(size).take(self.streams) {
                self.inputs.push(stream[time]);
                self.targets.push(stream[time + 1]);
            }
        }
    }

    /// The batch loaded last.
    pub(super) fn chunk(&self) -> Chunk<'_> {
        Chunk { inputs: &self.inputs, targets: &self.targets, streams: self.streams }
    }
}

/// The number of streams of the test text, for any length and number of workers.
const TEST_STREAMS: usize = 32;
/// Streams evaluated at a time, by one worker.
const TOGETHER: usize = 8;
/// The parts of an evaluation, to be divided among workers.
pub(super) const TEST_PARTS: usize = TEST_STREAMS / TOGETHER;

/// One part of the test text: some streams side by side. Each predicts a piece of the text. It
/// first reads the chunk of text before its piece. Before the beginning of the text it reads the
/// vocabulary's first symbol instead.
#[derive(Debug)]
pub(super) struct TestPart<'a> {
    text: &'a [u32],
    /// The length of a chunk.
    unroll: usize,
    /// The tokens each stream predicts.
    pieces: Vec<Range<usize>>,
}

impl<'a> TestPart<'a> {
    /// Part `part` of the predictions of the text's first `tokens` tokens after the very first.
    pub(super) fn new(text: &'a [u32], tokens: usize, part: usize, unroll: usize) -> Self {
        let size = tokens.div_ceil(TEST_STREAMS);
        let end = |stream: usize| 1 + (stream * size).min(tokens);
        let streams = part * TOGETHER..(part + 1) * TOGETHER;
        let pieces = streams.map(|stream| end(stream)..end(stream + 1));
        let pieces = pieces.filter(|piece| !piece.is_empty()).collect();
        Self { text, unroll, pieces }
    }

    /// The number of streams.
    pub(super) fn streams(&self) -> usize {
        self.pieces.len()
    }

    /// Calls `each` with the part's chunks in order, and with flags of the predictions that count.
    pub(super) fn for_each(&self, mut each: impl FnMut(Chunk<'_>, &[bool])) {
        let unroll = self.unroll;
        let longest = self.pieces.iter().map(Range::len).max().unwrap_or(0);
        if longest == 0 {
            return;
        }
        let (mut inputs, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for start in (0..unroll + longest).step_by(unroll) {
            inputs.clear();
            targets.clear();
            counts.clear();
            for time in start..(start + unroll).min(unroll + longest) {
                for piece in &self.pieces {
                    // Positions outside the text are read as the vocabulary's first symbol, and are
                    // not scored.
                    let target = (piece.start + time).checked_sub(unroll);
                    let known = |at: Option<usize>| at.and_then(|at| self.text.get(at)).copied();
                    inputs.push(known(target.and_then(|at| at.checked_sub(1))).unwrap_or(0));
                    targets.push(known(target).unwrap_or(0));
                    counts.push(target.is_some_and(|at| piece.contains(&at)));
                }
            }
            each(Chunk { inputs: &inputs, targets: &targets, streams: self.streams() }, &counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_read_on_and_begin_anew() {
        // Two workers with parts of 150; two streams of 75 each: two chunks and some left over.
        let text: Vec<u32> = (0..301).collect();
        assert_eq!(steps_per_epoch(301, 2, 2, 35), 2);
        let mut batches = TextBatches::new(&text, 1, 2, 2, 35);
        for (step, starts, first) in
            [(0, true, 150), (1, false, 185), (2, true, 150), (5, false, 185)]
        {
            batches.load(step);
            let Chunk { inputs, targets, streams } = batches.chunk();
            assert_eq!((batches.starts_epoch(step), streams, inputs.len()), (starts, 2, 70));
            assert_eq!(inputs[..4], [first, first + 75, first + 1, first + 76]);
            assert!(inputs.iter().zip(targets).all(|(input, target)| input + 1 == *target));
        }
    }

    #[test]
    fn a_stream_needs_a_chunk_and_one_token() {
        assert_eq!(steps_per_epoch(2 * 3 * 36, 2, 3, 35), 1);
        assert_eq!(steps_per_epoch(2 * 3 * 36 - 1, 2, 3, 35), 0);
        // The paper's: 5072443 characters, four workers, five streams.
        assert_eq!(steps_per_epoch(5_072_443, 4, 5, 35), 7_246);
        assert_eq!(steps_per_epoch(5_072_443, 4, 5, 100), 2_536);
    }

    #[test]
    fn every_test_token_is_predicted_once_from_the_one_before() {
        let text: Vec<u32> = (0..1000).collect();
        for (tokens, unroll) in [999, 500, 33, 32, 5, 1].into_iter().zip([35, 7, 35, 100, 1, 35]) {
            let mut seen = vec![0; 1000];
            for part in 0..TEST_PARTS {
                TestPart::new(&text, tokens, part, unroll).for_each(|chunk, counts| {
                    for ((input, target), _) in
                        chunk.inputs.iter().zip(chunk.targets).zip(counts).filter(|(_, c)| **c)
                    {
                        assert_eq!(input + 1, *target);
                        seen[*target as usize] += 1;
                    }
                });
            }
            let expected: Vec<i32> =
                (0..1000).map(|at| i32::from((1..=tokens).contains(&at))).collect();
            assert_eq!(seen, expected, "{tokens}");
        }
    }

    #[test]
    fn predictions_follow_a_chunk_of_context() {
        let text: Vec<u32> = (0..3200).collect();
        let part = TestPart::new(&text, 3199, 1, 35);
        let mut read = Vec::new();
        part.for_each(|chunk, counts| {
            let stream = chunk.inputs.iter().zip(counts).step_by(chunk.streams);
            read.extend(stream.map(|(&input, &counts)| (input, counts)));
        });
        // Stream 8 predicts 801 to 900.
        assert_eq!(part.streams(), 8);
        assert_eq!(read[0], (765, false));
        assert_eq!(read[34], (799, false));
        assert_eq!(read[35], (800, true));
        assert_eq!(read[134], (899, true));
        assert_eq!(read.len(), 135);
    }
}
