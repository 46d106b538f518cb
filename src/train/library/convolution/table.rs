//! Measurements of cuDNN: `cudnn.txt`, whose head explains it, read at the first use.

use std::sync::LazyLock;

use super::problem::{Arithmetic, Convolution, Pass, as_f64};

const TABLE: &str = include_str!("cudnn.txt");

/// The workspaces of one shape.
pub(super) struct Plans {
    /// The shape; its batch has no meaning.
    pub like: Convolution,
    /// By arithmetic, then by pass; empty if no batch takes any workspace.
    runs: [[Vec<BatchSpan>; 3]; 4],
}

/// Batches whose workspaces lie on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BatchSpan {
    first: usize,
    last: usize,
    /// Bytes for any batch.
    pub fixed: f64,
    /// Bytes for each image.
    pub per_image: f64,
    /// The batch, if the run is a single one and no line.
    pub alone: Option<usize>,
}

impl BatchSpan {
    const fn takes_nothing(&self) -> bool {
        self.fixed == 0.0 && self.per_image == 0.0
    }
}

impl Plans {
    /// The run for `batch`. If it lies between two runs of which one takes nothing, that run; else the nearest in
    /// proportion. With each measured batch left out in turn, this rule predicts the most of them (where it misses, cuDNN
    /// took a third plan).
    pub fn run(&self, pass: Pass, arithmetic: Arithmetic, batch: usize) -> BatchSpan {
        let runs = &self.runs[arithmetic as usize][pass as usize];
        let between = runs.windows(2).find(|pair| pair[0].last < batch && batch < pair[1].first);
        if let Some(nothing) = between.and_then(|pair| pair.iter().find(|run| run.takes_nothing())) {
            return *nothing;
        }
        // Runs are in order of their batches, which are positive.
        let gap = |run: &BatchSpan| {
            if batch < run.first {
                as_f64(run.first) / as_f64(batch.max(1))
            } else {
                as_f64(batch.max(run.last)) / as_f64(run.last.max(1))
            }
        };
        runs.iter().copied().min_by(|a, b| gap(a).total_cmp(&gap(b))).unwrap_or_default()
    }
}

/// All measured shapes.
pub(super) fn shapes() -> &'static [Plans] {
    static SHAPES: LazyLock<Vec<Plans>> = LazyLock::new(|| read(TABLE));
    &SHAPES
}

/// Skips lines that are no entries of the table; a test checks that there are none.
fn read(text: &str) -> Vec<Plans> {
    let (mut batches, mut all) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('@') {
            Some(list) => batches = list.split_whitespace().filter_map(|n| n.parse().ok()).collect(),
            None => all.extend(plans(line, &batches)),
        }
    }
    all
}

fn plans(line: &str, batches: &[usize]) -> Option<Plans> {
    let (text, curves) = line.split_once(':')?;
    let like = shape(text)?;
    let mut runs: [[Vec<BatchSpan>; 3]; 4] = Default::default();
    let mut kinds = curves.split(';');
    for passes in &mut runs {
        let mut texts = kinds.next()?.split('|');
        for pass in passes {
            *pass = curve(texts.next()?, batches)?;
        }
    }
    Some(Plans { like, runs })
}

/// Reads a shape; its batch has no meaning.
pub(super) fn shape(text: &str) -> Option<Convolution> {
    let mut words = text.split(' ');
    let mut number = || words.next()?.parse::<usize>().ok();
    let (inputs, side, outputs, kernel) = (number()?, number()?, number()?, number()?);
    let (stride, padding) = (number()?, number()?);
    let transposed = match words.next()? {
        "d" => false,
        "u" => true,
        _ => return None,
    };
    Some(Convolution { batch: 1, inputs, sides: [side; 2], outputs, kernel, stride, padding, transposed })
}

/// Reads `a` or `a+b`: the fixed bytes and the bytes per image.
pub(super) fn line(text: &str) -> Option<(f64, f64)> {
    // The slope begins at the first sign after the first character; the fixed part may have a sign of its own.
    let (fixed, per_image) = match text.get(1..)?.find(['+', '-']) {
        Some(sign) => text.split_at(sign + 1),
        None => (text, "0"),
    };
    Some((fixed.parse().ok()?, per_image.parse().ok()?))
}

fn curve(text: &str, batches: &[usize]) -> Option<Vec<BatchSpan>> {
    let mut runs = Vec::<BatchSpan>::new();
    for word in text.split_whitespace() {
        let (first, text) = word.split_once('=')?;
        let first = first.parse().ok()?;
        let (fixed, per_image) = line(text)?;
        if let Some(before) = runs.last_mut() {
            before.last = batches.iter().copied().filter(|&batch| batch < first).max()?;
        }
        runs.push(BatchSpan { first, last: *batches.last()?, fixed, per_image, alone: None });
    }
    for run in &mut runs {
        run.alone = (run.first == run.last).then_some(run.first);
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE.lines().filter(|line| !line.starts_with(['#', '@'])).count();
        assert_eq!(shapes().len(), lines);
        assert!(lines > 300);
        for plans in shapes() {
            for runs in plans.runs.iter().flatten() {
                assert!(runs.iter().all(|run| run.first <= run.last), "{:?}", plans.like);
                assert!(runs.windows(2).all(|pair| pair[0].last < pair[1].first), "{:?}", plans.like);
            }
        }
    }

    #[test]
    fn a_curve_is_read_and_its_nearest_run_found() {
        let runs = curve("1=400 4=-16+32 16=7 32=0", &[1, 2, 4, 8, 16, 32]).unwrap();
        let like = Convolution {
            batch: 1,
            inputs: 1,
            sides: [1; 2],
            outputs: 1,
            kernel: 1,
            stride: 1,
            padding: 0,
            transposed: false,
        };
        let plans = Plans {
            like,
            runs: [
                [runs, Vec::new(), Vec::new()],
                [const { Vec::new() }; 3],
                [const { Vec::new() }; 3],
                [const { Vec::new() }; 3],
            ],
        };
        let at = |batch| plans.run(Pass::Forward, Arithmetic::F32, batch);
        assert_eq!((at(1).fixed, at(2).fixed, at(2).last), (400.0, 400.0, 2));
        assert_eq!((at(6).fixed, at(6).per_image), (-16.0, 32.0));
        assert_eq!((at(9).fixed, at(15).fixed), (-16.0, 7.0));
        assert_eq!((at(16).fixed, at(16).alone), (7.0, Some(16)));
        assert_eq!((at(17).fixed, at(500).fixed), (0.0, 0.0), "nothing reaches as far as it can");
        assert_eq!(plans.run(Pass::WeightGradient, Arithmetic::F32, 3), BatchSpan::default());
    }
}
