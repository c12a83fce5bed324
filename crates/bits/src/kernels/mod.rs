//! Vector kernels: loops over slices that run at memory speed.
//!
//! A kernel is a safe function, written once with the macro `kernel!` and compiled for several
//! instruction sets; at run time it uses the widest that the processor has. Each set gives the bits
//! of a plain loop, which tests compare it with. Kernels that decode are elementwise and multiply
//! before they add, without fusing. Kernels that sum use the same number of lanes with every set.
//!
//! Only `chosen`, `levels`, `prefetch`, `room` and `tagged` have `unsafe` code: writes into
//! reserved capacity, a conversion of numbers in range, a hint to the processor, and writes past
//! the caches.

mod append;
mod axpy;
mod between;
mod bins;
mod block_scaled;
mod changed;
#[allow(unsafe_code)]
mod chosen;
mod class_lists;
mod class_sizes;
mod classes;
mod codebook;
mod codes;
mod compact;
mod convert;
mod copy;
mod digits;
mod dispatch;
mod draw;
mod gaps;
mod hadamard;
mod hash;
mod int8;
pub(crate) mod level;
#[allow(unsafe_code)]
mod levels;
mod lookups;
mod mean;
mod minifloat;
mod natural;
mod nibbles;
mod octaves;
mod ones;
mod order;
mod pairs;
mod philox;
mod planes;
#[allow(unsafe_code)]
mod prefetch;
mod product;
mod reduce;
#[allow(unsafe_code)]
mod room;
mod rotation;
mod runs;
#[cfg(test)]
mod samples;
mod separate;
mod sign;
mod single_bits;
mod spread;
mod state_hash;
mod states;
mod table;
#[allow(unsafe_code)]
mod tagged;
mod ternary;
mod thin;
mod truncate;
mod uniform;
mod width;
mod zero_run;
mod zigzag;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use dispatch::{by_width, cases, kernel};

// A test reads the names of the kernels from these lines; do not break them.
pub use append::{bf16_fill, f16_fill, f32_fill};
pub use axpy::{accumulate, accumulate_to, add_limited, add_scaled, scale};
pub use between::values_between;
pub use bins::{Near, bin_maxima, reaching};
pub use block_scaled::{BlockScaled, blocks_add, blocks_residual, max_without_sign};
pub use changed::{changed, scatter};
pub use class_lists::{BEHIND, class_bits, class_join, class_split};
pub use class_sizes::class_sizes;
pub use classes::{Ranked, class_counts, class_places, class_ranks};
pub use codebook::{Codebook, few_numbers_add, nearest_residual, numbers_add};
pub(crate) use codes::pack_words;
pub use codes::{ShortCodes, join_byte_codes, join_codes, join_entries, join_words};
pub use compact::{Side, compact_beyond, count_above};
pub use convert::{bf16_add, bf16_to_f32, f16_add, f16_to_f32, f32_add, f32_to_bf16, f32_to_f16};
pub use copy::copy;
pub(crate) use digits::{add_digits, take_digits};
pub use draw::{drawn, sum_up_to};
pub(crate) use gaps::{JOINED, Place, join_gaps, ones_of_gaps, read_gaps};
pub use hadamard::{hadamard, limits_reached, rotate, rotate_back};
pub use hash::{columns_and_signs, hashed};
pub use int8::{int8_add, int8_levels, int8_residual};
pub use levels::{Levels, levels_add, levels_off, stochastic_levels};
pub(crate) use lookups::{LookUp, Several, Singles, TABLE_BITS};
pub(crate) use lookups::{look_up_bytes, look_up_pairs, look_up_singles, look_up_sixes};
pub use mean::{f32_mean, f32_read};
pub use natural::{natural_add, natural_residual, negative_zeros};
pub use nibbles::{has_empty_nibble, pack_nibbles, unpack_nibbles};
pub use octaves::{CLASSES, Octaves};
pub use ones::ones;
pub use order::{median_of_five, middle, smaller_first};
pub use pairs::{byte_range, pair_near};
pub use philox::philox4x32;
pub use planes::{join_2, join_4, join_8, split_2, split_4, split_8};
pub use prefetch::prefetch;
pub use product::add_product;
pub use reduce::{SignSums, abs_max_bits, abs_max_of_sum, inner_product, max_byte, moments};
pub use reduce::{has_byte, max_symbol, occurrences};
pub use reduce::{sum_of_magnitudes, sum_of_squares, sums_by_sign};
pub use room::Room;
pub use rotation::{add_flipped, flip_to, signed_ones};
pub use runs::{RUN, Runs, add_runs, read_runs};
pub use separate::{put_back, separate};
pub use sign::{sign_add, sign_bits, sign_residual, signs};
pub use single_bits::{pack_bits, unpack_bits};
pub use spread::{SHARING, spread};
pub use state_hash::{ChangedWords, state_change, state_hash, state_term};
pub(crate) use states::{Entries, Entry, Transition, decode_states, encode_states};
pub use table::{Table, looked_up, stochastic_entries};
pub use tagged::{TAGS, pack_tagged, pack_tags, tagged_len, unpack_tagged, unpack_tags};
pub use ternary::{stochastic_ternary, ternary_add, ternary_residual};
pub use thin::{times_thin, transposed_times_thin};
pub use truncate::{Cuts, truncate_residual, truncated_add, truncated_valid};
pub use uniform::{Bins, bin_of, extremes, middle_add, middle_off};
pub use width::{narrow, widen};
pub(crate) use zero_run::{above, encode_runs, expanded_len};
pub use zigzag::{add_zigzags, zigzags};
