//! Tensors that a stream brings whole, gathered part by part.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::hasher::TensorHasher;
use crate::part::PART;
use crate::update::Added;
use crate::{Buffer, ElementType, Error, StateHash, Tensor};

/// A new tensor, or some rows of one.
#[derive(Debug)]
struct Piece {
    tensor: Tensor,
    hasher: TensorHasher,
    hash: StateHash,
    buffer: Buffer,
    /// Which parts have come.
    has: Vec<bool>,
}

/// All new tensors of an update.
#[derive(Debug)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    numbers: BTreeMap<(String, u64), usize>,
    bytes: u64,
    /// If parts are passed on and not gathered: the memory of the parts that are being decoded.
    passing: Option<Vec<Buffer>>,
}

/// Where a part of a piece goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartPlace {
    pub(crate) piece: usize,
    pub(crate) part: usize,
}

/// A part of a piece that a thread writes.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) element: ElementType,
    pub(crate) hasher: TensorHasher,
    /// The first element.
    pub(crate) first: usize,
    pub(crate) bytes: Mutex<&'a mut [u8]>,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), numbers: BTreeMap::new(), bytes: 0, passing: None }
    }

    /// Pieces whose parts are [passed on](Self::passed) as soon as they are decoded; the pieces
    /// have no elements in the end.
    pub(crate) fn passing() -> Self {
        Self { passing: Some(Vec::new()), ..Self::new() }
    }

    /// The number of the piece for this tensor, which is made if it is new. All pieces together
    /// hold at most `limit` bytes.
    pub(crate) fn open(&mut self, tensor: Tensor, limit: u64) -> Result<usize, Error> {
        let key = (tensor.name().to_owned(), tensor.rows().start);
        if let Some(&number) = self.numbers.get(&key) {
            if self.all[number].tensor != tensor {
                return Err(Error::Twice { name: key.0 });
            }
            return Ok(number);
        }
        self.bytes = self.bytes.saturating_add(tensor.byte_len() as u64);
        if self.bytes > limit {
            return Err(Error::TooLarge { limit });
        }
        let hasher = TensorHasher::new(&tensor);
        self.all.push(Piece {
            hash: hasher.existence(),
            hasher,
            buffer: Buffer::zeros(if self.passing.is_none() { tensor.byte_len() } else { 0 }),
            has: vec![false; tensor.elements().div_ceil(PART)],
            tensor,
        });
        self.numbers.insert(key, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    /// The bytes of all pieces, of which not all parts need have come.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether these are all of `tensors`, which are in order, and no others.
    pub(crate) fn are_like(&self, tensors: &[Tensor]) -> bool {
        let is_there = |piece: &Piece| {
            let found = tensors.binary_search_by(|tensor| tensor.key().cmp(&piece.tensor.key()));
            found.is_ok_and(|index| tensors[index] == piece.tensor)
        };
        self.all.len() == tensors.len() && self.all.iter().all(is_there)
    }

    pub(crate) fn add_hash(&mut self, number: usize, hash: StateHash) {
        self.all[number].hash += hash;
    }

    /// Notes that a part has come.
    pub(crate) fn claim(&mut self, place: PartPlace) -> Result<(), Error> {
        let piece = &mut self.all[place.piece];
        match piece.has.get_mut(place.part) {
            Some(has) if !*has => *has = true,
            Some(_) => return Err(Error::Twice { name: piece.tensor.name().to_owned() }),
            None => return Err(Error::Damaged("a record has parts behind the end of its tensor")),
        }
        Ok(())
    }

    /// The bytes of a part.
    pub(crate) fn bytes_at(&self, place: PartPlace) -> usize {
        let tensor = &self.all[place.piece].tensor;
        (tensor.elements() - place.part * PART).min(PART) * tensor.element().width()
    }

    /// A part that was decoded into the slot of this number, with its tensor and the first element.
    pub(crate) fn passed(&self, slot: usize, place: PartPlace) -> (&Tensor, usize, &[u8]) {
        let parts = self.passing.as_ref().expect("the parts are passed on");
        (&self.all[place.piece].tensor, place.part * PART, &parts[slot])
    }

    /// Different parts to write, in the order of `places`.
    pub(crate) fn slots(&mut self, places: &[PartPlace]) -> Vec<Slot<'_>> {
        let sizes: Vec<usize> = places.iter().map(|&place| self.bytes_at(place)).collect();
        if let Some(parts) = &mut self.passing {
            parts.resize_with(places.len().max(parts.len()), Buffer::default);
            parts.iter_mut().zip(sizes).for_each(|(part, size)| part.resize(size));
            let slots = parts.iter_mut().zip(places).map(|(part, place)| {
                let piece = &self.all[place.piece];
                let (element, hasher) = (piece.tensor.element(), piece.hasher);
                let bytes = Mutex::new(&mut part[..]);
                Slot { element, hasher, first: place.part * PART, bytes }
            });
            return slots.collect();
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&index| places[index]);
        let mut sorted = Vec::with_capacity(places.len());
        let (mut pieces, mut next) = (self.all.iter_mut(), 0);
        for wanted in order.chunk_by(|&one, &other| places[one].piece == places[other].piece) {
            let number = places[wanted[0]].piece;
            let piece = pieces.nth(number - next).expect("a claimed piece is there");
            next = number + 1;
            let (element, hasher) = (piece.tensor.element(), piece.hasher);
            let (mut parts, mut next) = (piece.buffer.chunks_mut(PART * element.width()), 0);
            for &index in wanted {
                let part = places[index].part;
                let bytes = parts.nth(part - next).expect("a claimed part is there");
                next = part + 1;
                let bytes = Mutex::new(bytes);
                sorted.push((index, Slot { element, hasher, first: part * PART, bytes }));
            }
        }
        sorted.sort_by_key(|(index, _)| *index);
        sorted.into_iter().map(|(_, slot)| slot).collect()
    }

    /// All tensors; rows that follow each other are joined.
    pub(crate) fn finish(self) -> Result<Vec<Added>, Error> {
        let mut all = self.all;
        all.sort_by(|a, b| a.tensor.key().cmp(&b.tensor.key()));
        let mut added: Vec<Added> = Vec::with_capacity(all.len());
        for piece in all {
            if piece.has.contains(&false) {
                return Err(Error::Damaged("parts of a tensor are missing"));
            }
            match added.last_mut() {
                Some(last) if last.tensor.name() == piece.tensor.name() => join(last, piece)?,
                _ => added.push(Added {
                    tensor: piece.tensor,
                    buffer: piece.buffer,
                    hash: piece.hash,
                }),
            }
        }
        Ok(added)
    }
}

/// Adds the next rows of a tensor.
fn join(tensor: &mut Added, next: Piece) -> Result<(), Error> {
    let (rows, more) = (tensor.tensor.rows(), next.tensor.rows());
    if !tensor.tensor.has_layout_of(&next.tensor) || rows.end != more.start {
        return Err(Error::Damaged("the rows of a tensor do not follow each other"));
    }
    let (element, shape) = (next.tensor.element(), next.tensor.shape());
    let name = next.tensor.name();
    tensor.tensor = Tensor::shard(name, element, shape, rows.start..more.end)?;
    tensor.buffer.extend(&next.buffer);
    tensor.hash += next.hash;
    Ok(())
}
