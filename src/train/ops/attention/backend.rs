//! Which of PyTorch's attention kernels takes which inputs on which GPU.
//!
//! The rules are those of PyTorch 2.11's `sdp_utils.cpp`, for inputs without a mask and without dropout.

use crate::device::DType;
use crate::train::config::AttentionKernel;
use crate::train::library::Libraries;

/// PyTorch's attention kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// cuDNN's fused attention.
    CuDnn,
    /// Flash attention; heads are padded to a multiple of 8.
    Flash,
    /// Memory-efficient attention.
    Efficient,
    /// Matrix products and a softmax of rows × rows.
    Math,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs {
    pub dtype: DType,
    pub head_size: usize,
    /// Positions that keys have.
    pub keys: usize,
    pub differentiates: bool,
    pub libraries: Libraries,
}

impl Inputs {
    const fn half(self) -> bool {
        matches!(self.dtype, DType::F16 | DType::Bf16)
    }

    /// The types of the kernels for 16 bit: bf16 came with Ampere.
    fn low_precision(self) -> bool {
        self.dtype == DType::F16 || (self.dtype == DType::Bf16 && self.libraries.compute_capability >= 80)
    }
}

impl Backend {
    /// The kernel that PyTorch tries first, second, …
    const fn order(compute_capability: u32) -> [Self; 4] {
        match compute_capability {
            // Data-centre Hopper and Blackwell, with a cuDNN newer than 9.15.
            90 | 100 => [Self::CuDnn, Self::Flash, Self::Efficient, Self::Math],
            _ => [Self::Flash, Self::Efficient, Self::Math, Self::CuDnn],
        }
    }

    /// Whether the kernel takes the inputs.
    fn takes(self, inputs: Inputs) -> bool {
        let Inputs { head_size, libraries, .. } = inputs;
        let capability = libraries.compute_capability;
        match self {
            Self::Math => true,
            Self::CuDnn => {
                let limit = if capability == 90 { 256 } else { 128 };
                let shape = head_size <= limit && head_size.is_multiple_of(8) && inputs.keys > 1;
                inputs.low_precision() && capability >= 80 && shape
            }
            Self::Flash => {
                // Cards with less shared memory have no backward kernel for these.
                let unsupported = matches!(capability, 86..=89 | 120 | 121)
                    && (193..=224).contains(&head_size)
                    && inputs.differentiates;
                inputs.low_precision() && capability >= 80 && head_size <= 256 && !unsupported
            }
            Self::Efficient => {
                let tensor_cores = capability >= 80 || (capability >= 70 && inputs.half());
                let alignment = match (tensor_cores, inputs.half()) {
                    (true, true) => 8,
                    (true, false) => 4,
                    (false, _) => 1,
                };
                let known = inputs.dtype == DType::F32 || inputs.low_precision();
                known && capability >= 50 && head_size.is_multiple_of(alignment)
            }
        }
    }

    /// The kernel that was asked for.
    pub const fn asked(kernel: AttentionKernel) -> Option<Self> {
        match kernel {
            AttentionKernel::Auto => None,
            AttentionKernel::Math => Some(Self::Math),
            AttentionKernel::Efficient => Some(Self::Efficient),
            AttentionKernel::Flash => Some(Self::Flash),
            AttentionKernel::CuDnn => Some(Self::CuDnn),
        }
    }

    /// The kernel asked for, or PyTorch's own choice; false where the one asked for does not take the inputs.
    pub fn choose(kernel: AttentionKernel, inputs: Inputs) -> (Self, bool) {
        if let Some(asked) = Self::asked(kernel)
            && asked.takes(inputs)
        {
            return (asked, true);
        }
        let order = Self::order(inputs.libraries.compute_capability);
        let first = order.into_iter().find(|backend| backend.takes(inputs)).unwrap_or(Self::Math);
        (first, kernel == AttentionKernel::Auto)
    }

    /// The name on screens.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CuDnn => "cuDNN attention",
            Self::Flash => "flash attention",
            Self::Efficient => "memory-efficient attention",
            Self::Math => "math attention",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(dtype: DType, head_size: usize, compute_capability: u32) -> Inputs {
        let libraries = Libraries { compute_capability, ..Libraries::HOPPER };
        Inputs { dtype, head_size, keys: 64, differentiates: true, libraries }
    }

    fn auto(dtype: DType, head_size: usize, capability: u32) -> Backend {
        Backend::choose(AttentionKernel::Auto, inputs(dtype, head_size, capability)).0
    }

    #[test]
    fn each_card_has_its_first_choice() {
        for (dtype, head_size, capability, expected) in [
            (DType::Bf16, 64, 90, Backend::CuDnn),
            (DType::Bf16, 64, 100, Backend::CuDnn),
            (DType::Bf16, 192, 100, Backend::Flash),
            (DType::Bf16, 10, 90, Backend::Flash),
            (DType::F16, 264, 90, Backend::Efficient),
            (DType::F16, 265, 90, Backend::Math),
            (DType::Bf16, 64, 80, Backend::Flash),
            (DType::Bf16, 200, 86, Backend::Efficient),
            (DType::Bf16, 200, 80, Backend::Flash),
            (DType::F16, 64, 75, Backend::Efficient),
            (DType::F16, 12, 75, Backend::Math),
            (DType::Bf16, 64, 75, Backend::Math),
            (DType::F32, 64, 90, Backend::Efficient),
            (DType::F32, 10, 90, Backend::Math),
            (DType::F32, 10, 75, Backend::Efficient),
            (DType::F64, 64, 90, Backend::Math),
        ] {
            assert_eq!(auto(dtype, head_size, capability), expected, "{dtype:?} {head_size} sm_{capability}");
        }
    }

    #[test]
    fn a_kernel_that_can_not_take_the_inputs_gives_way() {
        let f32 = inputs(DType::F32, 64, 90);
        assert_eq!(Backend::choose(AttentionKernel::Flash, f32), (Backend::Efficient, false));
        assert_eq!(Backend::choose(AttentionKernel::Math, f32), (Backend::Math, true));
        let one_key = Inputs { keys: 1, ..inputs(DType::Bf16, 64, 90) };
        assert_eq!(Backend::choose(AttentionKernel::CuDnn, one_key), (Backend::Flash, false));
    }
}
