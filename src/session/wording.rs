//! What a person does for a remedy on the command line of the next run.

use super::switches::Switch;
use crate::model::Remedy;

/// How a remedy is done with flags: `--ckpt`, `--batch 8`.
#[must_use]
pub fn in_flags(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Flip { switch, value } => match Switch::named(switch) {
            Some(named) if named.alone() == Some(&**value) => format!("--{switch}"),
            _ => format!("--{switch} {value}"),
        },
        Remedy::SmallerBatch { batch: 0 } => "a smaller --batch".to_owned(),
        Remedy::SmallerBatch { batch } => format!("--batch {batch}"),
        Remedy::EmptyCache => "torch.cuda.empty_cache()".to_owned(),
        Remedy::HigherLimit => "a higher --limit".to_owned(),
        Remedy::KeepNumbers => "loss.item() in place of the loss that is kept".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_told_as_a_flag() {
        for (remedy, flags) in [
            (Remedy::flip("ckpt", "on"), "--ckpt"),
            (Remedy::flip("amp", "bf16"), "--amp bf16"),
            (Remedy::SmallerBatch { batch: 8 }, "--batch 8"),
            (Remedy::SmallerBatch { batch: 0 }, "a smaller --batch"),
            (Remedy::HigherLimit, "a higher --limit"),
            (Remedy::flip("warp", "9"), "--warp 9"),
        ] {
            assert_eq!(in_flags(&remedy), flags);
        }
    }
}
