//! Attention.

use super::Attention;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, CaseOperands, Precision, Slot};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{AttentionShape, DType, DropoutMask, Earlier, FusedAttention, HeadView};

/// The layout of (batch, heads, rows, head size) in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadLayout {
    /// Queries, keys and values side by side in the rows of a projection, but gradients separate.
    Packed,
    /// The same, with the three gradients also side by side.
    Together,
    /// The rows of each head together.
    ByHead,
}

impl HeadLayout {
    /// The strides of batch, head and row in a separate tensor of `heads` heads.
    const fn strides(self, heads: usize, [rows, head_size]: [usize; 2]) -> [usize; 3] {
        match self {
            Self::Packed | Self::Together => [rows * heads * head_size, head_size, heads * head_size],
            Self::ByHead => [heads * rows * head_size, rows * head_size, head_size],
        }
    }
}

/// One attention.
#[derive(Clone, Copy)]
struct AttentionCase {
    shape: AttentionShape,
    layout: HeadLayout,
    lse_stride: usize,
}

impl AttentionCase {
    fn new([batch, heads, rows, head_size]: [usize; 4], causal: bool, layout: HeadLayout) -> Self {
        let scale = 1.0 / (head_size as f32).sqrt();
        let (group, earlier, masked, dropout) = (1, Earlier::All, false, None);
        let value_size = head_size;
        let shape = AttentionShape {
            batch,
            heads,
            group,
            rows,
            head_size,
            value_size,
            causal,
            earlier,
            masked,
            scale,
            dropout,
        };
        // Some kernels align the sums of each head, others do not.
        let lse_stride = if layout == HeadLayout::Packed { rows.next_multiple_of(32) } else { rows };
        Self { shape, layout, lse_stride }
    }

    /// The same with `group` query heads for each head of keys and values.
    const fn shared_by(mut self, group: usize) -> Self {
        self.shape.group = group;
        self
    }

    /// The same with values of another size.
    const fn with_values(mut self, size: usize) -> Self {
        self.shape.value_size = size;
        self
    }

    /// The same with a window of positions.
    const fn within(mut self, window: usize) -> Self {
        self.shape.earlier = Earlier::Window(window);
        self
    }

    /// The same with chunks of positions.
    const fn in_chunks(mut self, chunk: usize) -> Self {
        self.shape.earlier = Earlier::Chunk(chunk);
        self
    }

    /// The same with a share of weights dropped.
    fn without(mut self, share: f64) -> Self {
        self.shape.dropout = Some(DropoutMask::new(7, share));
        self
    }

    fn title(&self) -> String {
        let AttentionShape { batch, heads, group, rows, head_size, value_size, causal, earlier, .. } = self.shape;
        let causal = if causal { ", causal" } else { "" };
        let causal = &*match earlier {
            Earlier::All => causal.to_owned(),
            Earlier::Window(window) => format!("{causal} within {window}"),
            Earlier::Chunk(chunk) => format!("{causal} in chunks of {chunk}"),
        };
        let causal = if group > 1 { format!("{causal}, {group} heads a key") } else { causal.to_owned() };
        let values = if value_size == head_size { String::new() } else { format!(", values of {value_size}") };
        let causal = format!("{values}{causal}");
        let causal = if self.shape.dropout.is_some() { format!("{causal}, dropout") } else { causal };
        let layout = match self.layout {
            HeadLayout::Packed => "packed",
            HeadLayout::Together => "packed with its gradients",
            HeadLayout::ByHead => "by head",
        };
        format!("{batch} × {heads} heads × {rows} rows × {head_size}{causal}, {layout}")
    }

    /// The number of elements of the queries.
    const fn len(&self) -> usize {
        self.shape.batch * self.shape.heads * self.shape.rows * self.shape.head_size
    }

    /// The number of elements of the result.
    const fn result_len(&self) -> usize {
        self.shape.batch * self.shape.heads * self.shape.rows * self.shape.value_size
    }

    const fn work(&self) -> usize {
        2 * self.len() * self.shape.rows
    }

    const fn sums(&self) -> usize {
        self.shape.batch * self.shape.heads * self.lse_stride
    }

    /// The number of elements of the three inputs.
    const fn inputs_len(&self) -> usize {
        let AttentionShape { batch, heads, rows, head_size, value_size, .. } = self.shape;
        let shared = self.shape.of_keys().heads;
        batch * rows * (head_size * (heads + shared) + value_size * shared)
    }

    /// One of the three inputs.
    fn input(&self, at: &CaseOperands, slot: Slot, part: usize) -> HeadView {
        let AttentionShape { batch, heads, rows, head_size, value_size, .. } = self.shape;
        let shared = self.shape.of_keys().heads;
        let (own, before) = [(heads, 0), (shared, heads), (shared, heads + shared)][part];
        let size = if part == 2 { value_size } else { head_size };
        match self.layout {
            HeadLayout::Packed | HeadLayout::Together => {
                let width = (heads + shared) * head_size + shared * value_size;
                at.heads(slot, before * head_size, [rows * width, size, width])
            }
            HeadLayout::ByHead => {
                at.heads(slot, before * batch * rows * head_size, HeadLayout::ByHead.strides(own, [rows, size]))
            }
        }
    }

    /// An operand of the size of queries in a separate tensor.
    fn whole(&self, at: &CaseOperands, slot: Slot) -> HeadView {
        at.heads(slot, 0, self.layout.strides(self.shape.heads, [self.shape.rows, self.shape.head_size]))
    }

    /// An operand of the size of the result in a separate tensor.
    fn result(&self, at: &CaseOperands, slot: Slot) -> HeadView {
        at.heads(slot, 0, self.layout.strides(self.shape.heads, [self.shape.rows, self.shape.value_size]))
    }

    fn inputs(&self, at: &CaseOperands, qkv: Slot) -> [HeadView; 3] {
        [0, 1, 2].map(|part| self.input(at, qkv, part))
    }

    /// Elements after a head's last sum are undefined, so sums are compared only if there are no such elements.
    fn bound_of_sums(&self) -> ErrorBound {
        if self.lse_stride == self.shape.rows { ErrorBound::Sum(self.shape.head_size) } else { ErrorBound::Free }
    }

    fn forward(&self, precision: Precision) -> (Case, impl Fn(&CaseOperands) -> Attention) {
        let this = *self;
        let dtype = precision.dtype();
        let mut case = Case::new("attention", precision, self.title()).work(self.work());
        let qkv = case.input("qkv", dtype, self.inputs_len(), Values::STANDARD);
        let out = case.output("out", dtype, self.result_len(), ErrorBound::Sum(self.shape.rows + self.shape.head_size));
        let logsumexp = case.output("logsumexp", DType::F32, self.sums(), self.bound_of_sums());
        let kernel = move |at: &CaseOperands| {
            let [q, k, v] = this.inputs(at, qkv);
            let AttentionCase { shape, lse_stride, .. } = this;
            Attention::Forward {
                by: FusedAttention::Flash,
                shape,
                q,
                k,
                v,
                out: this.result(at, out),
                logsumexp: at[logsumexp],
                lse_stride,
            }
        };
        (case, kernel)
    }

    fn check(self, session: &mut Session<'_>, precision: Precision) {
        let (case, kernel) = self.forward(precision);
        session.check(&case, kernel);
        self.backward(session, precision);
    }

    fn backward(self, session: &mut Session<'_>, precision: Precision) {
        let dtype = precision.dtype();
        let mut case = Case::new("attention_backward", precision, self.title()).work(self.work() * 5 / 2);
        // The terms of a score's gradient cancel if a position sees only itself.
        let bound = ErrorBound::Cancelling(self.shape.rows + self.shape.head_size, 0.1);
        let grad = case.input("grad", dtype, self.result_len(), Values::STANDARD);
        let together = (self.layout == HeadLayout::Together).then(|| case.output("dqkv", dtype, 3 * self.len(), bound));
        let apart = match together {
            Some(dqkv) => [dqkv; 3],
            None => [("dq", self.len()), ("dk", self.len()), ("dv", self.result_len())]
                .map(|(name, len)| case.output(name, dtype, len, bound)),
        };
        if !session.wants(&case) {
            return;
        }
        let (forward, kernel) = self.forward(precision);
        let Some(values) = session.prepare(&forward, kernel) else { return };
        let [values_of_qkv, values_of_out, values_of_sums] = values.as_slice() else { return };
        let qkv = case.input("qkv", dtype, self.inputs_len(), Values::List(values_of_qkv.clone()));
        let out = case.input("out", dtype, self.result_len(), Values::List(values_of_out.clone()));
        let logsumexp = case.input("logsumexp", DType::F32, self.sums(), Values::List(values_of_sums.clone()));
        session.check(&case, |at| {
            let [q, k, v] = self.inputs(at, qkv);
            let [dq, dk, dv] = match together {
                Some(dqkv) => self.inputs(at, dqkv),
                None => {
                    let [dq, dk, dv] = apart;
                    [self.whole(at, dq), self.whole(at, dk), self.result(at, dv)]
                }
            };
            Attention::Backward {
                by: FusedAttention::Flash,
                shape: self.shape,
                q,
                k,
                v,
                out: self.result(at, out),
                logsumexp: at[logsumexp],
                lse_stride: self.lse_stride,
                grad: self.result(at, grad),
                dq,
                dk,
                dv,
            }
        });
    }
}

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for causal in [false, true] {
            for layout in [HeadLayout::Packed, HeadLayout::ByHead] {
                for head_size in [4, 8, 10, 16, 24, 32, 40, 48, 64, 80, 96, 128, 130, 256] {
                    AttentionCase::new([2, 3, 33, head_size], causal, layout).check(session, precision);
                }
                for rows in [1, 7, 64, 65, 100, 128, 197] {
                    AttentionCase::new([1, 2, rows, 64], causal, layout).check(session, precision);
                    AttentionCase::new([2, 2, rows, 16], causal, layout).check(session, precision);
                }
                AttentionCase::new([5, 6, 48, 8], causal, layout).check(session, precision);
            }
            AttentionCase::new([1, 2, 512, 64], causal, HeadLayout::Packed).check(session, precision);
            AttentionCase::new([1, 1, 300, 128], causal, HeadLayout::ByHead).check(session, precision);
            AttentionCase::new([1, 1, 1024, 32], causal, HeadLayout::Packed).check(session, precision);
            AttentionCase::new([16, 12, 64, 64], causal, HeadLayout::Packed).check(session, precision);
            for (rows, head_size) in [(33, 10), (64, 64), (128, 64), (197, 64), (512, 64)] {
                AttentionCase::new([2, 2, rows, head_size], causal, HeadLayout::Together).check(session, precision);
            }
            for layout in [HeadLayout::Packed, HeadLayout::ByHead] {
                for ([heads, rows, head_size], group) in [
                    ([4, 33, 10], 2),
                    ([6, 64, 64], 3),
                    ([8, 128, 64], 4),
                    ([4, 197, 128], 4),
                    ([32, 256, 64], 4),
                    ([4, 197, 256], 2),
                ] {
                    let grouped = AttentionCase::new([2, heads, rows, head_size], causal, layout).shared_by(group);
                    grouped.check(session, precision);
                }
            }
        }
        // Values of another size than queries and keys, as in DeepSeek.
        for (head_size, value_size) in [(24, 16), (24, 32), (10, 6), (80, 64), (192, 128), (130, 256)] {
            for (rows, layout) in [(33, HeadLayout::Packed), (130, HeadLayout::ByHead)] {
                for causal in [false, true] {
                    let attention = AttentionCase::new([2, 3, rows, head_size], causal, layout);
                    attention.with_values(value_size).check(session, precision);
                }
            }
        }
        for (rows, head_size, window) in [
            (33, 10, 7),
            (64, 64, 64),
            (100, 64, 1),
            (197, 64, 40),
            (256, 128, 24),
            (512, 64, 129),
            (300, 128, 70),
            (300, 256, 70),
            (1024, 32, 500),
        ] {
            for layout in [HeadLayout::Packed, HeadLayout::ByHead] {
                AttentionCase::new([2, 2, rows, head_size], true, layout).within(window).check(session, precision);
            }
        }
        for (rows, head_size, chunk) in [(33, 10, 7), (64, 64, 64), (197, 64, 40), (300, 128, 70), (130, 64, 500)] {
            for layout in [HeadLayout::Packed, HeadLayout::ByHead] {
                let attention = AttentionCase::new([2, 4, rows, head_size], true, layout).in_chunks(chunk);
                attention.check(session, precision);
                attention.shared_by(2).check(session, precision);
            }
        }
        for (causal, layout) in [(true, HeadLayout::Packed), (false, HeadLayout::Packed), (true, HeadLayout::ByHead)] {
            for ([heads, rows, head_size], group) in
                [([2, 33, 10], 1), ([2, 64, 64], 1), ([4, 197, 64], 2), ([4, 100, 128], 4), ([2, 65, 256], 1)]
            {
                let attention = AttentionCase::new([2, heads, rows, head_size], causal, layout).shared_by(group);
                attention.without(0.1).check(session, precision);
                inference(session, precision, attention.without(0.5), rows);
            }
            AttentionCase::new([2, 2, 300, 64], true, layout).within(70).without(0.1).check(session, precision);
        }
        for [batch, heads, rows, head_size] in
            [[1, 1, 1, 64], [2, 3, 33, 10], [2, 4, 128, 64], [1, 2, 197, 80], [1, 2, 197, 256]]
        {
            for causal in [false, true] {
                let attention = AttentionCase::new([batch, heads, rows, head_size], causal, HeadLayout::Packed);
                inference(session, precision, attention, rows);
            }
        }
        for (rows, keys) in [(1, 2), (1, 65), (1, 257), (1, 1024), (5, 64), (33, 100), (64, 1000)] {
            for head_size in [8, 10, 64, 128] {
                let attention = AttentionCase::new([2, 3, rows, head_size], false, HeadLayout::Packed);
                inference(session, precision, attention, keys);
                let attention = AttentionCase::new([2, 8, rows, head_size], false, HeadLayout::Packed);
                inference(session, precision, attention.shared_by(4), keys);
            }
        }
    }
}

/// Queries of a projection over a cache that has room for further positions.
fn inference(session: &mut Session<'_>, precision: Precision, of_queries: AttentionCase, keys: usize) {
    let dtype = precision.dtype();
    let AttentionShape { batch, heads, rows, head_size, .. } = of_queries.shape.of_keys();
    let room = if keys > rows { keys + 3 } else { keys };
    let cache = batch * heads * room * head_size;
    let strides = [heads * room * head_size, room * head_size, head_size];
    let what = format!("{} over {keys} of {room} keys", of_queries.title());
    let mut case = Case::new("attention_inference", precision, what).work(2 * of_queries.len() * keys);
    let qkv = case.input("q", dtype, of_queries.inputs_len(), Values::STANDARD);
    let [k, v] = ["k", "v"].map(|name| case.input(name, dtype, cache, Values::STANDARD));
    let out = case.output("out", dtype, of_queries.len(), ErrorBound::Sum(keys + head_size));
    session.check(&case, |at| Attention::Inference {
        by: FusedAttention::Flash,
        shape: of_queries.shape,
        keys,
        q: of_queries.input(at, qkv, 0),
        k: at.heads(k, 0, strides),
        v: at.heads(v, 0, strides),
        out: of_queries.result(at, out),
    });
}
