//! Parts: up to 2^20 successive elements of a tensor, coded alone.
