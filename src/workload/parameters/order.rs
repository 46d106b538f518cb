//! The order in which the parameters of a module are visited.

use vramlab_train::Context;

use super::{ParameterEntry, ParameterKind, Parameters};

impl Parameters {
    /// Numbers of the parameters of the module `name` in listing order: an adapter's come after those of its layer.
    pub fn of_module(&self, cx: &Context, name: &str) -> Vec<usize> {
        let (before, prefix) = (cx.parameter_count(), format!("{name}."));
        let made = || self.made.iter().flatten().enumerate().map(move |(number, made)| (before + number, made));
        let layer =
            |made: &ParameterEntry| made.name.rsplit_once('.').map_or(String::new(), |(layer, _)| format!("{layer}."));
        let mut own =
            made().filter(|(_, made)| made.kind != ParameterKind::Adapter && made.name.starts_with(&prefix)).peekable();
        let mut numbers = Vec::new();
        while let Some((number, whole)) = own.next() {
            numbers.push(number);
            let of = layer(whole);
            if own.peek().is_some_and(|(_, next)| layer(next) == of) {
                continue;
            }
            let beside =
                |made: &ParameterEntry| made.name.strip_prefix(&of).is_some_and(|rest| rest.starts_with("lora_"));
            numbers
                .extend(made().filter(|(_, made)| made.kind == ParameterKind::Adapter && beside(made)).map(|(n, _)| n));
        }
        self.behind_those_within(before, numbers)
    }

    /// The same with a module's own parameters after those of its children, as FSDP visits them.
    fn behind_those_within(&self, before: usize, mut numbers: Vec<usize>) -> Vec<usize> {
        // Adapters are in modules of their own, after the weight of their layer.
        let names: Vec<Option<&str>> = self
            .made
            .iter()
            .flatten()
            .map(|made| (made.kind != ParameterKind::Adapter).then_some(&*made.name))
            .collect();
        let module = |number: usize| Some(names.get(number - before).copied()??.rsplit_once('.')?.0);
        for place in (0..numbers.len()).rev() {
            let Some(own) = module(numbers[place]) else { continue };
            let within = |&number: &usize| {
                module(number).and_then(|of| of.strip_prefix(own)).is_some_and(|rest| rest.starts_with('.'))
            };
            if let Some(last) = numbers[place..].iter().rposition(within) {
                numbers[place..=place + last].rotate_left(1);
            }
        }
        numbers
    }
}
