//! Which inputs PyTorch's attention kernels take on which GPU.
//!
//! The rules are those of PyTorch 2.11's `sdp_utils.cpp`; dropout changes none of them.

use crate::config::AttentionKernel;
use crate::error::TrainError;
use crate::library::Libraries;
use vramlab_device::DType;

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

/// Which heads of keys and values the heads of queries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeysOf {
    /// Each has its own.
    Each,
    /// Those of a group share one (`enable_gqa`).
    Group,
    /// All have the same one, and the call does not say so: only matrix products repeat it.
    All,
}

impl KeysOf {
    /// Heads of queries in groups of this many.
    pub const fn group(heads: usize) -> Self {
        if heads > 1 { Self::Group } else { Self::Each }
    }
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs {
    pub dtype: DType,
    pub head_size: usize,
    /// Elements of a head of values.
    pub value_size: usize,
    /// Positions of the keys.
    pub keys: usize,
    /// Which heads of keys and values the heads of queries have.
    pub keys_of: KeysOf,
    /// A mask is added to scores.
    pub masked: bool,
    pub differentiates: bool,
    pub libraries: Libraries,
}

impl Inputs {
    const fn half(self) -> bool {
        matches!(self.dtype, DType::F16 | DType::Bf16)
    }

    /// The types of the 16-bit kernels: bf16 came with Ampere.
    fn low_precision(self) -> bool {
        self.dtype == DType::F16 || (self.dtype == DType::Bf16 && self.libraries.compute_capability >= 80)
    }
}

impl Backend {
    /// The kernels in the order in which PyTorch tries them.
    const fn order(compute_capability: u32) -> [Self; 4] {
        match compute_capability {
            // Data-centre Hopper and Blackwell, with cuDNN newer than 9.15.
            90 | 100 => [Self::CuDnn, Self::Flash, Self::Efficient, Self::Math],
            _ => [Self::Flash, Self::Efficient, Self::Math, Self::CuDnn],
        }
    }

    /// Why the kernel does not take the inputs, if it does not.
    fn refuses(self, inputs: Inputs) -> Option<String> {
        let Inputs { dtype, head_size, value_size, libraries, .. } = inputs;
        let capability = libraries.compute_capability;
        let when = |refused: bool, why: String| refused.then_some(why);
        let since = |first: u32| {
            let dot = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
            when(
                capability < first,
                format!("needs compute capability {}, this card has {}", dot(first), dot(capability)),
            )
        };
        let sixteen_bits = || {
            let known = if capability >= 80 { "Half or BFloat16" } else { "Half on this card" };
            when(
                !inputs.low_precision(),
                format!("takes query, key and value in {known}, not in {}", in_pytorch(dtype)),
            )
        };
        let heads = |limit: usize, multiple: usize| {
            let taken = |size: &usize| *size <= limit && size.is_multiple_of(multiple);
            let multiples = if multiple > 1 { format!(" in multiples of {multiple}") } else { String::new() };
            let other = [head_size, value_size].into_iter().find(|size| !taken(size));
            other.map(|size| format!("takes heads up to {limit}{multiples}, not {size}"))
        };
        if inputs.keys_of == KeysOf::All && self != Self::Math {
            return Some("takes no single head of keys and values for all heads of queries".to_owned());
        }
        match self {
            Self::Math => None,
            Self::CuDnn => {
                let limit = if capability == 90 { 256 } else { 128 };
                let one_key = || when(inputs.keys <= 1, "takes more than one position".to_owned());
                let rocm = when(libraries.rocm(), "is not there on a card of AMD's".to_owned());
                rocm.or_else(|| since(80)).or_else(sixteen_bits).or_else(|| heads(limit, 8)).or_else(one_key)
            }
            Self::Flash => {
                // Cards with less shared memory have no backward kernel for these heads.
                let unsupported = matches!(capability, 86..=89 | 120 | 121)
                    && (193..=224).contains(&head_size)
                    && inputs.differentiates;
                let backward = || when(unsupported, format!("has no backward for heads of {head_size} on this card"));
                let mask = || when(inputs.masked, "takes no mask".to_owned());
                let values = || {
                    when(value_size != head_size, format!("takes no values of {value_size} beside keys of {head_size}"))
                };
                since(80)
                    .or_else(sixteen_bits)
                    .or_else(|| heads(256, 1))
                    .or_else(values)
                    .or_else(backward)
                    .or_else(mask)
            }
            Self::Efficient => {
                let tensor_cores = capability >= 80 || (capability >= 70 && inputs.half());
                let alignment = match (tensor_cores, inputs.half()) {
                    (true, true) => 8,
                    (true, false) => 4,
                    (false, _) => 1,
                };
                let known = dtype == DType::F32 || inputs.low_precision();
                let types = || when(!known, format!("does not take {} on this card", in_pytorch(dtype)));
                let shared = inputs.keys_of == KeysOf::Group;
                let grouped = || when(shared, "takes as many heads of keys and values as of queries".to_owned());
                let unaligned = || [head_size, value_size].into_iter().find(|size| !size.is_multiple_of(alignment));
                let heads = || unaligned().map(|size| format!("takes heads in multiples of {alignment}, not {size}"));
                since(50).or_else(types).or_else(heads).or_else(grouped)
            }
        }
    }

    /// The kernel for a value of the switch, if that names one.
    pub const fn asked(kernel: AttentionKernel) -> Option<Self> {
        match kernel {
            AttentionKernel::Auto => None,
            AttentionKernel::Math => Some(Self::Math),
            AttentionKernel::Efficient => Some(Self::Efficient),
            AttentionKernel::Flash => Some(Self::Flash),
            AttentionKernel::CuDnn => Some(Self::CuDnn),
            AttentionKernel::Eager => None,
        }
    }

    /// The chosen kernel, or PyTorch's own choice.
    ///
    /// # Errors
    /// The chosen kernel does not take the inputs: PyTorch raises an error.
    pub fn choose(kernel: AttentionKernel, inputs: Inputs) -> Result<Self, TrainError> {
        if kernel == AttentionKernel::Eager {
            let why = "is transformers' own, and this model calls scaled_dot_product_attention".to_owned();
            return Err(TrainError::NoKernel { kernel: "eager attention", why });
        }
        if let Some(asked) = Self::asked(kernel) {
            let refused = |why| Err(TrainError::NoKernel { kernel: asked.label(), why });
            return asked.refuses(inputs).map_or(Ok(asked), refused);
        }
        let order = Self::order(inputs.libraries.compute_capability);
        Ok(order.into_iter().find(|backend| backend.refuses(inputs).is_none()).unwrap_or(Self::Math))
    }

    /// The kernel as a value of the switch.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CuDnn => "cudnn",
            Self::Flash => "flash",
            Self::Efficient => "efficient",
            Self::Math => "math",
        }
    }

    /// The kernel's name on screens.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CuDnn => "cuDNN attention",
            Self::Flash => "flash attention",
            Self::Efficient => "memory-efficient attention",
            Self::Math => "math attention",
        }
    }
}

/// The type as PyTorch's messages name it.
const fn in_pytorch(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "Double",
        DType::F32 => "Float",
        DType::F16 => "Half",
        DType::Bf16 => "BFloat16",
        DType::I64 => "Long",
        DType::I32 => "Int",
        DType::U8 => "Byte",
        DType::E4M3 => "Float8_e4m3fn",
        DType::E5M2 => "Float8_e5m2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(dtype: DType, head_size: usize, compute_capability: u32) -> Inputs {
        let libraries = Libraries { compute_capability, ..Libraries::HOPPER };
        Inputs {
            dtype,
            head_size,
            value_size: head_size,
            keys: 64,
            keys_of: KeysOf::Each,
            masked: false,
            differentiates: true,
            libraries,
        }
    }

    fn auto(dtype: DType, head_size: usize, capability: u32) -> Backend {
        Backend::choose(AttentionKernel::Auto, inputs(dtype, head_size, capability)).unwrap()
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
            (DType::Bf16, 64, 94, Backend::Flash),
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

    /// The answers of PyTorch 2.11's `sdp_utils.cpp` for every kernel, type, card and head: a chosen kernel runs or raises, and
    /// PyTorch's own choice is always one that runs.
    #[test]
    fn a_kernel_that_can_not_take_the_inputs_raises() {
        use AttentionKernel::{CuDnn, Efficient, Flash, Math};
        let runs = |kernel, dtype, head_size, capability| {
            Backend::choose(kernel, inputs(dtype, head_size, capability))
                .is_ok_and(|b| Some(b) == Backend::asked(kernel))
        };
        let table = [
            // dtype, card, [math, efficient, flash, cuDNN] with heads of 64.
            (DType::F32, 90, [true, true, false, false]),
            (DType::F32, 80, [true, true, false, false]),
            (DType::F32, 75, [true, true, false, false]),
            (DType::F16, 90, [true, true, true, true]),
            (DType::F16, 86, [true, true, true, true]),
            (DType::F16, 75, [true, true, false, false]),
            (DType::Bf16, 90, [true, true, true, true]),
            (DType::Bf16, 89, [true, true, true, true]),
            (DType::Bf16, 75, [true, false, false, false]),
            (DType::F64, 90, [true, false, false, false]),
            (DType::Bf16, 94, [true, true, true, false]),
        ];
        for (dtype, capability, expected) in table {
            let found = [Math, Efficient, Flash, CuDnn].map(|kernel| runs(kernel, dtype, 64, capability));
            assert_eq!(found, expected, "{dtype:?} on sm_{capability}");
            assert!(Backend::choose(AttentionKernel::Auto, inputs(dtype, 64, capability)).is_ok());
        }
        let heads =
            [(12, [true, false, true, false]), (264, [true, true, false, false]), (200, [true, true, true, true])];
        for (head_size, expected) in heads {
            let found = [Math, Efficient, Flash, CuDnn].map(|kernel| runs(kernel, DType::Bf16, head_size, 90));
            assert_eq!(found, expected, "heads of {head_size}");
        }
        let one_key = Inputs { keys: 1, ..inputs(DType::Bf16, 64, 90) };
        assert!(Backend::choose(CuDnn, one_key).is_err());
        assert_eq!(Backend::choose(AttentionKernel::Auto, one_key).unwrap(), Backend::Flash);
    }

    /// PyTorch's fused kernels want as many heads of keys as of queries, or to be told of groups.
    #[test]
    fn only_matrix_products_repeat_a_single_head_of_keys() {
        let single = Inputs { keys_of: KeysOf::All, ..inputs(DType::Bf16, 64, 90) };
        assert_eq!(Backend::choose(AttentionKernel::Auto, single).unwrap(), Backend::Math);
        for kernel in [AttentionKernel::CuDnn, AttentionKernel::Flash, AttentionKernel::Efficient] {
            assert!(Backend::choose(kernel, single).is_err(), "{kernel:?}");
        }
    }

    #[test]
    fn flash_attention_takes_no_mask() {
        for (capability, expected) in [(90, Backend::CuDnn), (89, Backend::Efficient), (80, Backend::Efficient)] {
            let masked = Inputs { masked: true, ..inputs(DType::Bf16, 64, capability) };
            assert_eq!(Backend::choose(AttentionKernel::Auto, masked).unwrap(), expected, "sm_{capability}");
            assert!(Backend::choose(AttentionKernel::Flash, masked).is_err());
        }
    }

    #[test]
    fn the_refusal_is_pytorchs_and_says_why() {
        let refusal = |kernel, inputs| Backend::choose(kernel, inputs).unwrap_err().to_string();
        assert_eq!(
            refusal(AttentionKernel::Flash, inputs(DType::F32, 64, 90)),
            "No available kernel. Aborting execution. flash attention takes query, key and value in Half or BFloat16, \
             not in Float"
        );
        let old = refusal(AttentionKernel::CuDnn, inputs(DType::F16, 64, 75));
        assert!(old.ends_with("cuDNN attention needs compute capability 8.0, this card has 7.5"), "{old}");
    }
}
