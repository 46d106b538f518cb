//! How a person applies a remedy on the command line or in a program.

use super::switches::Switch;
use vramlab_allocator::TorchVersion;
use vramlab_allocator::units::Bytes;
use vramlab_model::{Remedy, RunSettings};

/// A remedy as flags: `--ckpt`, `--batch 8`.
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
        Remedy::KeepNumbers | Remedy::Detach | Remedy::LetGo | Remedy::BreakCycles | Remedy::ChooseGpu => {
            in_program(remedy, TorchVersion::default())
        }
    }
}

/// A remedy as a change of somebody's own program, in lines of PyTorch from version `torch` on, without our flags.
#[must_use]
pub fn in_program(remedy: &Remedy, torch: TorchVersion) -> String {
    let line = match remedy {
        Remedy::Flip { switch, value } => match (&**switch, &**value) {
            ("alloc-conf", value) => return format!("{}={value}", torch.settings_variable()),
            ("ckpt", value) => match value.strip_prefix("every:") {
                Some(step) => return format!("torch.utils.checkpoint.checkpoint() around one block in {step}"),
                None => "torch.utils.checkpoint.checkpoint() around each block",
            },
            ("amp", "fp16") => "torch.autocast(\"cuda\", torch.float16)",
            ("amp", _) => "torch.autocast(\"cuda\", torch.bfloat16)",
            ("accum", value) => return format!("{value} micro-batches a step, their gradients accumulated"),
            ("opt", "muon") => "torch.optim.Muon for the matrices of hidden layers",
            ("opt", "adamw_8bit") => "bitsandbytes.optim.AdamW8bit",
            ("opt", "paged_adamw_8bit") => "bitsandbytes.optim.PagedAdamW8bit",
            ("opt", "paged_adamw_32bit") => "bitsandbytes.optim.PagedAdamW32bit",
            ("opt", "lion_32bit") => "bitsandbytes.optim.Lion32bit",
            ("opt", "lion_8bit") => "bitsandbytes.optim.Lion8bit",
            ("opt", "paged_lion_32bit") => "bitsandbytes.optim.PagedLion32bit",
            ("opt", "paged_lion_8bit") => "bitsandbytes.optim.PagedLion8bit",
            ("opt", value) => return format!("an optimizer with less state ({value})"),
            ("offload", "optimizer") => "the optimizer's state in host memory",
            ("offload", "parameters") => "parameters in host memory, but for the layer that runs",
            ("offload", "parameters+activations") => {
                "parameters in host memory, and torch.autograd.graph.save_on_cpu()"
            }
            ("offload", _) => "torch.autograd.graph.save_on_cpu()",
            ("zero-grad", _) => "zero_grad(set_to_none=True)",
            ("drop-output", _) => "del output before loss.backward()",
            ("retain", _) => "loss.item() instead of the loss",
            (switch, value) => {
                return format!("{} {value}", Switch::named(switch).map_or(switch, |named| named.label()));
            }
        },
        Remedy::SmallerBatch { batch: 0 } => "a smaller batch",
        Remedy::SmallerBatch { batch } => return format!("batch {batch}"),
        Remedy::EmptyCache => "torch.cuda.empty_cache()",
        Remedy::HigherLimit => "a higher limit",
        Remedy::KeepNumbers => "keep loss.item() instead of the loss",
        Remedy::Detach => "keep x.detach(), or x.item(), instead of x",
        Remedy::BreakCycles => "break the cycle (weakref, del), or call gc.collect() every few steps",
        Remedy::ChooseGpu => {
            "torch.cuda.set_device(local_rank) before anything uses CUDA; torch.load(…, map_location=\"cpu\")"
        }
        Remedy::LetGo => "drop what the list or cache no longer needs, or bound it",
    };
    line.to_owned()
}

/// The flags that set the switches to these values. Usual values are left out, unless they depend on another switch or
/// on `others` that are given too. `limit` is the exact number of bytes, because the switch's value is rounded for
/// display.
#[must_use]
pub fn as_flags(settings: &RunSettings, limit: Option<Bytes>, others: &[String]) -> Vec<String> {
    let fused = settings.get("fuse").is_some_and(|fuse| &*fuse.value != "off");
    let mut words = Vec::new();
    for switch in Switch::all() {
        let Some(setting) = settings.get(switch.word()) else { continue };
        let implied = match switch.word() {
            "opt-form" => fused,
            "attention-mask" => setting.idle.is_none() && others.iter().any(|word| word == "--lengths"),
            _ => false,
        };
        if switch.usual().is_some_and(|usual| usual == *setting.value) && !implied {
            continue;
        }
        let value = match (switch.word(), limit) {
            ("limit", Some(limit)) if !setting.value.contains('%') => exact(limit),
            ("limit", _) => setting.value.replace(' ', ""),
            _ => setting.value.to_string(),
        };
        match switch.alone() {
            Some(alone) if alone == value => words.push(format!("--{}", switch.word())),
            Some(_) => words.push(format!("--{}={value}", switch.word())),
            None => words.extend([format!("--{}", switch.word()), value]),
        }
    }
    words
}

/// A text that reads as exactly this size again.
fn exact(bytes: Bytes) -> String {
    match bytes.get() {
        n if n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_model::Setting;

    fn standing(values: &[(&str, &str)]) -> RunSettings {
        let setting = |(switch, value): &(&str, &str)| Setting {
            switch: (*switch).into(),
            value: (*value).into(),
            wanted: None,
            idle: None,
        };
        RunSettings(values.iter().map(setting).collect())
    }

    #[test]
    fn switches_are_given_as_they_stand_and_usual_ones_are_left_out() {
        let settings = standing(&[
            ("amp", "bf16"),
            ("ckpt", "on"),
            ("accum", "1"),
            ("opt", "adamw"),
            ("batch", "8"),
            ("limit", "1.18 MiB"),
            ("alloc-conf", "expandable_segments:True"),
        ]);
        let words = as_flags(&settings, Some(Bytes(1_234_567)), &[]);
        assert_eq!(
            words.join(" "),
            "--amp bf16 --ckpt --batch 8 --limit 1234567 --alloc-conf expandable_segments:True"
        );
        assert_eq!(as_flags(&standing(&[("limit", "50 %")]), Some(Bytes(5)), &[]), ["--limit", "50%"]);
        assert_eq!(as_flags(&standing(&[("limit", "2.00 GiB")]), Some(Bytes::gib(2)), &[]), ["--limit", "2GiB"]);
        assert_eq!(as_flags(&standing(&[("warp", "9")]), None, &[]), [""; 0]);
    }

    #[test]
    fn fused_ops_alone_would_fuse_the_optimizer_too() {
        let settings = standing(&[("fuse", "on"), ("opt-form", "foreach")]);
        assert_eq!(as_flags(&settings, None, &[]), ["--opt-form", "foreach", "--fuse"]);
    }

    #[test]
    fn settings_go_by_the_name_that_the_program_reads() {
        let told = |torch| in_program(&Remedy::EXPANDABLE, torch);
        assert_eq!(told(TorchVersion::V2_4), "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
        assert_eq!(told(TorchVersion::V2_11), "PYTORCH_ALLOC_CONF=expandable_segments:True");
    }

    #[test]
    fn checkpoints_are_told_as_calls() {
        let told = |value| in_program(&Remedy::flip("ckpt", value), TorchVersion::default());
        assert_eq!(told("on"), "torch.utils.checkpoint.checkpoint() around each block");
        assert_eq!(told("every:2"), "torch.utils.checkpoint.checkpoint() around one block in 2");
    }

    #[test]
    fn a_remedy_is_told_as_a_flag() {
        for (remedy, flags) in [
            (Remedy::flip("ckpt", "on"), "--ckpt"),
            (Remedy::flip("ckpt", "every:2"), "--ckpt every:2"),
            (Remedy::flip("amp", "bf16"), "--amp bf16"),
            (Remedy::SmallerBatch { batch: 8 }, "--batch 8"),
            (Remedy::SmallerBatch { batch: 0 }, "a smaller --batch"),
            (Remedy::HigherLimit, "a higher --limit"),
            (Remedy::flip("warp", "9"), "--warp 9"),
        ] {
            assert_eq!(in_flags(&remedy), flags);
        }
    }

    /// Programs that train on samples of several lengths pass a mask unless they say otherwise; other programs don't.
    #[test]
    fn what_lengths_imply_is_said_beside_them() {
        let lengths = ["--lengths".to_owned(), "lens.txt".to_owned()];
        for (value, flag) in [("off", "--attention-mask=off"), ("on", "--attention-mask")] {
            assert_eq!(as_flags(&standing(&[("attention-mask", value)]), None, &lengths), [flag]);
        }
        assert_eq!(as_flags(&standing(&[("attention-mask", "off")]), None, &[]), [""; 0]);
    }
}
