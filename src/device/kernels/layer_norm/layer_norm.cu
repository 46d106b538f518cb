// Layer normalisation. Rows of a multiple of 16 bytes wait in registers, of a warp or of a block, from when they are
// read until they are written; other rows are read several times.

// Normalises a row of up to 32 elements for each thread of a warp or a block.
template <class T, class W, bool BLOCK>
__device__ void forward_held(
    const T* src, const W* weight, const W* bias, T* dst, f32* means, f32* rstds, u64 rows, u32 cols, f32 eps) {
    constexpr int N = WIDE<T>, K = 32 / N;
    const u64 row = BLOCK ? blockIdx.x : thread_index() / 32;
    if (row >= rows) return;
    src += row * cols;
    dst += row * cols;
    f32 x[K][N], sum = 0.f, squares = 0.f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
        if (col < cols) {
            load_f32(src + col, x[k]);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) x[k][i] = 0.f;
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) sum += x[k][i];
    }
    const f32 mean = sum_over<BLOCK>(sum) / f32(cols);
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
        load_or(weight, col, 1.f, w);
        load_or(bias, col, 0.f, b);
#pragma unroll
        for (int i = 0; i < N; i++) x[k][i] = (x[k][i] - mean) * rstd * w[i] + b[i];
        store_f32(dst + col, x[k]);
    }
    if (lane<BLOCK>() == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// Normalises a row of any length and place by a block.
template <class T, class W>
__device__ void forward_any(
    const T* src, const W* weight, const W* bias, T* dst, f32* means, f32* rstds, u64, u32 cols, f32 eps) {
    const u64 row = blockIdx.x;
    src += row * cols;
    dst += row * cols;
    f32 sum = 0.f, squares = 0.f;
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) sum += to_f32(src[col]);
    const f32 mean = block_reduce<Sum>(sum) / f32(cols);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 centred = to_f32(src[col]) - mean;
        squares += centred * centred;
    }
    const f32 rstd = 1.f / sqrtf(block_reduce<Sum>(squares) / f32(cols) + eps);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 w = weight ? to_f32(weight[col]) : 1.f, b = bias ? to_f32(bias[col]) : 0.f;
        dst[col] = from_f32<T>((to_f32(src[col]) - mean) * rstd * w + b);
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// The gradients of rows, of every n-th by one warp or block, whose threads hold K vectors of the row each. Each thread
// sums what its columns give to the gradients of weight and bias; `partial` gets the sums of each block: of the weight,
// then of the bias.
template <class T, class W, int K, bool BLOCK>
__device__ void backward_held(
    const T* grad, const T* src, const f32* means, const f32* rstds, const W* weight, T* dsrc, f32* partial, u64 rows,
    u32 cols) {
    constexpr int N = WIDE<T>;
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
            load_f32(grad + start + col, g[k]);
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
            store_f32(dsrc + start + col, g[k]);
        }
    }
    keep_sums<K, N, BLOCK>(dweight, dbias, partial, cols);
}

// The gradient of a row of any length and place by a block.
template <class T, class W>
__device__ void backward_any(
    const T* grad, const T* src, const f32* means, const f32* rstds, const W* weight, T* dsrc, u32 cols) {
    const u64 row = blockIdx.x, start = row * cols;
    const f32 mean = means[row], rstd = rstds[row];
    f32 of_grad = 0.f, of_both = 0.f;
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 g = to_f32(grad[start + col]) * (weight ? to_f32(weight[col]) : 1.f);
        of_grad += g;
        of_both += g * (to_f32(src[start + col]) - mean) * rstd;
    }
    of_grad = block_reduce<Sum>(of_grad) / f32(cols);
    of_both = block_reduce<Sum>(of_both) / f32(cols);
    for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
        const f32 g = to_f32(grad[start + col]) * (weight ? to_f32(weight[col]) : 1.f);
        const f32 x = (to_f32(src[start + col]) - mean) * rstd;
        dsrc[start + col] = from_f32<T>(rstd * (g - of_grad - x * of_both));
    }
}

// The gradients of weight and bias, where there is one, from those of parts of the rows.
template <class W> __device__ void columns_joined(const f32* partial, W* dweight, W* dbias, u32 parts, u32 cols) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 width = 2 * u64(cols), col = u64(blockIdx.x) * 32 + lane;
    f32 sum = 0.f;
    if (col < width) {
#pragma unroll 8
        for (u32 part = warp; part < parts; part += 32) sum += partial[part * width + col];
    }
    sum = sum_columns(sum);
    const u64 summed = u64(blockIdx.x) * 32 + warp;
    if (lane != 0 || summed >= width) return;
    if (summed < cols) {
        dweight[summed] = from_f32<W>(sum);
    } else if (dbias) {
        dbias[summed - cols] = from_f32<W>(sum);
    }
}

#define FORWARD(T, W, NAME, THREADS, BODY) \
    extern "C" __global__ __launch_bounds__(THREADS) void NAME##_##T##_##W( \
        const T* src, const W* weight, const W* bias, T* dst, f32* mean, f32* rstd, u64 rows, u32 cols, f32 eps) { \
        BODY(src, weight, bias, dst, mean, rstd, rows, cols, eps); \
    }
#define BACKWARD(T, W, NAME, BOUNDS, BODY) \
    extern "C" __global__ __launch_bounds__ BOUNDS void NAME##_##T##_##W( \
        const T* grad, const T* src, const f32* mean, const f32* rstd, const W* weight, T* dsrc, f32* partial, \
        u64 rows, u32 cols) { \
        BODY(grad, src, mean, rstd, weight, dsrc, partial, rows, cols); \
    }
#define PAIR(T, W) \
    FORWARD(T, W, layer_norm_warp, 128, (forward_held<T, W, false>)) \
    FORWARD(T, W, layer_norm_block, 1024, (forward_held<T, W, true>)) \
    FORWARD(T, W, layer_norm_any, 1024, (forward_any<T, W>)) \
    BACKWARD(T, W, layer_norm_backward_warp, (128, 3), (backward_held<T, W, 32 / WIDE<T>, false>)) \
    BACKWARD(T, W, layer_norm_backward_block, (1024), (backward_held<T, W, 8 / WIDE<T>, true>)) \
    extern "C" __global__ __launch_bounds__(1024) void layer_norm_backward_any_##T##_##W( \
        const T* grad, const T* src, const f32* mean, const f32* rstd, const W* weight, T* dsrc, u32 cols) { \
        backward_any(grad, src, mean, rstd, weight, dsrc, cols); \
    }
PAIR(f32, f32) PAIR(f16, f16) PAIR(bf16, bf16)
PAIR(f16, f32) PAIR(bf16, f32) PAIR(f32, f16) PAIR(f32, bf16)

#define SINGLE(T) \
    extern "C" __global__ __launch_bounds__(1024) void layer_norm_columns_##T( \
        const T* grad, const T* src, const f32* mean, const f32* rstd, f32* partial, u64 rows, u64 each, u32 cols) { \
        columns_any([=](u64 i) { return to_f32(grad[i]); }, src, mean, rstd, partial, rows, each, cols); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void layer_norm_joined_##T( \
        const f32* partial, T* dweight, T* dbias, u32 parts, u32 cols) { \
        columns_joined(partial, dweight, dbias, parts, cols); \
    }
FOR_FLOATS(SINGLE)
