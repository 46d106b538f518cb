//! A trace in Perfetto's own format: for every device, the bytes allocated, reserved and active, steps, phases and ops,
//! and the events between them.

mod packets;
mod wire;

use std::io::{self, Write};

use super::devices::{Devices, ExportedDevice};
use super::error::ExportError;
use crate::model::{Event, EventKind, Micros};
use crate::source::Whole;
use crate::units::{Bytes, DeviceIndex};
use packets::{Detail, Packets, Track, TrackKind};

/// Writes all events before `end`. Times are those of the recording: microseconds since it began, or Unix time.
pub(super) fn write(
    whole: &Whole,
    end: u64,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ExportError> {
    let mut devices = Devices::default();
    let mut writer = TraceWriter { packets: Packets::new(out), rows: Vec::new() };
    whole.each(0..end, |index, event| {
        progress(index, end);
        let released = devices.get(event.device).and_then(|device| released(device, event));
        if let Some(device) = devices.apply(event) {
            writer.push(event, device, released)?;
        }
        Ok::<_, ExportError>(())
    })?;
    Ok(writer.finish()?)
}

/// The tracks of a device.
#[derive(Clone, Copy, Debug)]
enum DeviceTracks {
    Process,
    Steps,
    Phases,
    Ops,
    Marks,
    Allocated,
    Reserved,
    Active,
}

impl DeviceTracks {
    const ALL: [Self; 8] = [
        Self::Process,
        Self::Steps,
        Self::Phases,
        Self::Ops,
        Self::Marks,
        Self::Allocated,
        Self::Reserved,
        Self::Active,
    ];

    const fn of(self, device: DeviceIndex) -> Track {
        Track(1 + device.0 as u64 * Self::ALL.len() as u64 + self as u64)
    }
}

/// The open slices of a device.
#[derive(Debug, Default)]
struct DeviceRows {
    described: bool,
    step: bool,
    phase: bool,
    op: bool,
    /// The last time, because time must not decrease.
    time: Micros,
    counted: [Option<i64>; 3],
}

struct TraceWriter<W> {
    packets: Packets<W>,
    rows: Vec<DeviceRows>,
}

impl<W: Write> TraceWriter<W> {
    fn push(&mut self, event: &Event, device: &ExportedDevice, released: Option<Bytes>) -> io::Result<()> {
        let index = usize::from(event.device.0);
        if index >= self.rows.len() {
            self.rows.resize_with(index + 1, DeviceRows::default);
        }
        let rows = &mut self.rows[index];
        // A notice after the end of the readable part has no time of its own.
        if event.time.0 < u64::MAX / 2000 {
            rows.time = rows.time.max(event.time);
        }
        let time = rows.time.0 * 1000;
        if !rows.described {
            rows.described = true;
            describe(&mut self.packets, event)?;
        }
        let rows = &mut self.rows[index];
        let track = |row: DeviceTracks| row.of(event.device);
        let packets = &mut self.packets;
        match &event.kind {
            EventKind::StepBegin { step } => {
                rows.close(packets, event.device, time)?;
                packets.begin(track(DeviceTracks::Steps), time, &format!("step {step}"))?;
                rows.step = true;
            }
            EventKind::StepEnd(_) | EventKind::Begin(_) => rows.close(packets, event.device, time)?,
            EventKind::PhaseBegin { phase } => {
                rows.close_phase(packets, event.device, time)?;
                packets.begin(track(DeviceTracks::Phases), time, phase.label())?;
                rows.phase = true;
            }
            EventKind::PhaseEnd { .. } => rows.close_phase(packets, event.device, time)?,
            EventKind::OpBegin { name } => {
                rows.close_op(packets, event.device, time)?;
                packets.begin(track(DeviceTracks::Ops), time, device.name(*name))?;
                rows.op = true;
            }
            EventKind::OpEnd => rows.close_op(packets, event.device, time)?,
            _ => {}
        }
        mark(packets, event, device, released, time)?;
        let statistics = device.state().statistics();
        let values = [&statistics.allocated_bytes, &statistics.reserved_bytes, &statistics.active_bytes];
        for ((row, value), counted) in [DeviceTracks::Allocated, DeviceTracks::Reserved, DeviceTracks::Active]
            .into_iter()
            .zip(values)
            .zip(&mut rows.counted)
        {
            let value = value.all.current;
            if *counted != Some(value) {
                *counted = Some(value);
                packets.count(track(row), time, value)?;
            }
        }
        Ok(())
    }

    /// Ends all open slices.
    fn finish(mut self) -> io::Result<()> {
        for (device, rows) in (0..).map(DeviceIndex).zip(&mut self.rows) {
            rows.close(&mut self.packets, device, rows.time.0 * 1000)?;
        }
        Ok(())
    }
}

impl DeviceRows {
    fn close(&mut self, packets: &mut Packets<impl Write>, device: DeviceIndex, time: u64) -> io::Result<()> {
        self.close_phase(packets, device, time)?;
        if std::mem::take(&mut self.step) { packets.end(DeviceTracks::Steps.of(device), time) } else { Ok(()) }
    }

    fn close_phase(&mut self, packets: &mut Packets<impl Write>, device: DeviceIndex, time: u64) -> io::Result<()> {
        self.close_op(packets, device, time)?;
        if std::mem::take(&mut self.phase) { packets.end(DeviceTracks::Phases.of(device), time) } else { Ok(()) }
    }

    fn close_op(&mut self, packets: &mut Packets<impl Write>, device: DeviceIndex, time: u64) -> io::Result<()> {
        if std::mem::take(&mut self.op) { packets.end(DeviceTracks::Ops.of(device), time) } else { Ok(()) }
    }
}

/// Describes the tracks of a device.
fn describe(packets: &mut Packets<impl Write>, event: &Event) -> io::Result<()> {
    let device = event.device;
    let parent = DeviceTracks::Process.of(device);
    let what = match &event.kind {
        EventKind::Begin(about) if !about.workload.is_empty() => format!(": {} on {}", about.workload, about.device),
        _ => String::new(),
    };
    let name = format!("device {}{what}", device.0);
    for row in DeviceTracks::ALL {
        let of = match row {
            DeviceTracks::Process => TrackKind::Process { pid: u32::from(device.0) + 1, name: &name },
            DeviceTracks::Steps => TrackKind::Slices { parent, name: "steps" },
            DeviceTracks::Phases => TrackKind::Slices { parent, name: "phases" },
            DeviceTracks::Ops => TrackKind::Slices { parent, name: "ops" },
            DeviceTracks::Marks => TrackKind::Slices { parent, name: "events" },
            DeviceTracks::Allocated => TrackKind::Bytes { parent, name: "allocated" },
            DeviceTracks::Reserved => TrackKind::Bytes { parent, name: "reserved" },
            DeviceTracks::Active => TrackKind::Bytes { parent, name: "active" },
        };
        packets.track(row.of(device), of)?;
    }
    Ok(())
}

/// Bytes that an event returns to the driver, if any.
fn released(device: &ExportedDevice, event: &Event) -> Option<Bytes> {
    match event.kind {
        EventKind::SegmentFree { address, size } | EventKind::SegmentUnmap { address, size } => {
            device.state().home(address).map(|_| size)
        }
        _ => None,
    }
}

/// Writes an event without duration.
fn mark(
    packets: &mut Packets<impl Write>,
    event: &Event,
    device: &ExportedDevice,
    released: Option<Bytes>,
    time: u64,
) -> io::Result<()> {
    let track = DeviceTracks::Marks.of(event.device);
    let mut tell = |name: &str, details: &[(&str, Detail<'_>)]| packets.instant(track, time, name, details);
    match &event.kind {
        EventKind::SegmentAlloc { address, size, stream, .. } => tell(
            "segment_alloc",
            &[
                ("address", Detail::Number(address.0)),
                ("size_bytes", Detail::Number(size.0)),
                ("stream", Detail::Number(stream.0)),
            ],
        ),
        EventKind::SegmentMap { address, size, stream, .. } => tell(
            "segment_map",
            &[
                ("address", Detail::Number(address.0)),
                ("size_bytes", Detail::Number(size.0)),
                ("stream", Detail::Number(stream.0)),
            ],
        ),
        EventKind::SegmentFree { address, .. } | EventKind::SegmentUnmap { address, .. } => {
            let Some(size) = released else { return Ok(()) };
            let is_free = matches!(event.kind, EventKind::SegmentFree { .. });
            let details = [("address", Detail::Number(address.0)), ("size_bytes", Detail::Number(size.0))];
            tell(if is_free { "segment_free" } else { "segment_unmap" }, &details)
        }
        EventKind::Oom(request) => tell(
            "out of memory",
            &[
                ("name", Detail::Text(device.name(request.name))),
                ("requested_bytes", Detail::Number(request.requested.0)),
                ("rounded_bytes", Detail::Number(request.rounded.0)),
                ("device_free_bytes", Detail::Number(request.device_free.0)),
            ],
        ),
        EventKind::EmptyCache => tell("empty_cache", &[]),
        EventKind::ResetPeaks => tell("reset_peak_memory_stats", &[]),
        EventKind::SwitchFlipped { switch, from, to } => {
            let text = |id| device.name(id);
            tell(
                &format!("{} {} → {}", text(*switch), text(*from), text(*to)),
                &[
                    ("switch", Detail::Text(text(*switch))),
                    ("from", Detail::Text(text(*from))),
                    ("to", Detail::Text(text(*to))),
                ],
            )
        }
        EventKind::Limit { limit: Some(limit) } => tell("limit", &[("limit_bytes", Detail::Number(limit.0))]),
        EventKind::Limit { limit: None } => tell("no limit", &[]),
        EventKind::Notice { text } | EventKind::Note { text } => tell("note", &[("text", Detail::Text(text))]),
        _ => Ok(()),
    }
}
