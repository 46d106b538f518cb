//! Switches flipped while it trains, and memory that runs out: nothing leaks, training goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]

#[path = "common/training.rs"]
mod training;

use std::cell::Cell;
use std::rc::Rc;

use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::model::{Event, EventKind};
use vramlab::train::{
    Amp, Config, Libraries, Observer, OptimizerKind, Request, SafePoint, TrainError, Trainer, TrainerOptions, ZeroGrad,
};
use vramlab::units::Bytes;

/// A small generator: the test is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn flipped(mut config: Config, dice: &mut Dice) -> Config {
    match dice.roll(6) {
        0 => config.amp = [Amp::Off, Amp::Fp16, Amp::Bf16][dice.roll(3)],
        1 => config.checkpointing = !config.checkpointing,
        2 => config.accumulation = [1, 2, 4, 8][dice.roll(4)],
        3 => {
            config.optimizer =
                [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW][dice.roll(4)];
        }
        4 => config.zero_grad = [ZeroGrad::SetToNone, ZeroGrad::Zeroed][dice.roll(2)],
        _ => config.batch = [4, 8, 5][dice.roll(3)],
    }
    config
}

fn allocated(trainer: &Trainer) -> u64 {
    trainer.memory().allocated().get()
}

#[test]
fn a_hundred_flips_leave_not_a_byte_behind() {
    for name in ["gpt-mini", "mlp-mini"] {
        let (model, batch) = training::workload(name);
        let base = training::variant("base", batch);
        let (mut trainer, events) = training::trainer(model, base, Libraries::HOPPER);
        // Everything that is taken once: both library handles, then their kin of a recompute; Adam's moments.
        for warm in ["base", "ckpt", "base"] {
            trainer.configure(training::variant(warm, batch)).unwrap();
            trainer.step().unwrap();
        }
        let before = allocated(&trainer);
        let mut dice = Dice(7);
        let mut config = base;
        for _ in 0..100 {
            events.borrow_mut().clear();
            config = flipped(config, &mut dice);
            trainer.configure(config).unwrap();
            assert!(trainer.step().unwrap().loss.is_some_and(f32::is_finite), "{config:?}");
        }
        // The gradients of a zeroed step go with the next set-to-none one.
        trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
        trainer.step().unwrap();
        trainer.configure(base).unwrap();
        trainer.step().unwrap();
        assert_eq!(allocated(&trainer), before, "{name}");
    }
}

#[test]
fn a_changed_optimizer_gives_its_state_back_at_once() {
    let (model, batch) = training::workload("gpt-mini");
    let base = training::variant("base", batch);
    let (mut trainer, _) = training::trainer(model, base, Libraries::PROCESSOR);
    trainer.step().unwrap();
    let with_adam = allocated(&trainer);
    let rounded: u64 = trainer.parameters().map(|(_, t)| t.bytes().get().next_multiple_of(512)).sum();
    trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
    assert_eq!(with_adam - allocated(&trainer), 2 * rounded);
    trainer.step().unwrap();
    trainer.configure(Config { optimizer: OptimizerKind::Momentum, ..base }).unwrap();
    assert_eq!(with_adam - allocated(&trainer), 2 * rounded, "momentum is born in the next step");
    trainer.step().unwrap();
    assert_eq!(with_adam - allocated(&trainer), rounded);
}

#[test]
fn out_of_memory_is_survived_wherever_it_strikes() {
    let (model, batch) = training::workload("gpt-wide");
    let base = training::variant("base", batch);
    let (mut trainer, events) = training::trainer(model, base, Libraries::PROCESSOR);
    let idle = allocated(&trainer);
    let reserved = u64::try_from(trainer.statistics().reserved_bytes.all.current).unwrap();
    let mut struck = 0;
    // Every limit lets the step come a little further.
    for extra in 0..40 {
        trainer.set_limit(Some(Bytes(reserved + extra * (2 << 20))));
        match trainer.step() {
            Err(TrainError::OutOfMemory { .. }) => {
                struck += 1;
                assert!(trainer.statistics().num_ooms >= struck);
                if trainer.steps() == 0 {
                    // Only moments that were already born may stay.
                    trainer.configure(Config { optimizer: OptimizerKind::Sgd, ..base }).unwrap();
                    trainer.configure(base).unwrap();
                    assert_eq!(allocated(&trainer), idle, "limit +{} MiB", 2 * extra);
                }
            }
            Err(other) => panic!("{other}"),
            Ok(report) => assert!(report.loss.is_some_and(f32::is_finite)),
        }
        trainer.empty_cache();
    }
    assert!(struck > 5, "{struck}");
    assert!(events.borrow().iter().any(|e| matches!(e.kind, EventKind::Oom { .. })));
    trainer.set_limit(None);
    let losses: Vec<f32> = (0..4).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    assert!(losses.iter().all(|l| l.is_finite()), "{losses:?}");
}

/// Stops at the n-th safe point, empties the cache at every seventh.
struct Impatient {
    left: Rc<Cell<u32>>,
    asked: bool,
}

impl Observer for Impatient {
    fn event(&mut self, _: Event) {}

    fn safe_point(&mut self, _: SafePoint) -> Request {
        let left = self.left.get();
        if left % 7 == 3 && !std::mem::replace(&mut self.asked, true) {
            return Request::EmptyCache;
        }
        self.asked = false;
        self.left.set(left.saturating_sub(1));
        if left == 1 { Request::Stop } else { Request::Continue }
    }
}

#[test]
fn a_stop_at_any_safe_point_unwinds_the_step() {
    let (model, batch) = training::workload("gpt-mini");
    let config = training::variant("all", batch);
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
    let left = Rc::new(Cell::new(0));
    let observer = Impatient { left: Rc::clone(&left), asked: false };
    let options = TrainerOptions::default();
    let mut trainer = Trainer::new(Box::new(device), model, config, options, Box::new(observer)).unwrap();
    trainer.step().unwrap();
    let finished = allocated(&trainer);
    let loss = 512;
    for points in (1..540).step_by(37) {
        left.set(points);
        assert!(matches!(trainer.step(), Err(TrainError::Stopped)), "{points}");
        assert_eq!(allocated(&trainer), finished - loss, "{points}");
        left.set(0);
    }
    assert!(trainer.step().unwrap().loss.is_some_and(f32::is_finite));
    assert_eq!(allocated(&trainer), finished);
}

#[test]
fn the_same_switches_give_the_same_losses_whatever_came_between() {
    let run = |interrupted: bool| {
        let (model, batch) = training::workload("gpt-mini");
        let base = training::variant("base", batch);
        let (mut trainer, _) = training::trainer(model, base, Libraries::PROCESSOR);
        let mut losses = Vec::new();
        for step in 0..8 {
            // Checkpointing and empty_cache change memory, not arithmetic.
            if interrupted {
                trainer.configure(Config { checkpointing: step % 2 == 0, ..base }).unwrap();
                trainer.empty_cache();
            }
            losses.push(trainer.step().unwrap().loss.unwrap().to_bits());
        }
        losses
    };
    assert_eq!(run(false), run(true));
}
