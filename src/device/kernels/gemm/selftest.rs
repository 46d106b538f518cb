//! Matrix products.

use super::Gemm;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Skew};
use crate::selftest::session::Session;
use crate::selftest::values::Values;

/// The orientation of a factor in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FactorLayout {
    Rows,
    Columns,
}

/// A product with all its options.
#[derive(Clone, Copy)]
struct ProductCase {
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    layouts: [FactorLayout; 2],
    /// Unused elements at the end of each row of a, b and c.
    gaps: [usize; 3],
    bias: bool,
    alpha: f32,
    beta: f32,
    skew: Skew,
}

impl ProductCase {
    const fn new([m, n, k]: [usize; 3]) -> Self {
        Self {
            m,
            n,
            k,
            batch: 1,
            layouts: [FactorLayout::Rows; 2],
            gaps: [0; 3],
            bias: false,
            alpha: 1.0,
            beta: 0.0,
            skew: Skew::Aligned,
        }
    }

    fn title(&self) -> String {
        let Self { m, n, k, batch, layouts, gaps, bias, alpha, beta, .. } = *self;
        let mut title = format!("m {m}, n {n}, k {k}");
        let mut tell = |condition: bool, what: String| {
            if condition {
                title = format!("{title}, {what}");
            }
        };
        tell(batch > 1, format!("batch {batch}"));
        tell(layouts[0] == FactorLayout::Columns, "a transposed".into());
        tell(layouts[1] == FactorLayout::Columns, "b transposed".into());
        tell(gaps != [0; 3], format!("rows longer by {gaps:?}"));
        tell(bias, "bias".into());
        tell(alpha != 1.0, format!("alpha {alpha}"));
        tell(beta == 1.0, "accumulated".into());
        tell(![0.0, 1.0].contains(&beta), format!("beta {beta}"));
        title
    }

    fn check(self, session: &mut Session<'_>, precision: Precision) {
        let Self { m, n, k, batch, layouts, gaps, bias, alpha, beta, skew } = self;
        let dtype = precision.dtype();
        let mut case = Case::new("gemm", precision, self.title()).skewed(skew).work(m * n * k * batch);
        let strides = |rows: usize, cols: usize, layout: FactorLayout, gap: usize| match layout {
            FactorLayout::Rows => [cols + gap, 1, rows * (cols + gap)],
            FactorLayout::Columns => [1, rows + gap, cols * (rows + gap)],
        };
        let of_a = strides(m, k, layouts[0], gaps[0]);
        let of_b = strides(k, n, layouts[1], gaps[1]);
        let of_c = strides(m, n, FactorLayout::Rows, gaps[2]);
        let a = case.input("a", dtype, of_a[2] * batch, Values::STANDARD);
        let b = case.input("b", dtype, of_b[2] * batch, Values::STANDARD);
        let added = bias.then(|| case.input("bias", dtype, n, Values::STANDARD));
        let c = if beta != 0.0 {
            case.update("c", dtype, of_c[2] * batch, Values::STANDARD, ErrorBound::Sum(k))
        } else {
            case.output("c", dtype, of_c[2] * batch, ErrorBound::Sum(k))
        };
        session.check(&case, |at| Gemm {
            m,
            n,
            k,
            batch,
            a: at.matrix(a, 0, of_a),
            b: at.matrix(b, 0, of_b),
            c: at.matrix(c, 0, of_c),
            bias: added.map(|bias| at[bias]),
            alpha,
            beta,
        });
    }
}

fn products() -> Vec<ProductCase> {
    const LAYOUTS: [[FactorLayout; 2]; 4] = [
        [FactorLayout::Rows, FactorLayout::Rows],
        [FactorLayout::Rows, FactorLayout::Columns],
        [FactorLayout::Columns, FactorLayout::Rows],
        [FactorLayout::Columns, FactorLayout::Columns],
    ];
    let mut products = Vec::new();
    for sizes in [
        [1, 1, 1],
        [1, 1, 100],
        [1, 10, 64],
        [10, 1, 64],
        [64, 10, 1],
        [7, 5, 3],
        [16, 16, 16],
        [33, 65, 17],
        [64, 64, 64],
        [100, 77, 130],
        [128, 96, 32],
        [129, 257, 63],
        [512, 768, 768],
    ] {
        for layouts in LAYOUTS {
            products.push(ProductCase { layouts, ..ProductCase::new(sizes) });
        }
    }
    // A linear layer, its gradients, and the head of a language model, whose rows have odd lengths.
    for sizes in [[128, 32, 32], [100, 257, 48], [37, 10, 200], [256, 768, 3072], [1, 1000, 512], [5, 1, 33]] {
        products.push(ProductCase { bias: true, layouts: LAYOUTS[1], ..ProductCase::new(sizes) });
        products.push(ProductCase { bias: true, ..ProductCase::new(sizes) });
    }
    for (sizes, layouts) in
        [([64, 50_257, 64], LAYOUTS[1]), ([64, 64, 50_257], LAYOUTS[0]), ([50_257, 64, 64], LAYOUTS[2])]
    {
        products.push(ProductCase { layouts, ..ProductCase::new(sizes) });
    }
    products.push(ProductCase { bias: true, layouts: LAYOUTS[1], ..ProductCase::new([33, 50_257, 17]) });
    products.push(ProductCase { layouts: LAYOUTS[2], ..ProductCase::new([64, 48, 20_000]) });
    for sizes in [[32, 32, 8], [33, 20, 10], [100, 64, 100], [197, 197, 64], [7, 7, 7]] {
        for layouts in LAYOUTS {
            products.push(ProductCase { batch: 6, layouts, ..ProductCase::new(sizes) });
        }
    }
    products.push(ProductCase { batch: 300, layouts: LAYOUTS[1], ..ProductCase::new([9, 11, 13]) });
    for gaps in [[3, 0, 0], [0, 5, 0], [0, 0, 7], [8, 16, 24]] {
        products.push(ProductCase { gaps, ..ProductCase::new([40, 50, 60]) });
        products.push(ProductCase { gaps, batch: 3, layouts: LAYOUTS[3], ..ProductCase::new([40, 50, 60]) });
    }
    for sizes in [[1, 1, 1], [33, 65, 17], [64, 128, 96]] {
        let product = ProductCase::new(sizes);
        products.push(ProductCase { beta: 1.0, ..product });
        products.push(ProductCase { alpha: 0.125, ..product });
        products.push(ProductCase { alpha: -0.7, beta: 1.0, ..product });
        products.push(ProductCase { alpha: 2.0315, beta: -4.775, ..product });
        products.push(ProductCase { beta: 0.5, bias: true, ..product });
        products.push(ProductCase { alpha: 0.3, bias: true, ..product });
        products.push(ProductCase { beta: 1.0, bias: true, ..product });
        products.push(ProductCase { beta: 1.0, batch: 4, layouts: LAYOUTS[1], ..product });
        products.push(ProductCase { skew: Skew::Together(1), layouts: LAYOUTS[1], ..product });
        products.push(ProductCase { skew: Skew::Apart, bias: true, ..product });
    }
    // Scores of BLOOM, added to a bias that each head already has: queries times keys, whose heads lie side by side in a
    // projection with three of them. The scale is that of a head.
    for [rows, keys, head_size] in [[1, 1, 16], [16, 16, 16], [33, 33, 64], [128, 128, 64]] {
        let (alpha, gaps) = (1.0 / (head_size as f32).sqrt(), [2 * head_size, 2 * head_size, 0]);
        let scores = ProductCase {
            alpha,
            beta: 1.0,
            batch: 6,
            layouts: LAYOUTS[1],
            ..ProductCase::new([rows, keys, head_size])
        };
        products.push(scores);
        products.push(ProductCase { gaps, ..scores });
    }
    products
}

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::PRODUCTS {
        for product in products() {
            product.check(session, precision);
        }
    }
}
