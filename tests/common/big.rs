//! Memory snapshots of any length, written as Python's pickler writes them, without keeping them in memory.
//!
//! Tests and benchmarks that need one include it with `#[path]`; it is not part of the program.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::rc::Rc;

use vramlab::allocator::{
    BlockSnapshot, BlockState, CachingAllocator, PoolKind, SegmentSnapshot, Settings, SimulatedDriver, TraceEvent,
    TraceSink,
};
use vramlab::units::{Address, Bytes, StreamId};

/// A snapshot of a training job: equal steps, recorded from the first allocation on.
#[derive(Clone, Copy, Debug)]
pub struct Big {
    /// The least number of trace entries; the last step is complete.
    pub entries: u64,
    /// Number of frames of every stack.
    pub depth: usize,
    /// Number of places in a step that allocate memory; each has a stack, and another one for freeing.
    pub places: usize,
}

impl Big {
    /// 750 MB: as large as a day of debugging leaves behind.
    pub const FULL: Self = Self { entries: 2_360_000, depth: 70, places: 3000 };

    /// The same shape with `entries` entries.
    pub const fn of(entries: u64) -> Self {
        Self { entries, ..Self::FULL }
    }

    /// Writes the snapshot; returns the number of its entries and of its bytes.
    pub fn write(self, out: impl Write) -> io::Result<(u64, u64)> {
        // The segments come before the history that leads to them, so everything is simulated twice.
        let mut end = Job::new(self);
        while end.entries < self.entries {
            end.step(|_, _, _| Ok(()))?;
        }
        let mut pickle = Pickle::new(out);
        pickle.proto()?;
        pickle.open_dict()?;
        let segments = end.allocator.segments();
        pickle.text("segments")?;
        pickle.open_list(segments.len())?;
        for segment in segments {
            pickle.segment(&segment)?;
        }
        pickle.close_list()?;
        pickle.text("device_traces")?;
        pickle.open_list(1)?;
        pickle.item()?;
        pickle.open_list(usize::MAX)?;
        let mut job = Job::new(self);
        let mut frames = Frames::default();
        while job.entries < self.entries {
            job.step(|event, time, stack| pickle.entry(event, time, stack, self.depth, &mut frames))?;
        }
        pickle.close_list()?;
        pickle.close_list()?;
        pickle.text("allocator_settings")?;
        pickle.open_dict()?;
        pickle.text("PYTORCH_CUDA_ALLOC_CONF")?;
        pickle.text("")?;
        pickle.pairs(&[("pinned_num_register_threads", 1)])?;
        pickle.close_dict()?;
        pickle.text("external_annotations")?;
        pickle.open_list(0)?;
        pickle.close_list()?;
        pickle.close_dict()?;
        Ok((job.entries, pickle.finish()?))
    }
}

/// The events of the allocator.
#[derive(Clone, Default)]
struct Told(Rc<RefCell<Vec<TraceEvent>>>);

impl TraceSink for Told {
    fn trace(&mut self, event: &TraceEvent) {
        self.0.borrow_mut().push(*event);
    }
}

/// A training job on a device that costs nothing.
struct Job {
    big: Big,
    allocator: CachingAllocator<SimulatedDriver, Told>,
    told: Told,
    entries: u64,
    time: u64,
    chance: u64,
    state: Vec<Address>,
}

impl Job {
    fn new(big: Big) -> Self {
        let told = Told::default();
        let driver = SimulatedDriver::new(Bytes::gib(140), Bytes::ZERO);
        let allocator = CachingAllocator::new(driver, Settings::default(), told.clone());
        Self { big, allocator, told, entries: 0, time: 1_795_310_494_028_202, chance: 0x9e37_79b9, state: Vec::new() }
    }

    fn random(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.chance >> 33
    }

    /// A forward pass that keeps every fourth block, and a backward pass that frees them. In the first step also the
    /// state that stays.
    fn step(&mut self, mut write: impl FnMut(&TraceEvent, u64, usize) -> io::Result<()>) -> io::Result<()> {
        if self.state.is_empty() {
            for place in 0..self.big.places / 8 {
                let size = 512 + self.random() % (8 << 20);
                let address = self.malloc(size, place, &mut write)?;
                self.state.push(address);
            }
        }
        let mut saved = Vec::new();
        let mut temporary = VecDeque::new();
        for place in 0..self.big.places {
            let size = self.size(place);
            let address = self.malloc(size, place, &mut write)?;
            if place.is_multiple_of(4) {
                saved.push((address, place));
            } else {
                temporary.push_back((address, place));
            }
            if temporary.len() > 6 {
                let (address, place) = temporary.pop_front().unwrap();
                self.free(address, place, &mut write)?;
            }
        }
        for (address, place) in temporary.into_iter().chain(saved.into_iter().rev()) {
            self.free(address, place, &mut write)?;
        }
        Ok(())
    }

    /// Some places request another size in each step, as batches of texts do.
    fn size(&mut self, place: usize) -> u64 {
        let usual = 1 + (place as u64).wrapping_mul(2_654_435_761) % [2_000, 300_000, 6_000_000][place % 3];
        if place.is_multiple_of(16) { usual + self.random() % 100_000 } else { usual }
    }

    fn malloc(
        &mut self,
        size: u64,
        place: usize,
        write: &mut impl FnMut(&TraceEvent, u64, usize) -> io::Result<()>,
    ) -> io::Result<Address> {
        let address = self.allocator.malloc(Bytes(size), StreamId::DEFAULT).unwrap().address;
        self.tell(2 * place, write)?;
        Ok(address)
    }

    fn free(
        &mut self,
        address: Address,
        place: usize,
        write: &mut impl FnMut(&TraceEvent, u64, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        self.allocator.free(address).unwrap();
        self.tell(2 * place + 1, write)
    }

    fn tell(
        &mut self,
        stack: usize,
        write: &mut impl FnMut(&TraceEvent, u64, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let told = self.told.0.take();
        self.time += 7;
        self.entries += told.len() as u64;
        told.iter().try_for_each(|event| write(event, self.time, stack))
    }
}

/// The frames that were written, and the list of the last freed block.
#[derive(Default)]
struct Frames {
    memos: HashMap<usize, u32>,
    given_back: Option<u32>,
}

/// Opcodes as Python's C pickler writes them (protocol 4).
struct Pickle<W> {
    out: W,
    /// The contents of the current frame.
    frame: Vec<u8>,
    written: u64,
    memoized: u32,
    texts: HashMap<&'static str, u32>,
    /// For each open list, the number of items since its last batch; `None` if there is only one.
    items: Vec<Option<u32>>,
}

impl<W: Write> Pickle<W> {
    /// A frame is closed when it has this length.
    const FRAME: usize = 64 << 10;
    const BATCH: u32 = 1000;

    fn new(out: W) -> Self {
        Self { out, frame: Vec::new(), written: 0, memoized: 0, texts: HashMap::new(), items: Vec::new() }
    }

    fn proto(&mut self) -> io::Result<()> {
        self.written += 2;
        self.out.write_all(&[0x80, 4])
    }

    fn finish(mut self) -> io::Result<u64> {
        self.frame.push(b'.');
        self.flush()?;
        self.out.flush()?;
        Ok(self.written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&[0x95])?;
        self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        self.out.write_all(&self.frame)?;
        self.written += 9 + self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.frame.len() >= Self::FRAME {
            self.flush()?;
        }
        self.frame.extend_from_slice(bytes);
        Ok(())
    }

    fn memoize(&mut self) -> io::Result<u32> {
        self.put(&[0x94])?;
        self.memoized += 1;
        Ok(self.memoized - 1)
    }

    fn recall(&mut self, memo: u32) -> io::Result<()> {
        match u8::try_from(memo) {
            Ok(memo) => self.put(&[b'h', memo]),
            Err(_) => {
                let [a, b, c, d] = memo.to_le_bytes();
                self.put(&[b'j', a, b, c, d])
            }
        }
    }

    /// A text that Python holds once.
    fn text(&mut self, text: &'static str) -> io::Result<()> {
        match self.texts.get(text) {
            Some(memo) => self.recall(*memo),
            None => {
                let memo = self.new_text(text)?;
                self.texts.insert(text, memo);
                Ok(())
            }
        }
    }

    /// A text that Python created anew.
    fn new_text(&mut self, text: &str) -> io::Result<u32> {
        let length = u8::try_from(text.len()).unwrap();
        self.put(&[&[0x8c, length], text.as_bytes()].concat())?;
        self.memoize()
    }

    fn int(&mut self, n: u64) -> io::Result<()> {
        let bytes = n.to_le_bytes();
        match n {
            0..0x100 => self.put(&[b'K', bytes[0]]),
            0x100..0x1_0000 => self.put(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..0x8000_0000 => self.put(&[&b"J"[..], &bytes[..4]].concat()),
            _ => {
                let length = (u64::BITS - n.leading_zeros()) as usize / 8 + 1;
                self.put(&[&[0x8a, length as u8], &n.to_le_bytes()[..length]].concat())
            }
        }
    }

    /// Opens a list of this many items; the number matters only for a list of one.
    fn open_list(&mut self, len: usize) -> io::Result<u32> {
        self.put(b"]")?;
        self.items.push((len != 1).then_some(0));
        self.memoize()
    }

    /// Announces that the next value is an item of the innermost open list.
    fn item(&mut self) -> io::Result<()> {
        let Some(items) = self.items.last_mut().unwrap() else { return Ok(()) };
        let batch = match *items {
            0 => &b"("[..],
            Self::BATCH => b"e(",
            _ => b"",
        };
        *items = *items % Self::BATCH + 1;
        self.put(batch)
    }

    fn close_list(&mut self) -> io::Result<()> {
        match self.items.pop().unwrap() {
            None => self.put(b"a"),
            Some(0) => Ok(()),
            Some(_) => self.put(b"e"),
        }
    }

    fn open_dict(&mut self) -> io::Result<u32> {
        self.put(b"}")?;
        let memo = self.memoize()?;
        self.put(b"(")?;
        Ok(memo)
    }

    fn close_dict(&mut self) -> io::Result<()> {
        self.put(b"u")
    }

    fn pairs(&mut self, pairs: &[(&'static str, u64)]) -> io::Result<()> {
        for (key, n) in pairs {
            self.text(key)?;
            self.int(*n)?;
        }
        Ok(())
    }

    fn segment(&mut self, segment: &SegmentSnapshot) -> io::Result<()> {
        let sum = |keep: fn(&BlockSnapshot) -> bool, size: fn(&BlockSnapshot) -> Bytes| {
            segment.blocks.iter().filter(|block| keep(block)).map(|block| size(block).0).sum::<u64>()
        };
        let in_use: fn(&BlockSnapshot) -> bool = |block| block.state != BlockState::Inactive;
        self.item()?;
        self.open_dict()?;
        self.pairs(&[
            ("device", 0),
            ("address", segment.address.0),
            ("total_size", segment.size.0),
            ("allocated_size", sum(in_use, |block| block.size)),
            ("active_size", sum(in_use, |block| block.size)),
            ("requested_size", sum(in_use, |block| block.requested)),
            ("stream", segment.stream.0),
        ])?;
        self.text("segment_type")?;
        self.text(if segment.pool == PoolKind::Small { "small" } else { "large" })?;
        self.text("segment_pool_id")?;
        self.put(b"K\x00K\x00\x86")?;
        self.memoize()?;
        self.text("is_expandable")?;
        self.put(&[0x89])?;
        self.text("blocks")?;
        self.open_list(segment.blocks.len())?;
        for block in &segment.blocks {
            self.item()?;
            self.open_dict()?;
            self.pairs(&[("address", block.address.0), ("size", block.size.0), ("requested_size", block.requested.0)])?;
            self.text("state")?;
            self.text(block.state.name())?;
            self.text("frames")?;
            self.open_list(0)?;
            self.close_list()?;
            self.close_dict()?;
        }
        self.close_list()?;
        self.text("frames")?;
        self.open_list(0)?;
        self.close_list()?;
        self.close_dict()
    }

    fn entry(
        &mut self,
        event: &TraceEvent,
        time: u64,
        stack: usize,
        depth: usize,
        frames: &mut Frames,
    ) -> io::Result<()> {
        let (action, address, size) = match *event {
            TraceEvent::Alloc { address, requested, .. } => ("alloc", address, requested),
            TraceEvent::FreeRequested { address, requested, .. } => ("free_requested", address, requested),
            TraceEvent::FreeCompleted { address, requested, .. } => ("free_completed", address, requested),
            TraceEvent::SegmentAlloc { address, size, .. } => ("segment_alloc", address, size),
            TraceEvent::SegmentFree { address, size, .. } => ("segment_free", address, size),
            _ => panic!("a job without expandable segments and failures has {event:?}"),
        };
        self.item()?;
        self.open_dict()?;
        self.text("action")?;
        self.text(action)?;
        self.pairs(&[("addr", address.0), ("size", size.0), ("stream", 0), ("time_us", time)])?;
        self.text("compile_context")?;
        self.new_text("N/A")?;
        self.text("user_metadata")?;
        self.text("")?;
        self.text("frames")?;
        match (action, frames.given_back) {
            ("free_completed", Some(list)) => self.recall(list)?,
            _ => {
                let list = self.stack(stack, depth, frames)?;
                frames.given_back = (action == "free_requested").then_some(list);
            }
        }
        self.close_dict()
    }

    /// A list of frames: the outer ones belong to the training loop, the inner ones to a place.
    fn stack(&mut self, stack: usize, depth: usize, frames: &mut Frames) -> io::Result<u32> {
        let list = self.open_list(depth)?;
        for level in 0..depth {
            self.item()?;
            // Neighbouring places are called from the same layer, and most of them share outer frames.
            let shared = level * 12 / depth.max(1);
            self.frame(level * 50 + (stack >> shared) % 50, frames)?;
        }
        self.close_list()?;
        Ok(list)
    }

    fn frame(&mut self, frame: usize, frames: &mut Frames) -> io::Result<()> {
        if let Some(memo) = frames.memos.get(&frame) {
            return self.recall(*memo);
        }
        let memo = self.open_dict()?;
        frames.memos.insert(frame, memo);
        self.text("name")?;
        self.new_text(&format!("forward_{}", frame % 400))?;
        self.text("filename")?;
        self.new_text(&format!("/usr/lib/python3.12/site-packages/torch/nn/modules/module_{}.py", frame % 90))?;
        self.text("line")?;
        self.int(frame as u64 % 3000 + 1)?;
        self.close_dict()
    }
}
