//! The description of a lab.

use std::sync::Arc;

use thiserror::Error;

use super::{MemoryLimit, Pace, Parallel, Setup, Speed};
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_allocator::{DeviceMemory, Settings, TorchVersion};
use vramlab_device::cpu::{CpuDevice, CpuOptions};
use vramlab_device::cuda::{self, CudaDevice};
use vramlab_device::sim::{Card, SimDevice};
use vramlab_device::{Device, DeviceError, KernelTimes, ProfiledDevice};
use vramlab_model::{About, DeviceKind, EventKind, Items};
use vramlab_train::{
    Config, DataPath, Libraries, LoopStyle, Member, Observer, Seat, Timetable, TrainError, Trainer, TrainerOptions,
};
use vramlab_workload::{
    Architecture, CatalogError, CheckpointLoad, CheckpointWorkload, Data, Inference, InferencePlan, Sizes,
    WorkloadEntry, WorkloadGroup,
};

/// The device to train on.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its index among the visible ones.
    Cuda(u32),
    /// A simulated GPU.
    Sim(Box<Card>),
}

impl DeviceChoice {
    /// The best device here: the first GPU if CUDA can train on it, otherwise the processor. Cheap: opens nothing.
    #[must_use]
    pub fn best() -> Self {
        if cuda::usable(0).is_ok() { Self::Cuda(0) } else { Self::Cpu }
    }

    /// The kind of device that a run's figures come from.
    #[must_use]
    pub const fn kind(&self) -> DeviceKind {
        match self {
            Self::Cpu => DeviceKind::Processor,
            Self::Cuda(_) => DeviceKind::Gpu,
            Self::Sim(_) => DeviceKind::Simulated,
        }
    }

    /// Its memory, and how much is free before anything runs; `None` if only the device knows.
    fn memory(&self) -> Option<DeviceMemory> {
        match self {
            Self::Sim(card) => {
                Some(DeviceMemory { free: card.memory.saturating_sub(card.context()), total: card.memory })
            }
            Self::Cpu | Self::Cuda(_) => None,
        }
    }

    /// Opens the device. Also returns what PyTorch's libraries would see of it.
    ///
    /// # Errors
    /// The device's own explanation why it can't be used.
    pub fn open(&self) -> Result<(Box<dyn Device>, Libraries), DeviceError> {
        Ok(match self {
            Self::Cpu => {
                let device = CpuDevice::open(CpuOptions { memory: None, threads: None })?;
                (Box::new(device), Libraries::PROCESSOR)
            }
            Self::Cuda(ordinal) => {
                let device = CudaDevice::open(*ordinal)?;
                let (compute_capability, multiprocessors) = device.capability();
                let multiprocessors = usize::try_from(multiprocessors).unwrap_or(usize::MAX);
                (Box::new(device), Libraries { compute_capability, multiprocessors, workspaces: true })
            }
            Self::Sim(card) => {
                let libraries = Libraries {
                    compute_capability: card.compute_capability,
                    multiprocessors: card.multiprocessors,
                    workspaces: true,
                };
                (Box::new(SimDevice::new((**card).clone())), libraries)
            }
        })
    }
}

/// What to train, how, and on which device. Becomes a [`Trainer`] on the thread that trains.
#[derive(Clone, Debug)]
pub struct LabSpec {
    /// The workload.
    pub workload: WorkloadEntry,
    /// Sizes that override the workload's own.
    pub sizes: Sizes,
    /// The training data.
    pub data: Data,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The switches at the start.
    pub config: Config,
    /// The device.
    pub device: DeviceChoice,
    /// The speed of a simulated device's clock.
    pub speed: Speed,
    /// The allocator's settings.
    pub settings: Settings,
    /// The allocator's settings as they were written.
    pub alloc_conf: Arc<str>,
    /// The most that may be reserved; `None` for all of the device's memory.
    pub limit: Option<MemoryLimit>,
    /// The number of steps; `None` to train without end.
    pub steps: Option<u64>,
    /// True if the run pauses before its first step until a command lets it go on.
    pub rests: bool,
    /// Runs the model like this instead of training it.
    pub inference: Option<InferencePlan>,
    /// Loads the weights from a checkpoint like this.
    pub load: Option<CheckpointLoad>,
    /// The size of a segment that is allocated before anything else and kept, as a pool from which the rest is cut.
    pub preallocate: Option<MemoryLimit>,
    /// Times every kernel by itself, and writes the times here.
    pub kernels: Option<KernelTimes>,
    /// How ranks train together on the device. The batch is that of all ranks.
    pub parallel: Option<Parallel>,
    /// True if each rank is a process of its own.
    pub apart: bool,
    /// Its place among several ranks. The batch is then this rank's own.
    pub member: Option<Member>,
    /// Where it meets the other ranks, on a device that holds bytes.
    pub seat: Option<Arc<Seat>>,
    /// When the stages of a simulated pipeline work. Shared by all of its ranks.
    pub timetable: Option<Arc<Timetable>>,
    /// The index of the device in the run, which all of its events carry.
    pub index: DeviceIndex,
}

/// Why a lab can't start.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The device can't be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The workload can't be built.
    #[error(transparent)]
    Workload(#[from] CatalogError),
    /// The model does not fit.
    #[error("the model {name} does not fit in {limit}: {cause}")]
    TooSmall {
        /// The workload.
        name: String,
        /// The available memory.
        limit: Bytes,
        /// The error.
        cause: TrainError,
    },
    /// Any other error of training.
    #[error(transparent)]
    Train(TrainError),
}

impl BuildError {
    /// True if the device is gone.
    pub(super) const fn lost(&self) -> bool {
        matches!(
            self,
            Self::Device(DeviceError::Lost { .. }) | Self::Train(TrainError::Device(DeviceError::Lost { .. }))
        )
    }
}

impl LabSpec {
    /// `workload` as it is, on the processor.
    #[must_use]
    pub fn new(workload: WorkloadEntry) -> Self {
        let data = workload.data.data();
        let mut config = Config { data: data.path(), ..Config::new(workload.batch.get()) };
        config.hyper.adam_lr = workload.learning_rate.adam.unwrap_or(config.hyper.adam_lr);
        config.hyper.sgd_lr = workload.learning_rate.sgd.unwrap_or(config.hyper.sgd_lr);
        Self {
            workload,
            sizes: Sizes::default(),
            data,
            seed: 1,
            config,
            device: DeviceChoice::Cpu,
            speed: Speed::Max,
            settings: Settings::default(),
            alloc_conf: "".into(),
            limit: None,
            steps: None,
            rests: false,
            inference: None,
            load: None,
            preallocate: None,
            kernels: None,
            parallel: None,
            apart: false,
            member: None,
            seat: None,
            timetable: None,
            index: DeviceIndex::FIRST,
        }
    }

    /// All switches at the start.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let torch = self.settings.torch();
        Setup { config: self.config, limit: self.limit, alloc_conf: Arc::clone(&self.alloc_conf), torch }
    }

    /// The same run from the start, with the current switches.
    pub(super) fn under(self, setup: &Setup) -> Self {
        Self {
            config: setup.config,
            limit: setup.limit,
            // Settings that were refused are not in force.
            settings: Settings::parse_for(setup.torch, &setup.alloc_conf).unwrap_or(self.settings),
            alloc_conf: Arc::clone(&setup.alloc_conf),
            ..self
        }
    }

    /// The same run on the processor from the start, with the current switches.
    pub(super) fn on_processor(self, setup: &Setup) -> Self {
        // A pool sized as a share of the GPU was meant for the GPU.
        Self { device: DeviceChoice::Cpu, preallocate: None, apart: false, ..self.under(setup) }
    }

    /// The first events of a run: what it trains, and the device's memory if that is known.
    pub(super) fn beginning(&self) -> impl Iterator<Item = EventKind> {
        let memory = self.memory().map(EventKind::DeviceMemory);
        std::iter::once(EventKind::Begin(Arc::new(self.about(None)))).chain(memory)
    }

    /// The description in the header. Parameters, and the switches in force, are known once there is a trainer.
    #[must_use]
    pub fn about(&self, trainer: Option<&Trainer>) -> About {
        let parameters = trainer.map_or_else(String::new, |trainer| match trainer.parameter_count() {
            0 => String::new(),
            n @ 1..1_000 => format!("{n} parameters · "),
            n @ 1_000..1_000_000 => format!("{}k parameters · ", n / 1_000),
            n => format!("{:.1}M parameters · ", n as f64 / 1e6),
        });
        let trained = trainer
            .filter(|trainer| trainer.trained_count() < trainer.parameter_count())
            .map_or_else(String::new, |trainer| format!("{:.1}M trained · ", trainer.trained_count() as f64 / 1e6));
        let sequence = match &self.data {
            Data::Lengths(lengths) => match self.workload.packed(lengths.clone(), self.sizes).rows() {
                [shortest, longest] if shortest < longest => format!(" T{shortest}–{longest}"),
                [row, _] => format!(" T{row}"),
            },
            _ => self.workload.sequence(self.sizes).map_or_else(String::new, |seq| format!(" T{seq}")),
        };
        let config = trainer.map_or(&self.config, Trainer::config);
        let ops = if config.fuse { "fused" } else { "eager" };
        // The ops were measured with one version.
        let allocator = match self.settings.torch() {
            TorchVersion::V2_11 => String::new(),
            torch => format!(" · allocator of PyTorch {torch}, ops of {}", TorchVersion::V2_11),
        };
        let rank = match (self.member, self.parallel) {
            (Some(Member { parallelism, world }), _) => {
                format!("{parallelism}, rank {} of {} · ", world.rank(), world.size())
            }
            (None, Some(Parallel { parallelism, ranks })) => format!("{parallelism}, {ranks} ranks · "),
            (None, None) => String::new(),
        };
        About {
            workload: self.workload.name.as_str().into(),
            detail: format!("{rank}{parameters}{trained}B{}{sequence} · {ops}{allocator}", config.batch).into(),
            device: match (&self.device, trainer) {
                (_, Some(trainer)) => format!("{} · {}", trainer.device_info().id, trainer.device_info().name).into(),
                (DeviceChoice::Cpu, None) => "cpu".into(),
                (DeviceChoice::Cuda(ordinal), None) => format!("cuda:{ordinal}").into(),
                (DeviceChoice::Sim(card), None) => format!("sim:{} · {}", card.name, card.title).into(),
            },
            kind: self.device.kind(),
            items: self.items(),
            torch: self.settings.torch(),
            guessed: false,
            history: None,
        }
    }

    /// The pace of a run of this spec; a real device runs as fast as it can.
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace::new(if matches!(self.device, DeviceChoice::Sim(_)) { self.speed } else { Speed::Max })
    }

    /// The unit of throughput.
    #[must_use]
    pub fn items(&self) -> Items {
        match self.workload.group() {
            WorkloadGroup::Images => Items::Images,
            _ if self.workload.sequence(self.sizes).is_some() => Items::Tokens,
            _ => Items::Samples,
        }
    }

    /// The device's memory, and how much is free before anything runs; `None` if only the device knows. NCCL takes some
    /// in addition to a rank's context.
    #[must_use]
    pub fn memory(&self) -> Option<DeviceMemory> {
        match &self.device {
            DeviceChoice::Sim(card) if self.parallel.is_some() => {
                DeviceChoice::Sim(Box::new(Card::clone(card).of_rank())).memory()
            }
            device => device.memory(),
        }
    }

    /// Opens the device, and builds the model and its data.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(&self, observer: Box<dyn Observer>) -> Result<Trainer, BuildError> {
        let (device, libraries) = self.device.open()?;
        let device = match &self.kernels {
            Some(times) => Box::new(ProfiledDevice::new(device, times.clone())),
            None => device,
        };
        self.build_on(device, libraries, observer, false)
    }

    /// Builds on a device that is already open. If it is `watched`, nothing may access memory outside live blocks.
    pub(super) fn build_on(
        &self,
        device: Box<dyn Device>,
        libraries: Libraries,
        observer: Box<dyn Observer>,
        watched: bool,
    ) -> Result<Trainer, BuildError> {
        let trained = self.workload.workload(self.sizes, self.data.clone(), self.seed)?;
        let trained = match self.load {
            Some(loading) => Box::new(CheckpointWorkload::new(trained, loading)),
            None => trained,
        };
        let workload = match self.inference {
            Some(plan) => Box::new(Inference::new(trained, plan)),
            None => trained,
        };
        let memory = device.info().memory;
        let options = TrainerOptions {
            rank: self.index,
            member: self.member,
            seat: self.seat.clone(),
            timetable: self.timetable.clone(),
            workspaces: libraries,
            settings: self.settings.clone(),
            limit: self.limit.map(|limit| limit.of(memory)),
            preallocate: self.preallocate.map(|pool| pool.of(memory)),
            // The recorded programs with fresh batches have the shortest loop.
            watched,
            style: match (self.config.data, self.workload.model) {
                (DataPath::Fresh, _) => LoopStyle::Plain,
                (_, Architecture::Cs336 | Architecture::Llama) => LoopStyle::Logging,
                _ => LoopStyle::Accumulating,
            },
        };
        Trainer::new(device, workload, self.config, options, observer).map_err(|error| match error {
            TrainError::OutOfMemory { .. } => BuildError::TooSmall {
                name: self.workload.name.clone(),
                limit: self.limit.map_or(memory, |limit| limit.of(memory)),
                cause: error,
            },
            other => BuildError::Train(other),
        })
    }
}

#[cfg(test)]
impl LabSpec {
    /// A workload of the catalog on a simulated H200.
    pub(super) fn on_h200(workload: &str) -> Self {
        let entry = vramlab_workload::Catalog::with_user_workloads(None).entry(workload).unwrap();
        let card = vramlab_device::sim::CardCatalog::with_user_cards(None).card("h200").unwrap();
        Self { device: DeviceChoice::Sim(Box::new(card)), ..Self::new(entry) }
    }
}
