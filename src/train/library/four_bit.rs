//! Which products with a packed matrix bitsandbytes computes in one kernel, and for which it unpacks the matrix first.

use super::Libraries;
use vramlab_device::{DType, NF4_RUN};

/// Up to this many rows the one kernel is always used.
const FEW: usize = 4;
/// Beyond this many rows it is never used.
const MANY: usize = 1536;
/// Elements of a matrix below which unpacking costs more than it saves.
const SMALL: usize = 4 << 20;

impl Libraries {
    /// Whether the product of `m` rows with a packed matrix of (`n`, `k`) is one kernel that unpacks as it goes:
    /// `_gemm_4bit_use_custom_cuda` of bitsandbytes 0.50. The thresholds are those for Hopper; for other cards only the rule for
    /// few rows is here.
    pub(crate) const fn multiplies_packed(self, dtype: DType, [m, n, k]: [usize; 3]) -> bool {
        if m > MANY || !k.is_multiple_of(NF4_RUN) {
            return false;
        }
        if m <= FEW || !matches!(dtype, DType::F16 | DType::Bf16) || self.compute_capability != 90 {
            return m <= FEW || m < 8 && matches!(dtype, DType::F32);
        }
        let (blocks, sms) = (n.div_ceil(64), self.multiprocessors);
        if n * k < SMALL {
            return if 2 * k < n {
                m <= if 3 * blocks < sms { 512 } else { 320 }
            } else if 4 * blocks <= sms {
                m <= 32
            } else {
                2 * blocks <= sms && m <= 16
            };
        }
        if m < 8 {
            let (three_quarters, three_fifths) = (4 * blocks < 3 * sms, 5 * blocks < 3 * sms);
            let unpacks = k > n && three_quarters || k == n && three_quarters && !three_fifths;
            return !(m >= 6 && blocks >= 36 && unpacks);
        }
        if blocks >= 3 * sms {
            m <= 64
        } else if blocks >= 2 * sms {
            m <= 48
        } else if blocks >= sms {
            m <= 32
        } else {
            blocks >= sms / 2 && !(k >= n && 4 * blocks < 3 * sms) && m <= 16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row counts at which the answer of `_gemm_4bit_use_custom_cuda` for bf16 changes, on an H100 of 132 multiprocessors.
    #[test]
    fn few_rows_are_multiplied_packed() {
        let shapes: [([usize; 2], &[usize]); 13] = [
            ([64, 64], &[1, 33]),
            ([3072, 1024], &[1, 321]),
            ([2048, 512], &[1, 513]),
            ([1024, 3072], &[1, 33]),
            ([2048, 2048], &[1, 8]),
            ([4096, 4096], &[1, 8]),
            ([6144, 4096], &[1, 17]),
            ([14336, 4096], &[1, 33]),
            ([4096, 14336], &[1, 6]),
            ([28672, 8192], &[1, 65]),
            ([8192, 28672], &[1, 17]),
            ([2560, 2560], &[1, 8]),
            ([64, 72], &[]),
        ];
        for ([n, k], changes) in shapes {
            let packed = |m| m > 0 && Libraries::HOPPER.multiplies_packed(DType::Bf16, [m, n, k]);
            let ours: Vec<usize> = (1..1700).filter(|&m| packed(m) != packed(m - 1)).collect();
            assert_eq!(ours, changes, "{n} × {k}");
        }
    }
}
