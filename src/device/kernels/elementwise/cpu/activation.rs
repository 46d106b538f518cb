//! Activations and their gradients, element by element.

use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::map::{CHUNK, chunks, map1, map2, same_length};
use crate::cpu::operand::{Access, KernelResult, View};
use crate::cpu::real::Real;

/// √(2/π), of GELU's tanh form.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Coefficient of the cube in GELU's tanh form.
const CUBE: f64 = 0.044_715;

pub(in crate::kernels::elementwise) fn relu(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        // NaN is neither below nor above zero, and stays NaN.
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            |x| if x < R::ZERO { R::ZERO } else { x },
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn relu_backward(
    cores: &Cores,
    mut access: Access<'_>,
    output: Operand,
    grad: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>) {
        map2::<R>(
            cores,
            operands,
            dst,
            0.4,
            #[inline(always)]
            |y, g| if y > R::ZERO { g } else { R::ZERO },
        );
    }
    same_length(&output, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&output)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn leaky_relu(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    slope: f32,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, slope: f32) {
        // The factor is selected, not the product, so that this vectorises.
        let slope = R::of(f64::from(slope));
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            move |x| x * if x > R::ZERO { R::ONE } else { slope },
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, slope));
    Ok(())
}

pub(in crate::kernels::elementwise) fn leaky_relu_backward(
    cores: &Cores,
    mut access: Access<'_>,
    output: Operand,
    grad: Operand,
    dst: Operand,
    slope: f32,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>, slope: f32) {
        // The factor is selected, not the product, so that this vectorises.
        let slope = R::of(f64::from(slope));
        map2::<R>(
            cores,
            operands,
            dst,
            0.4,
            #[inline(always)]
            move |y, g| g * if y > R::ZERO { R::ONE } else { slope },
        );
    }
    same_length(&output, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&output)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to, slope));
    Ok(())
}

pub(in crate::kernels::elementwise) fn at_most(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    most: f32,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, most: f32) {
        let most = R::of(f64::from(most));
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            move |x| if x > most { most } else { x },
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, most));
    Ok(())
}

pub(in crate::kernels::elementwise) fn at_most_backward(
    cores: &Cores,
    mut access: Access<'_>,
    [src, grad]: [Operand; 2],
    dst: Operand,
    most: f32,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>, most: f32) {
        let most = R::of(f64::from(most));
        map2::<R>(
            cores,
            operands,
            dst,
            0.4,
            #[inline(always)]
            move |x, g| if x <= most { g } else { R::ZERO },
        );
    }
    same_length(&src, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&src)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([src.dtype, grad.dtype, dst.dtype], go(cores, operands, to, most));
    Ok(())
}

pub(in crate::kernels::elementwise) fn tanh(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        map1::<R>(
            cores,
            src,
            dst,
            0.6,
            #[inline(always)]
            |x| x.tanh(),
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn tanh_backward(
    cores: &Cores,
    mut access: Access<'_>,
    output: Operand,
    grad: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>) {
        map2::<R>(
            cores,
            operands,
            dst,
            0.4,
            #[inline(always)]
            |y, g| g * (R::ONE - y * y),
        );
    }
    same_length(&output, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&output)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn sigmoid(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        map1::<R>(
            cores,
            src,
            dst,
            0.6,
            #[inline(always)]
            |x| R::ONE / (R::ONE + (-x).exp()),
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn sigmoid_backward(
    cores: &Cores,
    mut access: Access<'_>,
    output: Operand,
    grad: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>) {
        map2::<R>(
            cores,
            operands,
            dst,
            0.4,
            #[inline(always)]
            |y, g| g * y * (R::ONE - y),
        );
    }
    same_length(&output, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&output)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([output.dtype, grad.dtype, dst.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn silu(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        map1::<R>(
            cores,
            src,
            dst,
            0.6,
            #[inline(always)]
            |x| x / (R::ONE + (-x).exp()),
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn silu_backward(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    grad: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>) {
        map2::<R>(
            cores,
            operands,
            dst,
            0.8,
            #[inline(always)]
            |x, g| {
                let sigmoid = R::ONE / (R::ONE + (-x).exp());
                g * sigmoid * (R::ONE + x * (R::ONE - sigmoid))
            },
        );
    }
    same_length(&src, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&src)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([src.dtype, grad.dtype, dst.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn gated_silu(
    cores: &Cores,
    mut access: Access<'_>,
    [gate, up, dst]: [Operand; 3],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>) {
        map2::<R>(
            cores,
            operands,
            dst,
            0.8,
            #[inline(always)]
            |x, y| x / (R::ONE + (-x).exp()) * y,
        );
    }
    same_length(&gate, &dst)?;
    same_length(&up, &dst)?;
    let operands = [access.read(&gate)?, access.read(&up)?];
    let to = access.write(&dst)?;
    real!([gate.dtype, up.dtype, dst.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn gated_silu_backward(
    cores: &Cores,
    mut access: Access<'_>,
    [grad, gate, up]: [Operand; 3],
    [dgate, dup]: [Operand; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [grad, gate, up]: [View<'_>; 3], [dgate, dup]: [View<'_>; 2]) {
        chunks(
            cores,
            grad.len(),
            1.2,
            #[inline(always)]
            |start, len, [g, x, y]: &mut [[R; CHUNK]; 3]| {
                let (g, x, y) = (&mut g[..len], &mut x[..len], &mut y[..len]);
                R::load(&grad, start, g);
                R::load(&gate, start, x);
                R::load(&up, start, y);
                for (g, (x, y)) in g.iter().zip(x.iter_mut().zip(y.iter_mut())) {
                    let sigmoid = R::ONE / (R::ONE + (-*x).exp());
                    *y = *g * *y * sigmoid * (R::ONE + *x * (R::ONE - sigmoid));
                    *x = *g * *x * sigmoid;
                }
                R::store(&dgate, start, y);
                R::store(&dup, start, x);
            },
        );
    }
    for other in [&gate, &up, &dgate, &dup] {
        same_length(&grad, other)?;
    }
    let operands = [access.read(&grad)?, access.read(&gate)?, access.read(&up)?];
    let to = [access.write(&dgate)?, access.write(&dup)?];
    real!([grad.dtype, gate.dtype, up.dtype, dgate.dtype, dup.dtype], go(cores, operands, to));
    Ok(())
}

pub(in crate::kernels::elementwise) fn rsqrt(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        map1::<R>(
            cores,
            src,
            dst,
            0.5,
            #[inline(always)]
            |x| R::ONE / x.sqrt(),
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

/// x·Φ(x), with Φ by erf or by its tanh approximation.
#[inline(always)]
fn gelu_of<R: Real>(x: R, tanh: bool) -> R {
    let half = R::of(0.5) * x;
    if tanh {
        half * (R::ONE + (R::of(SQRT_2_OVER_PI) * (x + R::of(CUBE) * x * x * x)).tanh())
    } else {
        half * (R::ONE + (x * R::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
    }
}

/// Derivative of [`gelu_of`].
#[inline(always)]
fn gelu_slope<R: Real>(x: R, tanh: bool) -> R {
    let half = R::of(0.5);
    if tanh {
        let square = x * x;
        let t = (R::of(SQRT_2_OVER_PI) * (x + R::of(CUBE) * square * x)).tanh();
        let inner = R::of(SQRT_2_OVER_PI) * (R::ONE + R::of(3.0 * CUBE) * square);
        half * (R::ONE + t) + half * x * (R::ONE - t * t) * inner
    } else {
        let cdf = half * (R::ONE + (x * R::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
        let density = R::of(0.5 * SQRT_2_OVER_PI) * (-half * x * x).exp();
        cdf + x * density
    }
}

pub(in crate::kernels::elementwise) fn gelu(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    tanh: bool,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, tanh: bool) {
        if tanh {
            map1::<R>(
                cores,
                src,
                dst,
                0.6,
                #[inline(always)]
                |x| gelu_of(x, true),
            );
        } else {
            map1::<R>(
                cores,
                src,
                dst,
                0.7,
                #[inline(always)]
                |x| gelu_of(x, false),
            );
        }
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, tanh));
    Ok(())
}

pub(in crate::kernels::elementwise) fn gelu_backward(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    grad: Operand,
    dst: Operand,
    tanh: bool,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, operands: [View<'_>; 2], dst: View<'_>, tanh: bool) {
        if tanh {
            map2::<R>(
                cores,
                operands,
                dst,
                0.8,
                #[inline(always)]
                |x, g| g * gelu_slope(x, true),
            );
        } else {
            map2::<R>(
                cores,
                operands,
                dst,
                1.2,
                #[inline(always)]
                |x, g| g * gelu_slope(x, false),
            );
        }
    }
    same_length(&src, &dst)?;
    same_length(&grad, &dst)?;
    let operands = [access.read(&src)?, access.read(&grad)?];
    let to = access.write(&dst)?;
    real!([src.dtype, grad.dtype, dst.dtype], go(cores, operands, to, tanh));
    Ok(())
}
