//! What if: another allocator, fed with the requests that a run made.
//!
//! * [`Conditions`]: its settings and bounds, from a text in PyTorch's syntax.
//! * [`Follower`]: follows a stream of events, a ghost beside the run.
//! * [`Program`]: the requests of a stream, read once and replayed under as many conditions as wanted ([`predict`]).
//! * [`ForkPeaks`]: what a change in the middle of a run would have done.
//! * [`RecordedRun`]: a whole run, its figures beside its requests.
//! * [`Repeater`]: steps that repeat, asked one after the other; [`StepsWriter`] reads them, [`StepLikeness`] tells them by
//!   those of a model with fewer layers.
//! * [`Tuning`]: settings that were tried on a program, and which of them nothing beats; [`smallest_limit`].
//!
//! Of a stream only what the program asked counts: blocks taken and given back, `empty_cache`, the limit, steps. What the
//! run's own allocator did about it (segments, retries) is not asked again. Under the conditions of the run itself the
//! figures are the run's own at the end of every step.
//!
//! # What a stream does not tell
//!
//! * **When another stream was done with a block.** Its bytes can be used again when they could in the run. Where a request
//!   made the run wait for all streams, they can from that request on; one that a request under these conditions waits for
//!   is usable at once.
//! * **The memory of the device**, unless it is given ([`Conditions::device`]): then only a limit makes a request fail.
//! * **Where the driver puts segments** decides which of two free blocks of one size is used. Streams of vramlab come from a
//!   driver that is simulated, and the same one answers here ([`Places::Simulated`]); the history of a stranger's GPU
//!   shows its places ([`Places::Recorded`]), which are taken while a request asks the driver for the same size as it did then.
//! * **What the program would have done about a failure.** A request that fails here and did not in the run is left out, with its
//!   block; one that failed in the run and does not here is given back at once, as the run gave its step up.

mod ask;
mod block_number;
mod conditions;
mod driver;
mod figures;
mod follower;
mod fork;
mod limit;
mod player;
mod pools;
mod program;
mod quiet;
mod reader;
mod recorded;
mod repeated;
mod start;
mod step;
mod tuning;

pub use conditions::{Conditions, ConditionsError};
pub use driver::Places;
pub use figures::{Figures, StepPeaks};
pub use follower::{BlockAtStart, Follower};
pub use fork::ForkPeaks;
pub use limit::smallest_limit;
pub use program::{Outcome, Program, ProgramWriter, predict};
pub use recorded::{Facts, FactsWriter, LimitRange, RecordedRun, RecordedWriter};
pub use repeated::{FirstStep, NotRepeated, Repeater, StepsWriter};
pub use start::StartState;
pub use step::{Step, StepLikeness};
pub use tuning::{Effort, Tuning, TuningTrial};
