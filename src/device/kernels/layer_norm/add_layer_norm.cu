// Layer normalisation together with what stands around it in a residual network: the sum that is normalised, the result
// in a second type, and in backward the gradients that meet at the sum. S is the type of the residual stream, L that of
// products. Pointers that may be missing are null. Rows wait in registers as in layer_norm.cu.

// Normalises a row of up to 32 elements for each thread of a warp or a block. Without `add` nothing is written to `sum`.
template <class S, class L, bool BLOCK>
__device__ void forward_held(
    const S* src, const L* add, S* sum, const S* weight, const S* bias, S* dst, L* copy, f32* means, f32* rstds, u64 rows,
    u32 cols, f32 eps) {
    constexpr int N = WIDE<S>, K = 32 / N;
    const u64 row = BLOCK ? blockIdx.x : thread_index() / 32;
    if (row >= rows) return;
    const u64 start = row * cols;
    f32 x[K][N], total = 0.f, squares = 0.f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
        if (col < cols) {
            load_f32(src + start + col, x[k]);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) x[k][i] = 0.f;
        }
    }
    if (add) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
            if (col >= cols) continue;
            f32 added[N];
            load_f32(add + start + col, added);
            // Normalised is the sum as it is kept.
#pragma unroll
            for (int i = 0; i < N; i++) x[k][i] = to_f32(from_f32<S>(x[k][i] + added[i]));
            store_f32(sum + start + col, x[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) total += x[k][i];
    }
    const f32 mean = sum_over<BLOCK>(total) / f32(cols);
#pragma unroll
    for (int k = 0; k < K; k++) {
        if ((lane<BLOCK>() + k * lanes<BLOCK>()) * N >= cols) continue;
#pragma unroll
        for (int i = 0; i < N; i++) squares += (x[k][i] - mean) * (x[k][i] - mean);
    }
    const f32 rstd = 1.f / sqrtf(sum_over<BLOCK>(squares) / f32(cols) + eps);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
        if (col >= cols) continue;
        f32 w[N], b[N];
        load_f32(weight + col, w);
        load_f32(bias + col, b);
#pragma unroll
        for (int i = 0; i < N; i++) x[k][i] = (x[k][i] - mean) * rstd * w[i] + b[i];
        if (dst) store_f32(dst + start + col, x[k]);
        if (copy) store_f32(copy + start + col, x[k]);
    }
    if (lane<BLOCK>() == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// Normalises a row of any length and place by a block. Each thread reads of `sum` what it has written itself.
template <class S, class L>
__device__ void forward_any(
    const S* src, const L* add, S* sum, const S* weight, const S* bias, S* dst, L* copy, f32* means, f32* rstds, u64,
    u32 cols, f32 eps) {
    const u64 row = blockIdx.x, start = row * cols;
    if (add) {
        for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
            sum[start + col] = from_f32<S>(to_f32(src[start + col]) + to_f32(add[start + col]));
        }
        src = sum;
    }
    f32 total = 0.f, squares = 0.f;
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) total += to_f32(src[start + col]);
    const f32 mean = block_reduce<Sum>(total) / f32(cols);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 centred = to_f32(src[start + col]) - mean;
        squares += centred * centred;
    }
    const f32 rstd = 1.f / sqrtf(block_reduce<Sum>(squares) / f32(cols) + eps);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 y = (to_f32(src[start + col]) - mean) * rstd * to_f32(weight[col]) + to_f32(bias[col]);
        if (dst) dst[start + col] = from_f32<S>(y);
        if (copy) copy[start + col] = from_f32<L>(y);
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// The gradient of the result at element `i`: the sum of those that have arrived.
template <class S, class L> __device__ __forceinline__ f32 arrived(const S* grad, const L* second, u64 i) {
    return (grad ? to_f32(grad[i]) : 0.f) + (second ? to_f32(second[i]) : 0.f);
}

// The gradients of rows, of every n-th by one warp or block, whose threads hold K vectors of the row each. Each thread
// sums what its columns give to the gradients of weight and bias; `partial` gets the sums of each block: of the weight,
// then of the bias. `residual` may be `dsrc`.
template <class S, class L, int K, bool BLOCK>
__device__ void backward_held(
    const S* grad, const L* second, const S* residual, const S* src, const f32* means, const f32* rstds, const S* weight,
    S* dsrc, L* copy, f32* partial, u64 rows, u32 cols) {
    constexpr int N = WIDE<S>;
    const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const u64 first = BLOCK ? blockIdx.x : blockIdx.x * warps + warp, step = BLOCK ? gridDim.x : gridDim.x * warps;
    const f32 count = 1.f / f32(cols);
    f32 dweight[K][N] = {}, dbias[K][N] = {};
    for (u64 row = first; row < rows; row += step) {
        const u64 start = row * cols;
        const f32 mean = means[row], rstd = rstds[row];
        f32 x[K][N], g[K][N], of_grad = 0.f, of_both = 0.f;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
            if (col >= cols) continue;
            load_f32(src + start + col, x[k]);
            if (grad) {
                load_f32(grad + start + col, g[k]);
            } else {
#pragma unroll
                for (int i = 0; i < N; i++) g[k][i] = 0.f;
            }
        }
        if (second) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
                if (col >= cols) continue;
                f32 other[N];
                load_f32(second + start + col, other);
#pragma unroll
                for (int i = 0; i < N; i++) g[k][i] += other[i];
            }
        }
        weigh<BLOCK>(x, g, weight, mean, rstd, cols, dweight, dbias, of_grad, of_both);
        of_grad = sum_over<BLOCK>(of_grad) * count;
        of_both = sum_over<BLOCK>(of_both) * count;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
            if (col >= cols) continue;
#pragma unroll
            for (int i = 0; i < N; i++) g[k][i] = rstd * (g[k][i] - of_grad - x[k][i] * of_both);
        }
        // All of the row is asked for before any of it is written.
        if (residual) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
                if (col < cols) load_f32(residual + start + col, x[k]);
            }
#pragma unroll
            for (int k = 0; k < K; k++) {
                const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
                if (col >= cols) continue;
#pragma unroll
                for (int i = 0; i < N; i++) g[k][i] += x[k][i];
            }
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
            if (col >= cols) continue;
            store_f32(dsrc + start + col, g[k]);
            if (copy) store_f32(copy + start + col, g[k]);
        }
    }
    keep_sums<K, N, BLOCK>(dweight, dbias, partial, cols);
}

// The gradient of a row of any length and place by a block.
template <class S, class L>
__device__ void backward_any(
    const S* grad, const L* second, const S* residual, const S* src, const f32* means, const f32* rstds, const S* weight,
    S* dsrc, L* copy, u32 cols) {
    const u64 row = blockIdx.x, start = row * cols;
    const f32 mean = means[row], rstd = rstds[row];
    f32 of_grad = 0.f, of_both = 0.f;
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 g = arrived(grad, second, start + col) * to_f32(weight[col]);
        of_grad += g;
        of_both += g * (to_f32(src[start + col]) - mean) * rstd;
    }
    of_grad = block_reduce<Sum>(of_grad) / f32(cols);
    of_both = block_reduce<Sum>(of_both) / f32(cols);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 g = arrived(grad, second, start + col) * to_f32(weight[col]);
        const f32 x = (to_f32(src[start + col]) - mean) * rstd;
        const f32 beside = residual ? to_f32(residual[start + col]) : 0.f;
        const f32 d = rstd * (g - of_grad - x * of_both) + beside;
        dsrc[start + col] = from_f32<S>(d);
        if (copy) copy[start + col] = from_f32<L>(d);
    }
}

#define FORWARD(S, L, NAME, THREADS, BODY) \
    extern "C" __global__ __launch_bounds__(THREADS) void NAME##_##S##_##L( \
        const S* src, const L* add, S* sum, const S* weight, const S* bias, S* dst, L* copy, f32* mean, f32* rstd, \
        u64 rows, u32 cols, f32 eps) { \
        BODY(src, add, sum, weight, bias, dst, copy, mean, rstd, rows, cols, eps); \
    }
#define BACKWARD(S, L, NAME, BOUNDS, BODY) \
    extern "C" __global__ __launch_bounds__ BOUNDS void NAME##_##S##_##L( \
        const S* grad, const L* second, const S* residual, const S* src, const f32* mean, const f32* rstd, \
        const S* weight, S* dsrc, L* copy, f32* partial, u64 rows, u32 cols) { \
        BODY(grad, second, residual, src, mean, rstd, weight, dsrc, copy, partial, rows, cols); \
    }
#define PAIR(S, L) \
    FORWARD(S, L, add_layer_norm_warp, 128, (forward_held<S, L, false>)) \
    FORWARD(S, L, add_layer_norm_block, 1024, (forward_held<S, L, true>)) \
    FORWARD(S, L, add_layer_norm_any, 1024, (forward_any<S, L>)) \
    BACKWARD(S, L, add_layer_norm_backward_warp, (128, 3), (backward_held<S, L, 32 / WIDE<S>, false>)) \
    BACKWARD(S, L, add_layer_norm_backward_block, (1024), (backward_held<S, L, 8 / WIDE<S>, true>)) \
    extern "C" __global__ __launch_bounds__(1024) void add_layer_norm_backward_any_##S##_##L( \
        const S* grad, const L* second, const S* residual, const S* src, const f32* mean, const f32* rstd, \
        const S* weight, S* dsrc, L* copy, u32 cols) { \
        backward_any(grad, second, residual, src, mean, rstd, weight, dsrc, copy, cols); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void add_layer_norm_columns_##S##_##L( \
        const S* grad, const L* second, const S* src, const f32* mean, const f32* rstd, f32* partial, u64 rows, u64 each, \
        u32 cols) { \
        columns_any([=](u64 i) { return arrived(grad, second, i); }, src, mean, rstd, partial, rows, each, cols); \
    }
PAIR(f32, f32) PAIR(f32, f16) PAIR(f32, bf16) PAIR(f16, f16) PAIR(bf16, bf16)
