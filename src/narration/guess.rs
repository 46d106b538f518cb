//! Guesses the categories of a PyTorch program's blocks, which a snapshot does not record.
//!
//! First, the stack of each request shows what the program was doing, by the innermost frame with a meaning.
//! `torch/optim`, a gradient scaler or the clipping of gradients mean the optimizer. `backward` or `torch/autograd`
//! mean backward, and so does a request without any Python stack if other requests have one, because the autograd
//! engine runs on its own threads. `torch/nn` and `forward` mean forward; `__init__`, `_apply`, `reset_parameters` and
//! the like mean that a model is set up; a data loader means data. `torch.distributed`, DDP and FSDP exchange, gather
//! and reduce. If the stack shows nothing, the scopes that PyTorch recorded (`Optimizer.step#…`) do. Without any
//! stacks, everything before the fullest moment between two optimizer scopes is forward, and the rest backward. In a
//! part of a history that goes on, a request without a stack is taken to do what an earlier request of the same size
//! after the same two sizes did.
//!
//! Second, the category of a block follows from when it was allocated and how long it lived:
//!
//! | allocated | lives | category |
//! |---|---|---|
//! | by the optimizer | beyond its run | optimizer state |
//! | | | a temporary |
//! | in backward | beyond it, of a parameter's size (or none is known) | a gradient |
//! | | for ever, of no parameter's size | a workspace |
//! | | | a temporary |
//! | in backward, by a forward that runs again | into what follows | an activation |
//! | by a set-up, or before the first step of a size that gradients have | beyond the first backward | a parameter |
//! | before the first step, of no such size | beyond the first backward | an input |
//! | | | a temporary |
//! | in forward, but for the last | for ever, and no other of its size does | a workspace |
//! | in forward | into backward | an activation |
//! | | | a temporary |
//! | for data, or by the loop itself | beyond backward | an input |
//! | to exchange data with other ranks: DDP's buckets, blocks that an all-gather fills | | communication |
//! | to gather the shards of a parameter, or for an all-gather that fills parameters themselves | | a parameter |
//! | to reduce gradients to shards | beyond backward | a gradient |
//! | | | communication |
//!
//! Screens and exports with such categories say that they are guessed ([`vramlab_model::About::guessed`]).

use std::collections::{HashMap, HashSet};

use super::doing::{ProgramPhase, doing, of_scope};
use super::rhythm::Rhythm;
use vramlab_allocator::units::{Address, Bytes};
use vramlab_model::{Category, Micros, Phase};
use vramlab_snapshot::{Action, Annotation, Beginning, Snapshot, StackId, TraceEntry};

/// The categories of blocks, by the entries that allocated them.
#[derive(Debug)]
pub struct Guesses {
    categories: Vec<Category>,
    /// The ops of ranks that allocated blocks, by entry, in order.
    ops: Vec<(u32, &'static str)>,
    /// The phases in which blocks were allocated, by entry, in order.
    phases: Vec<(u32, Phase)>,
    exchanges: bool,
}

/// A request, with indices of trace entries.
#[derive(Clone, Copy, Debug)]
struct TraceRequest {
    at: u32,
    /// The entry of the free, or [`NEVER`].
    freed: u32,
    size: Bytes,
    doing: ProgramPhase,
}

/// An index behind every entry.
const NEVER: u32 = u32::MAX;

impl Guesses {
    /// The categories of the blocks in a device's history, given what existed when it began; `None` if nothing shows
    /// what the program was doing.
    #[must_use]
    pub fn of(snapshot: &Snapshot, device: usize, beginning: &Beginning) -> Option<Self> {
        let trace = snapshot.device_trace(device);
        let requests = requests(snapshot, device, trace);
        let tells = |request: &TraceRequest| {
            matches!(request.doing, ProgramPhase::Forward | ProgramPhase::Backward | ProgramPhase::Optimizer)
        };
        let told = requests.filter(|requests| requests.iter().any(tells))?;
        let held = beginning.space.blocks().map(|(_, held)| held.requested).collect();
        Some(Self::from(told, trace.len(), Earlier { held, ..Earlier::default() }))
    }

    /// The categories in a part of a history that goes on. The part may end anywhere, and parameters of these sizes
    /// were allocated before it.
    pub(super) fn of_part(snapshot: &Snapshot, device: usize, parameters: Vec<Bytes>, rhythm: &mut Rhythm) -> Self {
        let trace = snapshot.device_trace(device);
        let mut requests = requests(snapshot, device, trace).unwrap_or_default();
        let trains = !rhythm.is_empty();
        if has_stacks(trace) {
            requests.iter().for_each(|request| rhythm.learn(request.size, request.doing));
        } else {
            for request in &mut requests {
                let known = rhythm.doing(request.size);
                if request.doing == ProgramPhase::Unknown {
                    request.doing = known;
                }
            }
        }
        Self::from(requests, trace.len(), Earlier { held: parameters, trains, is_part: true })
    }

    fn from(mut requests: Vec<TraceRequest>, entries: usize, earlier: Earlier) -> Self {
        let mut categories = vec![Category::Other; entries];
        let ops = requests.iter().filter_map(|request| Some((request.at, request.doing.op()?))).collect();
        let phases = requests.iter().filter_map(|request| Some((request.at, request.doing.phase()?))).collect();
        let exchanges = requests.iter().any(|request| request.doing.is_of_ranks());
        conclude(&mut requests, earlier, |at, category| {
            if let Some(of) = categories.get_mut(at as usize) {
                *of = category;
            }
        });
        Self { categories, ops, phases, exchanges }
    }

    /// The category of the block that a trace entry allocated.
    #[must_use]
    pub fn category(&self, entry: usize) -> Category {
        self.categories.get(entry).copied().unwrap_or_default()
    }

    /// The phase in which a trace entry allocated a block, if that is known.
    #[must_use]
    pub fn phase(&self, entry: usize) -> Option<Phase> {
        let place = self.phases.binary_search_by_key(&entry, |(at, _)| *at as usize).ok()?;
        self.phases.get(place).map(|(_, phase)| *phase)
    }

    /// True if anything was allocated because several ranks train together.
    #[must_use]
    pub const fn exchanges(&self) -> bool {
        self.exchanges
    }

    /// The op in which a trace entry allocated a block, if it is one of the ops of ranks that findings depend on.
    #[must_use]
    pub fn op(&self, entry: usize) -> Option<&'static str> {
        let place = self.ops.binary_search_by_key(&entry, |(at, _)| *at as usize).ok()?;
        self.ops.get(place).map(|(_, op)| *op)
    }
}

/// What is known of the time before the first entry.
#[derive(Default)]
struct Earlier {
    /// Sizes of the blocks held then: parameters, if the program had built its model.
    held: Vec<Bytes>,
    /// True if the program was already seen to train, so that its requests are not part of a set-up.
    trains: bool,
    /// True if the entries are a part of a history that goes on, and may end anywhere.
    is_part: bool,
}

fn has_stacks(trace: &[TraceEntry]) -> bool {
    trace.iter().any(|entry| entry.action == Action::Alloc && entry.stack != StackId::EMPTY)
}

/// All requests in order, with what the program was doing; `None` if there are too many.
fn requests(snapshot: &Snapshot, device: usize, trace: &[TraceEntry]) -> Option<Vec<TraceRequest>> {
    if trace.len() >= NEVER as usize {
        return None;
    }
    let mut scopes = ScopeCursor::of(snapshot, device);
    let mut stacks: HashMap<StackId, ProgramPhase> = HashMap::new();
    let has_stacks = has_stacks(trace);
    let mut live: HashMap<Address, usize> = HashMap::new();
    let mut requests: Vec<TraceRequest> = Vec::new();
    for (at, entry) in (0_u32..).zip(trace) {
        match entry.action {
            Action::Alloc => {
                let scope = scopes.at(entry.time);
                let told = match entry.stack {
                    StackId::EMPTY if has_stacks => ProgramPhase::Backward,
                    StackId::EMPTY => ProgramPhase::Unknown,
                    stack => *stacks.entry(stack).or_insert_with(|| doing(snapshot, stack)),
                };
                let doing = if told == ProgramPhase::Unknown { scope } else { told };
                live.insert(entry.address, requests.len());
                requests.push(TraceRequest { at, freed: NEVER, size: entry.size, doing });
            }
            // A program may record only the completion of a free. If it records both, the request comes first.
            Action::FreeRequested | Action::FreeCompleted => {
                if let Some(request) = live.remove(&entry.address).and_then(|index| requests.get_mut(index)) {
                    request.freed = at;
                }
            }
            _ => {}
        }
    }
    if !has_stacks {
        split_steps(&mut requests);
    }
    Some(requests)
}

/// Tells forward from backward by the fullest moment between two runs of the optimizer.
fn split_steps(requests: &mut [TraceRequest]) {
    if !requests.iter().any(|request| request.doing == ProgramPhase::Optimizer) {
        return;
    }
    let mut frees: Vec<(u32, Bytes)> = requests.iter().map(|request| (request.freed, request.size)).collect();
    frees.sort_unstable();
    let (mut held, mut next) = (0_u64, 0);
    let (mut begin, mut fullest) = (0, (0, 0));
    for index in 0..=requests.len() {
        let request = requests.get(index).copied();
        if request.is_none_or(|request| request.doing == ProgramPhase::Optimizer) {
            for (at, part) in (begin..).zip(&mut requests[begin..index]) {
                if part.doing == ProgramPhase::Unknown {
                    part.doing = if at <= fullest.1 { ProgramPhase::Forward } else { ProgramPhase::Backward };
                }
            }
            (begin, fullest) = (index + 1, (0, index + 1));
        }
        let Some(request) = request else { break };
        while let Some((_, size)) = frees.get(next).filter(|(freed, _)| *freed < request.at) {
            held = held.saturating_sub(size.get());
            next += 1;
        }
        held = held.saturating_add(request.size.get());
        if held > fullest.0 {
            fullest = (held, index);
        }
    }
}

/// Decides the category of every request's block.
fn conclude(requests: &mut [TraceRequest], earlier: Earlier, mut told: impl FnMut(u32, Category)) {
    let first = |wanted: fn(ProgramPhase) -> bool| {
        requests.iter().find(|request| wanted(request.doing)).map_or(NEVER, |request| request.at)
    };
    let first_step = first(|doing| {
        matches!(doing, ProgramPhase::Data | ProgramPhase::Forward | ProgramPhase::Backward | ProgramPhase::Optimizer)
    });
    let Earlier { held, trains, is_part } = earlier;
    // Blocks that a set-up holds at the end count as kept even without a backward: the part ends too early, memory ran
    // out, or nothing is trained.
    let first_backward = first(|doing| doing == ProgramPhase::Backward).min(NEVER - 1);
    let is_set_up = |request: &TraceRequest| {
        request.doing == ProgramPhase::SetUp || !trains && request.at < first_step && !request.doing.is_of_ranks()
    };
    let stays = |request: &TraceRequest| is_set_up(request) && request.freed > first_backward;
    let mut parameters: Vec<Bytes> = requests.iter().filter(|request| stays(request)).map(|of| of.size).collect();
    parameters.extend(held);
    parameters.sort_unstable();
    parameters.dedup();
    let is_sized = |size: Bytes| parameters.is_empty() || parameters.binary_search(&size).is_ok();
    let gradients = outliving_backward(requests);
    // Without a backward nothing is known about gradients.
    let has_gradient = |size: Bytes| gradients.is_empty() || gradients.contains(&size);
    let mut for_ever: HashMap<Bytes, u32> = HashMap::new();
    for request in requests.iter().filter(|request| request.doing == ProgramPhase::Forward && request.freed == NEVER) {
        *for_ever.entry(request.size).or_default() += 1;
    }
    // From the last to the first, so that what follows is known. At the end of the trace everything goes on.
    let end = NEVER - 1;
    let (mut beyond_backward, mut beyond_optimizer, mut next_backward, mut backward_end, mut next_forward) =
        (end, end, end, end, end);
    for request in requests.iter().rev() {
        let outlives = |at: u32| request.freed > at;
        let saved = || if outlives(next_backward) { Category::Activation } else { Category::Temporary };
        let category = match request.doing {
            ProgramPhase::Gather | ProgramPhase::GatherInPlace => Category::Parameter,
            ProgramPhase::Reduce if outlives(beyond_backward) => Category::Gradient,
            ProgramPhase::Exchange
            | ProgramPhase::Stage
            | ProgramPhase::Bucket
            | ProgramPhase::AllGather
            | ProgramPhase::Reduce => Category::Communication,
            ProgramPhase::SetUp if stays(request) => Category::Parameter,
            _ if stays(request) && has_gradient(request.size) => Category::Parameter,
            _ if stays(request) => Category::Input,
            _ if is_set_up(request) => Category::Temporary,
            ProgramPhase::Optimizer if outlives(beyond_optimizer) => Category::OptimizerState,
            ProgramPhase::Backward if !outlives(beyond_backward) => Category::Temporary,
            ProgramPhase::Backward if is_sized(request.size) => Category::Gradient,
            // The part ends within this backward.
            ProgramPhase::Backward if is_part && beyond_backward == end => Category::Temporary,
            ProgramPhase::Backward if request.freed == NEVER => Category::Workspace,
            // A later part may free the block. Libraries allocate their workspaces in the first part.
            ProgramPhase::Forward
                if request.freed == NEVER
                    && backward_end != end
                    && for_ever.get(&request.size) == Some(&1)
                    && !(is_part && trains) =>
            {
                Category::Workspace
            }
            ProgramPhase::Data if outlives(next_forward) => Category::Input,
            ProgramPhase::Unknown if next_backward != end && outlives(backward_end) => Category::Input,
            ProgramPhase::Forward | ProgramPhase::Recompute | ProgramPhase::Unknown => saved(),
            ProgramPhase::Backward | ProgramPhase::Optimizer | ProgramPhase::Data | ProgramPhase::SetUp => {
                Category::Temporary
            }
        };
        told(request.at, category);
        match request.doing {
            ProgramPhase::Backward => (next_backward, backward_end) = (request.at, beyond_backward),
            ProgramPhase::Forward => next_forward = request.at,
            _ => {}
        }
        if request.doing.is_of_ranks() {
            continue;
        }
        if !matches!(request.doing, ProgramPhase::Backward | ProgramPhase::Recompute) {
            beyond_backward = request.at;
        }
        if request.doing != ProgramPhase::Optimizer {
            beyond_optimizer = request.at;
        }
    }
}

/// The sizes of blocks that are allocated in backward and live beyond it.
fn outliving_backward(requests: &[TraceRequest]) -> HashSet<Bytes> {
    let mut sizes = HashSet::new();
    let mut beyond = NEVER - 1;
    for request in requests.iter().rev() {
        match request.doing {
            ProgramPhase::Backward if request.freed > beyond => drop(sizes.insert(request.size)),
            ProgramPhase::Backward | ProgramPhase::Recompute => {}
            doing if doing.is_of_ranks() => {}
            _ => beyond = request.at,
        }
    }
    sizes
}

/// The open scopes of a device as time passes.
struct ScopeCursor<'a> {
    snapshot: &'a Snapshot,
    left: Vec<&'a Annotation>,
    open: Vec<(vramlab_snapshot::TextId, ProgramPhase)>,
}

impl<'a> ScopeCursor<'a> {
    /// The most scopes that are open at once.
    const DEEPEST: usize = 256;

    fn of(snapshot: &'a Snapshot, device: usize) -> Self {
        let of_device = |annotation: &&Annotation| annotation.device as usize == device;
        let mut left: Vec<&Annotation> = snapshot.annotations.iter().filter(of_device).collect();
        left.reverse();
        Self { snapshot, left, open: Vec::new() }
    }

    /// What the innermost open scope with a meaning shows. Times must not decrease.
    fn at(&mut self, time: Micros) -> ProgramPhase {
        while let Some(next) = self.left.pop_if(|next| next.time < time) {
            if !next.start {
                if let Some(at) = self.open.iter().rposition(|(name, _)| *name == next.name) {
                    self.open.truncate(at);
                }
            } else if self.open.len() < Self::DEEPEST {
                self.open.push((next.name, of_scope(self.snapshot.texts.get(next.name))));
            }
        }
        let says = self.open.iter().rev().map(|(_, doing)| *doing).find(|doing| *doing != ProgramPhase::Unknown);
        says.unwrap_or(ProgramPhase::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests as `(doing, size, last entry of its life)`. Each takes one entry.
    fn guessed(of: &[(ProgramPhase, u64, u32)]) -> Vec<Category> {
        guessed_of(of, Earlier::default())
    }

    fn guessed_of(of: &[(ProgramPhase, u64, u32)], earlier: Earlier) -> Vec<Category> {
        let request = |(at, &(doing, size, freed)): (u32, &(ProgramPhase, u64, u32))| TraceRequest {
            at,
            freed,
            size: Bytes(size),
            doing,
        };
        let mut requests: Vec<TraceRequest> = (0..).zip(of).map(request).collect();
        let mut categories = vec![Category::Other; of.len()];
        conclude(&mut requests, earlier, |at, category| categories[at as usize] = category);
        categories
    }

    #[test]
    fn what_a_block_is_for_follows_from_when_it_was_asked_for_and_how_long_it_lived() {
        use Category::{Activation, Gradient, Input, OptimizerState, Parameter, Temporary, Workspace};
        let step = [
            (ProgramPhase::Unknown, 40, NEVER, Parameter),
            (ProgramPhase::Unknown, 40, 2, Temporary),
            (ProgramPhase::Unknown, 60, NEVER, Parameter),
            (ProgramPhase::SetUp, 61, NEVER, Parameter),
            (ProgramPhase::Unknown, 62, NEVER, Input),
            (ProgramPhase::Data, 7, 32, Input),
            (ProgramPhase::Forward, 99, 12, Activation),
            (ProgramPhase::Forward, 98, 7, Temporary),
            (ProgramPhase::Forward, 8192, NEVER, Workspace),
            (ProgramPhase::Backward, 99, 10, Temporary),
            (ProgramPhase::Recompute, 70, 13, Activation),
            (ProgramPhase::Recompute, 70, 11, Temporary),
            (ProgramPhase::Backward, 40, 27, Gradient),
            (ProgramPhase::Backward, 77, NEVER, Workspace),
            (ProgramPhase::Optimizer, 40, NEVER, OptimizerState),
            (ProgramPhase::Optimizer, 40, 16, Temporary),
            (ProgramPhase::Unknown, 7, 26, Input),
            (ProgramPhase::Forward, 99, 26, Activation),
            (ProgramPhase::Backward, 60, NEVER, Gradient),
            (ProgramPhase::Forward, 3, 20, Temporary),
        ];
        let asked = step.map(|(doing, size, freed, _)| (doing, size, freed));
        assert_eq!(guessed(&asked), step.map(|(.., category)| category));
    }

    /// Such as the logits of a program that keeps its output until the next step.
    #[test]
    fn what_a_later_part_may_give_back_is_no_workspace() {
        let asked =
            [(ProgramPhase::Forward, 8192, NEVER), (ProgramPhase::Backward, 40, 1), (ProgramPhase::Forward, 7, NEVER)];
        let told = |trains| guessed_of(&asked, Earlier { trains, is_part: true, ..Earlier::default() })[0];
        assert_eq!([told(false), told(true)], [Category::Workspace, Category::Activation]);
    }

    #[test]
    fn what_ranks_exchange_is_told_apart() {
        use Category::{Activation, Communication, Gradient, OptimizerState, Parameter, Temporary};
        let step = [
            (ProgramPhase::SetUp, 40, NEVER, Parameter),
            (ProgramPhase::Bucket, 80, NEVER, Communication),
            (ProgramPhase::AllGather, 160, 4, Communication),
            (ProgramPhase::Gather, 80, 5, Parameter),
            (ProgramPhase::Forward, 99, 8, Activation),
            (ProgramPhase::GatherInPlace, 80, 9, Parameter),
            (ProgramPhase::Backward, 80, 8, Temporary),
            (ProgramPhase::Reduce, 160, 9, Communication),
            (ProgramPhase::Reduce, 40, NEVER, Gradient),
            (ProgramPhase::Backward, 7, 10, Temporary),
            (ProgramPhase::Optimizer, 40, NEVER, OptimizerState),
        ];
        let asked = step.map(|(doing, size, freed, _)| (doing, size, freed));
        assert_eq!(guessed(&asked), step.map(|(.., category)| category));
    }

    #[test]
    fn what_a_set_up_holds_stays_though_no_backward_came() {
        let asked = [
            (ProgramPhase::SetUp, 40, NEVER),
            (ProgramPhase::SetUp, 41, 3),
            (ProgramPhase::Forward, 99, NEVER),
            (ProgramPhase::Forward, 98, 5),
        ];
        assert_eq!(guessed(&asked)[..2], [Category::Parameter, Category::Temporary]);
    }

    #[test]
    fn without_stacks_the_fullest_moment_parts_forward_from_backward() {
        let mut requests: Vec<TraceRequest> = [(10, 6), (20, 4), (30, 9), (5, NEVER), (5, 7)]
            .iter()
            .zip(0..)
            .map(|(&(size, freed), at)| TraceRequest {
                at: 2 * at,
                freed,
                size: Bytes(size),
                doing: ProgramPhase::Unknown,
            })
            .collect();
        requests.push(TraceRequest { at: 10, freed: NEVER, size: Bytes(5), doing: ProgramPhase::Optimizer });
        split_steps(&mut requests);
        let doing: Vec<ProgramPhase> = requests.iter().map(|request| request.doing).collect();
        use ProgramPhase::{Backward, Forward, Optimizer};
        assert_eq!(doing, [Forward, Forward, Forward, Backward, Backward, Optimizer]);
    }
}
