//! Small programs of requests to the allocator: they do what no training step does, and run on every device.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::unfit::{Unfit, tell_driver};
use crate::allocator::Settings;
use crate::device::{DType, Sensors};
use crate::figures::{Figure, FigureInputs, Figures};
use crate::model::{Category, Event, EventKind, Lab, Reading};
use crate::session::DeviceChoice;
use crate::train::{Answer, Interrupt, Memory, Observer, SafePoint, Shape, Tensor, TrainError};
use crate::units::Bytes;

/// How long the driver may take to report the used memory.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// A line of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramLine {
    /// Makes a tensor of this many bytes.
    Alloc {
        /// Its name.
        name: String,
        /// The requested bytes.
        bytes: Bytes,
    },
    /// Drops a tensor.
    Free {
        /// Its name.
        name: String,
    },
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// Gives the current figures a name.
    Mark(String),
}

impl ProgramLine {
    /// Parses a line: `alloc x 4000000`, `free x`, `empty_cache`, `mark before`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["alloc", name, ref size @ ..] if !size.is_empty() => {
                let bytes = size.join(" ").parse::<Bytes>()?;
                Ok(Self::Alloc { name: name.to_owned(), bytes })
            }
            ["free", name] => Ok(Self::Free { name: name.to_owned() }),
            ["empty_cache"] => Ok(Self::EmptyCache),
            ["mark", name] => Ok(Self::Mark(name.to_owned())),
            _ => Err(format!("'{line}' is no request; write alloc NAME BYTES, free NAME, empty_cache or mark NAME")),
        }
    }

    /// The mark that it sets.
    #[must_use]
    pub fn mark(&self) -> Option<&str> {
        if let Self::Mark(name) = self { Some(name) } else { None }
    }

    /// The same line in Python.
    #[must_use]
    pub fn in_pytorch(&self) -> Option<String> {
        match self {
            Self::Alloc { name, bytes } => {
                Some(format!("{name} = torch.empty({}, dtype=torch.uint8, device=\"cuda\")", bytes.get()))
            }
            Self::Free { name } => Some(format!("del {name}")),
            Self::EmptyCache => Some("torch.cuda.empty_cache()".to_owned()),
            Self::Mark(_) => None,
        }
    }
}

/// Checks that every freed tensor exists.
///
/// # Errors
/// A sentence, with the index of the impossible line.
pub(super) fn check(requests: &[ProgramLine]) -> Result<(), (usize, String)> {
    let mut alive: Vec<&str> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        match request {
            ProgramLine::Alloc { name, .. } if alive.contains(&name.as_str()) => {
                return Err((index, format!("{name} is there already; free it before")));
            }
            ProgramLine::Alloc { name, .. } => alive.push(name),
            ProgramLine::Free { name } => match alive.iter().position(|known| known == name) {
                Some(position) => drop(alive.remove(position)),
                None => return Err((index, format!("nothing is called {name} here"))),
            },
            ProgramLine::EmptyCache | ProgramLine::Mark(_) => {}
        }
    }
    Ok(())
}

/// Feeds the allocator's events to the model.
struct ModelFollower(Rc<RefCell<Lab>>);

impl Observer for ModelFollower {
    fn event(&mut self, event: Event) {
        self.0.borrow_mut().apply(&event);
    }

    fn safe_point(&mut self, _: SafePoint) -> Answer {
        Answer::Continue
    }
}

/// Runs a program on a device from a clean state; `mark` gets the figures of every mark.
///
/// # Errors
/// [`Unfit`].
pub(super) fn run(
    requests: &[ProgramLine],
    device: &DeviceChoice,
    mut mark: impl FnMut(&str, Figures),
) -> Result<Figures, Unfit> {
    let (opened, _) = device.open().map_err(|error| Unfit(error.to_string()))?;
    let sensors = opened.sensors();
    let lab = Rc::new(RefCell::new(Lab::new()));
    let memory = Memory::new(opened, Settings::default(), Box::new(ModelFollower(Rc::clone(&lab))));
    // A process has no CUDA context before its first tensor.
    let used = Cell::new(false);
    let look = || figures(&memory, &lab, device, sensors.as_ref(), used.get());
    let mut tensors: Vec<(&str, Tensor)> = Vec::new();
    for request in requests {
        match request {
            ProgramLine::Alloc { name, bytes } => {
                used.set(true);
                let size = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
                let made = memory.tensor(Shape::new(&[size]), DType::U8, Category::Other, "tensor");
                match made {
                    Ok(tensor) => tensors.push((name, tensor)),
                    Err(Interrupt::Failed(TrainError::OutOfMemory { .. })) => {
                        return Err(Unfit(format!("{bytes} do not fit in its memory")));
                    }
                    Err(error) => return Err(Unfit(TrainError::from(error).to_string())),
                }
            }
            ProgramLine::Free { name } => tensors.retain(|(known, _)| known != name),
            ProgramLine::EmptyCache => memory.empty_cache(),
            ProgramLine::Mark(name) => mark(name, look()),
        }
    }
    Ok(look())
}

fn figures(
    memory: &Memory,
    lab: &RefCell<Lab>,
    device: &DeviceChoice,
    sensors: Option<&Sensors>,
    used: bool,
) -> Figures {
    if let Some(reading) = sensors.and_then(fresh) {
        lab.borrow_mut().apply(&Event::new(memory.now(), EventKind::Reading(reading.into())));
    }
    let (view, statistics) = (lab.borrow_mut().view(), memory.statistics());
    let device_memory = Some(memory.device_info().memory);
    let mut figures = Figures::of(&FigureInputs { view: &view, statistics: Some(&statistics), device_memory });
    if used {
        tell_driver(&mut figures, device, view.ledger.reserved());
    } else if let (DeviceChoice::Sim(_), Some(driver)) = (device, Figure::named("driver_used")) {
        figures.set(driver, 0.0);
    }
    figures
}

/// A reading of the driver that was taken after this call.
fn fresh(sensors: &Sensors) -> Option<Reading> {
    drop(sensors.take());
    let asked = Instant::now();
    // A reading that is already under way may be older than the last request.
    let mut seen = 0;
    while asked.elapsed() < LONGEST_WAIT {
        if let Some(reading) = sensors.take() {
            seen += 1;
            if seen == 2 {
                return Some(reading);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_nonsense_is_refused() {
        let alloc = |name: &str, bytes| ProgramLine::Alloc { name: name.to_owned(), bytes };
        assert_eq!(ProgramLine::parse("alloc x 4000000"), Ok(alloc("x", Bytes(4_000_000))));
        assert_eq!(ProgramLine::parse(" alloc  x 2 MiB "), Ok(alloc("x", Bytes::mib(2))));
        assert_eq!(ProgramLine::parse("empty_cache"), Ok(ProgramLine::EmptyCache));
        for wrong in ["", "alloc", "alloc x", "alloc x much", "free", "free x y", "empty_cache now", "mark", "sell x"] {
            assert!(!ProgramLine::parse(wrong).unwrap_err().is_empty(), "{wrong}");
        }
        let free = ProgramLine::Free { name: "x".to_owned() };
        assert_eq!(check(std::slice::from_ref(&free)).unwrap_err().0, 0);
        assert_eq!(check(&[alloc("x", Bytes(1)), alloc("x", Bytes(1))]).unwrap_err().0, 1);
        assert_eq!(check(&[alloc("x", Bytes(1)), free]), Ok(()));
    }
}
