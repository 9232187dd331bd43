//! What the decoders take and what they say of the rest: each line is an input and the verdict on it.

mod attributes;
mod bytes;
mod data;
mod place;
mod verdict;
