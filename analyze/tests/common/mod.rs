//! Shared by the simulations.
#![allow(dead_code, reason = "each simulation uses some")]

use chacha20::ChaCha8Rng;
use rand::RngExt;

/// Whether to simulate as much as the tables of the documentation need.
pub fn is_full() -> bool {
    std::env::var_os("FULL").is_some()
}

/// A standard normal value (Box and Muller, Annals of Mathematical Statistics 29, 1958).
pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}
