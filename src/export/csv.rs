//! One row per event, quoted as in RFC 4180, with line feeds as line ends.

use std::io::{self, Write};

use super::devices::{Devices, ExportedDevice};
use super::error::ExportError;
use crate::allocator::PoolKind;
use crate::model::{Category, CopyDirection, Event, EventKind};
use crate::source::Whole;
use crate::units::{Address, Bytes, StreamId};

/// The columns. Fields that have no meaning for an event are empty. The name is that of the requester, for frees too;
/// other texts (notes, what was written, the changed switch) are in the same column.
const HEADER: &str = "position,time_us,device,kind,address,size_bytes,requested_bytes,stream,pool,category,name,op,step,\
                      phase,allocated_bytes,reserved_bytes";

/// Writes all events before `end`.
pub(super) fn write(
    whole: &Whole,
    end: u64,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    writeln!(out, "{HEADER}")?;
    let mut devices = Devices::default();
    let mut line = Vec::new();
    whole.each(0..end, |index, event| {
        let mut row = CsvRow { kind: word(&event.kind), ..CsvRow::default() };
        // A freed block is described by the state before the event.
        row.describe(event, devices.get(event.device));
        let device = devices.apply(event);
        row.settle(event, device);
        line.clear();
        row.write(&mut line, index, event, device)?;
        out.write_all(&line)?;
        progress(index, end);
        Ok(())
    })
}

/// The contents of a row besides the fields that every event has.
#[derive(Default)]
struct CsvRow {
    kind: &'static str,
    address: Option<Address>,
    size: Option<Bytes>,
    requested: Option<Bytes>,
    stream: Option<StreamId>,
    pool: Option<PoolKind>,
    category: Option<Category>,
    name: String,
}

impl CsvRow {
    /// Sets the fields that follow from the event and the state before it.
    fn describe(&mut self, event: &Event, device: Option<&ExportedDevice>) {
        let block = |address| device.and_then(|device| device.state().block(address));
        let home = |address| device.and_then(|device| device.state().home(address));
        match &event.kind {
            EventKind::Define { text, .. }
            | EventKind::Generated { text }
            | EventKind::Notice { text }
            | EventKind::Note { text } => self.name = text.to_string(),
            EventKind::SegmentAlloc { address, size, stream, pool }
            | EventKind::SegmentMap { address, size, stream, pool, .. } => {
                (self.address, self.size) = (Some(*address), Some(*size));
                (self.stream, self.pool) = (Some(*stream), Some(*pool));
            }
            EventKind::SegmentFree { address, size } | EventKind::SegmentUnmap { address, size } => {
                (self.address, self.size) = (Some(*address), Some(*size));
                (self.stream, self.pool) = home(*address).unzip();
            }
            EventKind::Alloc { address, size, requested, stream, category, .. } => {
                (self.address, self.size, self.requested) = (Some(*address), Some(*size), Some(*requested));
                (self.stream, self.category) = (Some(*stream), Some(*category));
                self.pool = home(*address).map(|(_, pool)| pool);
            }
            EventKind::FreeRequested { address }
            | EventKind::FreeCompleted { address }
            | EventKind::Relabel { address, .. } => {
                self.address = Some(*address);
                if let (Some(block), Some(device)) = (block(*address), device) {
                    let label = device.label(*address);
                    (self.size, self.requested) = (Some(block.size), Some(block.requested));
                    (self.stream, self.pool) = (Some(block.stream), Some(block.pool));
                    (self.category, self.name) = (Some(label.category), device.name(label.name).to_owned());
                }
            }
            EventKind::Oom(request) => {
                (self.size, self.requested) = (Some(request.rounded), Some(request.requested));
                (self.stream, self.pool) = (Some(request.stream), Some(request.pool));
            }
            EventKind::Limit { limit } => self.size = *limit,
            EventKind::Copy { bytes, direction, .. } => {
                self.size = Some(*bytes);
                self.name = match direction {
                    CopyDirection::ToDevice => "to device".to_owned(),
                    CopyDirection::ToHost => "to host".to_owned(),
                };
            }
            EventKind::HostMemory { reserved, .. } => self.size = Some(*reserved),
            EventKind::Begin(about) | EventKind::About(about) => self.name = about.workload.to_string(),
            _ => {}
        }
    }

    /// Sets the fields that follow from the state after the event.
    fn settle(&mut self, event: &Event, device: Option<&ExportedDevice>) {
        let Some(device) = device else { return };
        match &event.kind {
            EventKind::Alloc { name, .. } => self.name = device.name(*name).to_owned(),
            EventKind::Relabel { category, name, .. } => {
                (self.category, self.name) = (Some(*category), device.name(*name).to_owned());
            }
            EventKind::Oom(request) => self.name = device.name(request.name).to_owned(),
            EventKind::SwitchFlipped { switch, from, to } => {
                let text = |id| device.name(id);
                self.name = format!("{} {} → {}", text(*switch), text(*from), text(*to));
            }
            _ => {}
        }
    }

    fn write(&self, out: &mut Vec<u8>, index: u64, event: &Event, device: Option<&ExportedDevice>) -> io::Result<()> {
        write!(out, "{index},{},{},{},", event.time.0, event.device.0, self.kind)?;
        if let Some(address) = self.address {
            write!(out, "{address}")?;
        }
        let numbers = [self.size.map(Bytes::get), self.requested.map(Bytes::get), self.stream.map(|stream| stream.0)];
        for number in numbers {
            out.push(b',');
            push_number(out, number)?;
        }
        out.push(b',');
        out.extend(self.pool.map_or("", pool_word).bytes());
        out.push(b',');
        out.extend(self.category.map_or("", Category::label).bytes());
        out.push(b',');
        push_text(out, &self.name);
        out.push(b',');
        push_text(out, device.map_or("", |device| device.name(device.op)));
        out.push(b',');
        push_number(out, device.and_then(|device| device.step))?;
        out.push(b',');
        out.extend(device.and_then(|device| device.phase).map_or("", |phase| phase.label()).bytes());
        let statistics = device.map(|device| device.state().statistics());
        let current = |counter: fn(&crate::allocator::Statistics) -> i64| statistics.map_or(0, counter);
        let allocated = current(|statistics| statistics.allocated_bytes.all.current);
        let reserved = current(|statistics| statistics.reserved_bytes.all.current);
        writeln!(out, ",{allocated},{reserved}")
    }
}

fn push_number(out: &mut Vec<u8>, number: Option<u64>) -> io::Result<()> {
    number.map_or(Ok(()), |number| write!(out, "{number}"))
}

/// Adds a field, quoted if necessary.
fn push_text(out: &mut Vec<u8>, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        out.extend(text.bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

pub(super) const fn pool_word(pool: PoolKind) -> &'static str {
    match pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    }
}

/// A kind of event, by PyTorch's word if there is one.
const fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Define { .. } => "define",
        EventKind::Stack { .. } => "stack",
        EventKind::SegmentAlloc { .. } => "segment_alloc",
        EventKind::SegmentFree { .. } => "segment_free",
        EventKind::SegmentMap { .. } => "segment_map",
        EventKind::SegmentUnmap { .. } => "segment_unmap",
        EventKind::PrivatePool { .. } => "private_pool",
        EventKind::Alloc { .. } => "alloc",
        EventKind::Relabel { .. } => "relabel",
        EventKind::FreeRequested { .. } => "free_requested",
        EventKind::FreeCompleted { .. } => "free_completed",
        EventKind::Oom(_) => "oom",
        EventKind::Remedied(_) => "remedied",
        EventKind::Weighed(_) => "weighed",
        EventKind::EmptyCache => "empty_cache",
        EventKind::ResetPeaks => "reset_peak_memory_stats",
        EventKind::Limit { .. } => "limit",
        EventKind::StepBegin { .. } => "step_begin",
        EventKind::PhaseBegin { .. } => "phase_begin",
        EventKind::PhaseEnd { .. } => "phase_end",
        EventKind::OpBegin { .. } => "op_begin",
        EventKind::OpEnd => "op_end",
        EventKind::StepEnd(_) => "step_end",
        EventKind::Begin(_) => "begin",
        EventKind::About(_) => "about",
        EventKind::Run(_) => "run",
        EventKind::Settings(_) => "settings",
        EventKind::SwitchFlipped { .. } => "switch_flipped",
        EventKind::Copy { .. } => "copy",
        EventKind::HostMemory { .. } => "host_memory",
        EventKind::Generating => "generating",
        EventKind::Generated { .. } => "generated",
        EventKind::Reading(_) => "reading",
        EventKind::Notice { .. } => "notice",
        EventKind::Note { .. } => "note",
        EventKind::Modules(_) => "modules",
        EventKind::Lesson(_) => "lesson",
        EventKind::AlikeRanks(_) => "alike_ranks",
        EventKind::ForeignContexts(_) => "foreign_contexts",
        EventKind::DeviceMemory(_) => "device_memory",
        EventKind::Presence(_) => "presence",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        for (text, field) in [
            ("blocks.0.fc", "blocks.0.fc"),
            ("a, b", "\"a, b\""),
            ("the \"loss\"", "\"the \"\"loss\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("", ""),
        ] {
            let mut out = Vec::new();
            push_text(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), field);
        }
    }
}
