//! Half precision and back, without branches, so that loops over it become vector instructions.

use half::{bf16, f16};

/// Numbers of half precision.
pub(crate) trait Half: Copy {
    /// The same number.
    fn wide(self) -> f32;
    /// The nearest number, of two the even one.
    fn narrow(x: f32) -> Self;
}

impl Half for f16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        /// 2^112, by which the exponent is off once its bits are in f32's place.
        const SHIFT: f32 = f32::from_bits((127 + 112) << 23);
        const INFINITE: u32 = 0x7c00 << 13;
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7fff) << 13;
        let finite = (f32::from_bits(magnitude) * SHIFT).to_bits();
        let wide = if magnitude >= INFINITE {
            magnitude | f32::INFINITY.to_bits()
        } else {
            finite
        };
        f32::from_bits(wide | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        /// The last place of a half is that of a number below 2^-14.
        const SMALL: f32 = 0.5;
        const LEAST: u32 = (127 - 14) << 23;
        const BEYOND: u32 = (127 + 16) << 23;
        let bits = x.to_bits();
        let magnitude = bits & !(1 << 31);
        let small = (f32::from_bits(magnitude) + SMALL)
            .to_bits()
            .wrapping_sub(SMALL.to_bits());
        let odd = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        let beyond = if magnitude > f32::INFINITY.to_bits() {
            0x7e00
        } else {
            0x7c00
        };
        let narrow = if magnitude < LEAST { small } else { normal };
        let narrow = if magnitude >= BEYOND { beyond } else { narrow };
        f16::from_bits((narrow | (bits & (1 << 31)) >> 16) as u16)
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        let bits = x.to_bits();
        let odd = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + odd);
        let narrow = if x.is_nan() {
            bits | 0x40_0000
        } else {
            rounded
        };
        bf16::from_bits((narrow >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    //! Oracle: the crate `half`.

    use super::*;

    #[test]
    fn halves_are_those_of_the_crate() {
        let step = if cfg!(miri) { 1_009 } else { 1 };
        for bits in (0..=u16::MAX).step_by(step) {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(half.wide(), half.to_f32()), "{bits:x}");
            assert!(same(brain.wide(), brain.to_f32()), "{bits:x}");
        }
        // Those between two halves, and their neighbours, as well as any others.
        let between = (0..=u16::MAX).step_by(step).flat_map(|bits| {
            let middle = f16::from_bits(bits).to_f32().to_bits() | 0x1000;
            let brain = u32::from(bits) << 16 | 0x8000;
            [middle, brain].map(|bits| [bits - 1, bits, bits.wrapping_add(1)])
        });
        let any = (0..=u32::MAX).step_by(100_003 * step);
        for bits in between.flatten().chain(any) {
            let x = f32::from_bits(bits);
            let (half, brain) = (f16::from_f32(x), bf16::from_f32(x));
            let (own, own_brain) = (f16::narrow(x), bf16::narrow(x));
            assert_eq!(own.is_nan(), x.is_nan());
            assert!(
                own == half && own.to_bits() == half.to_bits() || x.is_nan(),
                "{x:e}"
            );
            assert_eq!(own_brain.is_nan(), x.is_nan());
            let same = own_brain.to_bits() == brain.to_bits();
            assert!(same || x.is_nan(), "{x:e}");
        }
    }
}
