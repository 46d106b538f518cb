//! What if: another allocator gets the requests that a run made.
//!
//! * [`Conditions`]: settings and limits, from a text in PyTorch's syntax.
//! * [`Follower`]: follows a stream of events, a ghost beside the run.
//! * [`Program`]: the requests of a stream, read once and replayed under any number of conditions ([`predict`]).
//! * [`ForkPeaks`]: what a change in the middle of a run would have done.
//! * [`RecordedRun`]: a whole run, with its figures and its requests.
//! * [`Repeater`]: plays steps that repeat, one after the other. [`StepsWriter`] reads them, and [`StepLikeness`]
//!   derives them from the steps of a model with fewer layers.
//! * [`Tuning`]: settings that were tried on a program, and which of them are not beaten by any other; [`smallest_limit`].
//!
//! Only the program's own calls in a stream count: allocations and frees, `empty_cache`, the limit, steps. The
//! reactions of the run's own allocator (segments, retries) are not repeated. Under the run's own conditions the
//! figures at the end of every step are the run's own.
//!
//! # What a stream does not show
//!
//! * **When another stream had finished with a block.** The block can be reused when it could in the run. If a request
//!   made the run wait for all streams, its blocks can be reused from that request on. A block that a request under
//!   these conditions waits for is usable at once.
//! * **The device's memory**, unless it is given ([`Conditions::device`]). Without it only a limit makes requests fail.
//! * **Where the driver places segments**, which decides between two free blocks of one size. vramlab's own streams
//!   come from a simulated driver, and the same driver is used here ([`Places::Simulated`]). The history of a real GPU
//!   shows its places ([`Places::Recorded`]), which are used as long as a request asks the driver for the same size as
//!   in the history.
//! * **How the program would have reacted to a failure.** A request that fails here but not in the run is left out,
//!   with its block. A request that failed in the run but not here is freed at once, because the run gave up its step.

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
