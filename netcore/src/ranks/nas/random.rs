//! The suite's random numbers: x ← 5^13 x mod 2^46, of which x / 2^46 is the value. Any place of the sequence can be reached
//! at once, so that ranks can take parts of it.

/// 5^13.
const MULTIPLIER: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;

/// A place in a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed, after so many numbers.
    pub fn after(seed: u64, numbers: u64) -> Self {
        // Powers by squaring. Products are exact modulo 2^64, and so modulo 2^46.
        let (mut power, mut left, mut factor) = (1_u64, numbers, MULTIPLIER);
        while left > 0 {
            if left & 1 == 1 {
                power = power.wrapping_mul(factor) & MASK;
            }
            factor = factor.wrapping_mul(factor) & MASK;
            left >>= 1;
        }
        Self(seed.wrapping_mul(power) & MASK)
    }

    /// The next number, between 0 and 1.
    #[inline]
    pub fn draw(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1_u64 << 46) as f64;
        self.0 = MULTIPLIER.wrapping_mul(self.0) & MASK;
        self.0 as f64 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_goes_on_where_it_is_entered() {
        let mut random = Random::after(314_159_265, 0);
        let drawn: Vec<f64> = (0..1000).map(|_| random.draw()).collect();
        for place in [1, 2, 999] {
            assert_eq!(
                Random::after(314_159_265, place).draw().to_bits(),
                drawn[usize::try_from(place).unwrap()].to_bits()
            );
        }
        assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)));
    }
}
