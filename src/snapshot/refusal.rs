//! Parses PyTorch's message when memory runs out: `CUDA out of memory. Tried to allocate 590.00 MiB. GPU 0 has a total
//! capacity of …`, as every version since 1.x words it.

use vramlab_allocator::units::Bytes;

/// A size as PyTorch prints it, with two decimals of a unit. The real size lies within half of the last decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintedSize {
    /// The printed size.
    pub size: Bytes,
    /// How far the real size may be from it.
    pub slack: Bytes,
}

impl PrintedSize {
    /// A size that is known to the byte.
    #[must_use]
    pub const fn exactly(size: Bytes) -> Self {
        Self { size, slack: Bytes::ZERO }
    }

    /// The nearest size in `least..below` that the printed size can stand for; `None` if there is none.
    #[must_use]
    pub fn within(self, least: Bytes, below: Option<Bytes>) -> Option<Bytes> {
        let most = below.map_or(Bytes(u64::MAX), |below| Bytes(below.get().saturating_sub(1)));
        let nearest = self.size.max(least).min(most);
        (nearest >= least && nearest.get().abs_diff(self.size.get()) <= self.slack.get()).then_some(nearest)
    }
}

/// Memory of another process on the same card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    /// The process's number.
    pub process: u64,
    /// The memory that the process holds.
    pub size: Bytes,
}

/// The figures in PyTorch's message; `None` where the message does not give one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The size that the driver should have given: the segment, not the bytes that the program asked for.
    pub asked: PrintedSize,
    /// The device.
    pub device: Option<u16>,
    /// All memory of the card.
    pub capacity: Option<Bytes>,
    /// What the card had free.
    pub free: Option<Bytes>,
    /// The limit of this process (`set_per_process_memory_fraction`), if there is one.
    pub allowed: Option<PrintedSize>,
    /// Memory of the card that this process holds, inside and outside PyTorch's allocator.
    pub this_process: Option<Bytes>,
    /// The other processes that the driver named.
    pub others: Vec<OtherProcess>,
    /// Memory that PyTorch had allocated.
    pub allocated: Option<Bytes>,
    /// Memory that PyTorch had reserved.
    pub reserved: Option<Bytes>,
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// A limit of this process: the card had memory left.
    Limit,
    /// Other processes: without them the card would have had enough.
    Others,
    /// The card has no more.
    Card,
}

impl Refusal {
    /// Finds and parses a message anywhere in a text; `None` if there is none.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        // If a log has several messages, the last one counts. Logs break lines, and launchers prefix each with a rank.
        let text = plain(text);
        let text = text.get(text.rfind("Tried to allocate ")?..)?.to_owned();
        let asked = after(&text, "Tried to allocate ")?;
        let before = |phrases: &[&str]| phrases.iter().find_map(|phrase| before(&text, phrase));
        let after = |phrases: &[&str]| phrases.iter().find_map(|phrase| after(&text, phrase));
        let size = |printed: Option<PrintedSize>| printed.map(|printed| printed.size);
        // 2.1 misspells a word.
        let capacity = after(&["total capacity of ", "total capacty of "]).or_else(|| before(&[" total capacity"]));
        let allocated = before(&[" is allocated by PyTorch", " already allocated"]);
        let unallocated = before(&[" is reserved by PyTorch but unallocated"]);
        // Memory that private pools hold counts as allocated.
        let reserved =
            size(before(&[" reserved in total by PyTorch"])).or_else(|| Some(allocated?.size + unallocated?.size));
        Some(Self {
            asked,
            device: number_after(&text, "GPU ").and_then(|device| u16::try_from(device).ok()),
            capacity: size(capacity),
            free: size(before(&[" is free", " free;"])),
            allowed: before(&[" allowed"]),
            this_process: size(after(&["this process has "])),
            others: others(&text),
            allocated: size(allocated),
            reserved,
        })
    }

    /// The reason why the request failed, if the message tells.
    #[must_use]
    pub fn culprit(&self) -> Option<Culprit> {
        let free = self.free?;
        let over = |allowed: PrintedSize| {
            self.reserved.is_none_or(|reserved| reserved + self.asked.size + allowed.slack > allowed.size)
        };
        if free >= self.asked.size || self.allowed.is_some_and(over) {
            return Some(Culprit::Limit);
        }
        Some(if free + self.held_by_others() >= self.asked.size { Culprit::Others } else { Culprit::Card })
    }

    /// Memory of the card that other processes hold.
    #[must_use]
    pub fn held_by_others(&self) -> Bytes {
        self.others.iter().map(|other| other.size).sum()
    }

    /// How many bytes were missing, if the message tells.
    #[must_use]
    pub fn missing(&self) -> Option<Bytes> {
        match self.culprit()? {
            Culprit::Limit => Some((self.reserved? + self.asked.size).saturating_sub(self.allowed?.size)),
            Culprit::Others | Culprit::Card => Some(self.asked.size.saturating_sub(self.free?)),
        }
    }
}

/// The text as one line, without the launchers' prefixes.
fn plain(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let rest = match line.strip_prefix("[rank").and_then(|rest| rest.split_once("]:")) {
            Some((_, rest)) => rest,
            None => line,
        };
        words.extend(rest.split_whitespace());
    }
    words.join(" ")
}

/// The size right behind a phrase.
fn after(text: &str, phrase: &str) -> Option<PrintedSize> {
    let rest = &text[text.find(phrase)? + phrase.len()..];
    let mut words = rest.split([' ', ';', ')']);
    printed(words.next()?, words.next()?.trim_end_matches(['.', ',']))
}

/// The size right before a phrase.
fn before(text: &str, phrase: &str) -> Option<PrintedSize> {
    let mut words = text[..text.find(phrase)?].rsplit([' ', '(']);
    let unit = words.next()?;
    printed(words.next()?, unit)
}

fn printed(number: &str, unit: &str) -> Option<PrintedSize> {
    let (whole, decimals) = match unit {
        "bytes" | "byte" => (1_u64, false),
        "KiB" => (1 << 10, true),
        "MiB" => (1 << 20, true),
        "GiB" => (1 << 30, true),
        _ => return None,
    };
    let number: f64 = number.parse().ok().filter(|number: &f64| (0.0..1e9).contains(number))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
    let size = Bytes((number * whole as f64).round() as u64);
    // Half of a hundredth, and a byte for the rounding.
    Some(PrintedSize { size, slack: if decimals { Bytes(whole / 200 + 1) } else { Bytes::ZERO } })
}

fn number_after(text: &str, phrase: &str) -> Option<u64> {
    let rest = &text[text.find(phrase)? + phrase.len()..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// All occurrences of `Process 429 has 2.61 GiB memory in use.`
fn others(text: &str) -> Vec<OtherProcess> {
    let each = text.match_indices("Process ").filter_map(|(at, _)| {
        let rest = &text[at..];
        let process = number_after(rest, "Process ")?;
        let (_, held) = rest.split_once(" has ")?;
        Some(OtherProcess { process, size: after(&format!("has {held}"), "has ")?.size })
    });
    each.take(MOST_OTHERS).collect()
}

/// The most processes that are listed separately.
const MOST_OTHERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1_073_741_824.0;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
    fn gib(n: f64) -> Bytes {
        Bytes((n * GIB).round() as u64)
    }

    /// The releases' wording, from their sources.
    const OF_2_11: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 590.00 MiB. GPU 0 has a total \
        capacity of 139.80 GiB of which 127.39 GiB is free. Process 429 has 2.61 GiB memory in use. Process 431 has 770.00 \
        MiB memory in use. Including non-PyTorch memory, this process has 6.33 GiB memory in use. 6.00 GiB allowed; Of the \
        allocated memory 5.30 GiB is allocated by PyTorch, and 304.59 MiB is reserved by PyTorch but unallocated. If reserved \
        but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    const OF_2_1: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacty of 23.69 GiB of which 1.20 \
        GiB is free. Including non-PyTorch memory, this process has 22.48 GiB memory in use. Of the allocated memory 20.00 GiB \
        is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated.";
    const OF_1_13: &str = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; \
        14.20 GiB already allocated; 10.75 MiB free; 14.25 GiB allowed; 14.24 GiB reserved in total by PyTorch) If reserved \
        memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.";
    const OF_1_8: &str = "RuntimeError: CUDA out of memory. Tried to allocate 1.95 GiB (GPU 1; 11.17 GiB total capacity; 8.00 \
        GiB already allocated; 1.10 GiB free; 9.50 GiB reserved in total by PyTorch)";
    const GRAPHS: &str = "CUDA out of memory. Tried to allocate 512 bytes. GPU 0 has a total capacity of 79.11 GiB of which \
        0 bytes is free. Process 77 has 40.00 GiB memory in use. Of the allocated memory 30.00 GiB is allocated by PyTorch, \
        with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated.";

    #[test]
    fn the_message_of_every_version_is_read() {
        let read = Refusal::of(OF_2_11).unwrap();
        assert_eq!((read.asked.size, read.device), (Bytes::mib(590), Some(0)));
        assert_eq!((read.capacity, read.free), (Some(gib(139.80)), Some(gib(127.39))));
        assert_eq!(read.allowed.unwrap().size, Bytes::gib(6));
        assert_eq!((read.allocated, read.this_process), (Some(gib(5.30)), Some(gib(6.33))));
        assert_eq!(read.reserved.unwrap().get().abs_diff(gib(5.30 + 304.59 / 1024.0).get()), 0);
        assert_eq!(
            read.others,
            [OtherProcess { process: 429, size: gib(2.61) }, OtherProcess { process: 431, size: Bytes::mib(770) }]
        );
        assert_eq!(read.culprit(), Some(Culprit::Limit));

        let read = Refusal::of(OF_2_1).unwrap();
        assert_eq!((read.device, read.capacity, read.allowed), (Some(3), Some(gib(23.69)), None));
        assert_eq!((read.reserved, read.culprit()), (Some(gib(21.5)), Some(Culprit::Card)));
        assert_eq!(read.missing(), Some(gib(2.0) - gib(1.2)));

        let read = Refusal::of(OF_1_13).unwrap();
        assert_eq!((read.asked.size, read.capacity), (Bytes::mib(20), Some(gib(15.78))));
        assert_eq!((read.allocated, read.reserved), (Some(gib(14.20)), Some(gib(14.24))));
        assert_eq!((read.allowed.unwrap().size, read.culprit()), (gib(14.25), Some(Culprit::Limit)));

        let read = Refusal::of(OF_1_8).unwrap();
        assert_eq!((read.device, read.free, read.culprit()), (Some(1), Some(gib(1.1)), Some(Culprit::Card)));

        let read = Refusal::of(GRAPHS).unwrap();
        assert_eq!((read.asked, read.free), (PrintedSize::exactly(Bytes(512)), Some(Bytes::ZERO)));
        assert_eq!((read.reserved, read.culprit()), (Some(gib(31.0)), Some(Culprit::Others)));
        assert_eq!(read.held_by_others(), gib(40.0));
    }

    #[test]
    fn logs_that_break_lines_and_name_ranks_say_the_same() {
        let words: Vec<&str> = OF_2_11.split(' ').collect();
        for every in [3, 7, 12] {
            let broken: Vec<String> =
                words.chunks(every).map(|chunk| format!("[rank0]: {}", chunk.join(" "))).collect();
            let log =
                format!("Traceback (most recent call last):\n  File \"train.py\", line 3\n{}\n", broken.join("\n"));
            assert_eq!(Refusal::of(&log), Refusal::of(OF_2_11), "{every}");
        }
        assert_eq!(Refusal::of(&format!("{OF_1_8}\n...\n{OF_2_11}")), Refusal::of(OF_2_11), "the last of several");
    }

    #[test]
    fn other_texts_are_no_messages_and_broken_ones_say_less() {
        for text in ["", "CUDA error: an illegal memory access was encountered", "Tried to allocate much"] {
            assert_eq!(Refusal::of(text), None, "{text}");
        }
        // Wherever the text is cut, only complete figures are read.
        for end in (0..OF_2_11.len()).filter(|end| OF_2_11.is_char_boundary(*end)) {
            if let Some(read) = Refusal::of(&OF_2_11[..end]) {
                assert_eq!(read.asked.size, Bytes::mib(590), "{end}");
            }
        }
    }

    #[test]
    fn a_printed_size_is_taken_where_the_file_allows_it() {
        let limit = PrintedSize { size: gib(5.80), slack: Bytes((1 << 30) / 200 + 1) };
        assert_eq!(limit.within(gib(5.0), None), Some(gib(5.80)));
        assert_eq!(limit.within(gib(5.803), None), Some(gib(5.803)));
        assert_eq!(limit.within(gib(5.0), Some(gib(5.798))), Some(gib(5.798) - Bytes(1)));
        assert_eq!(limit.within(gib(5.9), None), None);
        assert_eq!(PrintedSize::exactly(gib(6.0)).within(gib(5.0), Some(gib(7.0))), Some(gib(6.0)));
    }
}
