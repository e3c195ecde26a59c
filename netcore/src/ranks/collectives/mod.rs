//! Collective operations in terms of messages between two ranks. The choice by size and number of ranks follows R. Thakur,
//! R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH" (2005): few messages for short
//! buffers, few bytes for long ones. The root is rank 0, and sums are of `f64`.

pub mod all;
pub mod alltoall;
pub mod blocks;
pub mod halving;
pub mod ring;
pub mod rooted;

#[cfg(test)]
pub mod tests;
