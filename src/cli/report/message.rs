//! PyTorch's pasted message: where it is read from, and what it says by itself.

use std::io::{self, Read};
use std::path::Path;

use color_eyre::eyre::{Result, WrapErr};

use super::part::DocumentPart;
use crate::cli::Usage;
use crate::cli::columns::Tone;
use crate::snapshot::{Culprit, Refusal};
use crate::user_input::read_text;

/// Longer than any message, and too short to fill memory.
const MOST: u64 = 1 << 20;

/// Reads a message: the text itself, the name of a file that holds it, or `-` for standard input.
pub(super) fn read(given: &str) -> Result<Refusal> {
    let path = Path::new(given);
    let text = if given == "-" {
        let mut text = Vec::new();
        io::stdin().lock().take(MOST).read_to_end(&mut text).wrap_err("the message can't be read")?;
        String::from_utf8_lossy(&text).into_owned()
    } else if given.len() < 4096 && path.is_file() {
        read_text(path).wrap_err_with(|| format!("{given} can't be read"))?
    } else {
        given.to_owned()
    };
    Refusal::of(&text).ok_or_else(|| {
        let what = "--error: this is no out-of-memory message of PyTorch's";
        Usage(format!(
            "{what}; paste it from \"CUDA out of memory. Tried to allocate\" on, or name a file that holds it"
        ))
        .into()
    })
}

/// What stopped a request, in a sentence; `None` if the message does not say.
pub(super) fn culprit(refusal: &Refusal) -> Option<String> {
    let free = refusal.free.map_or_else(String::new, |free| format!("; the card had {free} free"));
    let of_it = refusal.free.map_or_else(String::new, |free| format!(", and {free} of it were free"));
    Some(match refusal.culprit()? {
        Culprit::Limit => match refusal.allowed {
            Some(allowed) => format!(
                "A limit of this process stopped it: {} are allowed (torch.cuda.set_per_process_memory_fraction){free}.",
                allowed.size
            ),
            None => format!("A limit of this process stopped it{free}."),
        },
        Culprit::Others => format!("Other processes fill the card: they have {}{free}.", refusal.held_by_others()),
        Culprit::Card => match refusal.capacity {
            Some(capacity) => format!("The card is full: it has {capacity}{of_it}."),
            None => format!("The card is full{free}."),
        },
    })
}

/// Which other processes have memory on the card, and whether the request would have fitted without them; `None` if the
/// message names none.
pub(super) fn others(refusal: &Refusal) -> Option<String> {
    let each: Vec<String> =
        refusal.others.iter().map(|other| format!("process {} has {}", other.process, other.size)).collect();
    let cure = match refusal.culprit() {
        Some(Culprit::Others) => " Without them the request fits: end them, or use another card.",
        _ => "",
    };
    (!each.is_empty()).then(|| format!("On the same card: {}.{cure}", each.join(", ")))
}

/// What a message says by itself, and what it does not.
pub(super) fn parts(refusal: &Refusal) -> Vec<DocumentPart> {
    let mut first = culprit(refusal).unwrap_or_default();
    first += &format!(" Asked: {}.", refusal.asked.size);
    if let Some(missing) = refusal.missing() {
        first += &format!(" Missing: about {missing}.");
    }
    let mut items: Vec<String> = others(refusal).into_iter().collect();
    if let Some(allocated) = refusal.allocated {
        let reserved = refusal.reserved.map_or_else(String::new, |reserved| format!(" of {reserved} reserved"));
        items.push(format!("Live: {allocated}{reserved}."));
    }
    if let (Some(allocated), Some(reserved)) = (refusal.allocated, refusal.reserved) {
        let cached = reserved.saturating_sub(allocated);
        let room = match (refusal.culprit(), refusal.allowed) {
            (Some(Culprit::Limit), Some(allowed)) => allowed.size.saturating_sub(allocated),
            _ => cached + refusal.free.unwrap_or_default(),
        };
        items.push(if room >= refusal.asked.size {
            format!(
                "{cached} are reserved but free, in pieces that can't serve it. In one piece there would be room ({room}): \
                 expandable_segments:True may help; a snapshot shows whether it does."
            )
        } else {
            format!(
                "With the {cached} that are reserved but free, {room} could be had: no setting of the allocator helps{}.",
                if refusal.culprit() == Some(Culprit::Others) { "" } else { ", less must be live" }
            )
        });
    }
    vec![
        DocumentPart::Title("CUDA out of memory".to_owned()),
        DocumentPart::Verdict(Tone::Bad, first.trim().to_owned()),
        DocumentPart::Items(items),
        DocumentPart::Text(
            "A snapshot says who held it, and what would have fitted. Record one, and report on both:".to_owned(),
        ),
        DocumentPart::Code(
            "torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n\
             torch.cuda.memory._dump_snapshot(\"oom.pickle\")   # in `except torch.OutOfMemoryError`\n\
             vramlab report oom.pickle --error \"CUDA out of memory. Tried to allocate …\""
                .to_owned(),
        ),
    ]
}
