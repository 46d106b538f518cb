// The norm by the root of the mean square. A row is read twice, the second time from the cache; a warp has short rows, a
// block long ones, and each thread takes N elements at once.

template <class T, class W, int N, bool BLOCK>
__device__ void forward_row(const T* src, const W* weight, T* dst, f32* rstds, u64 rows, u32 cols, f32 eps) {
    const u64 row = BLOCK ? blockIdx.x : thread_index() / 32;
    if (row >= rows) return;
    src += row * cols;
    dst += row * cols;
    f32 squares = 0.f;
    for (u32 col = lane<BLOCK>() * N; col < cols; col += lanes<BLOCK>() * N) {
        f32 x[N];
        load_f32(src + col, x);
#pragma unroll
        for (int i = 0; i < N; i++) squares += x[i] * x[i];
    }
    const f32 rstd = 1.f / sqrtf(sum_over<BLOCK>(squares) / f32(cols) + eps);
    for (u32 col = lane<BLOCK>() * N; col < cols; col += lanes<BLOCK>() * N) {
        f32 x[N], w[N];
        load_f32(src + col, x);
        load_f32(weight + col, w);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] *= rstd * w[i];
        store_f32(dst + col, x);
    }
    if (lane<BLOCK>() == 0) rstds[row] = rstd;
}

template <class T, class D, int N, bool BLOCK>
__device__ void norm_of_row(const T* src, D* dst, u64 rows, u32 cols) {
    const u64 row = BLOCK ? blockIdx.x : thread_index() / 32;
    if (row >= rows) return;
    src += row * cols;
    f32 squares = 0.f;
    for (u32 col = lane<BLOCK>() * N; col < cols; col += lanes<BLOCK>() * N) {
        f32 x[N];
        load_f32(src + col, x);
#pragma unroll
        for (int i = 0; i < N; i++) squares += x[i] * x[i];
    }
    squares = sum_over<BLOCK>(squares);
    if (lane<BLOCK>() == 0) dst[row] = from_f32<D>(sqrtf(squares));
}

template <class T, class W, int N, bool BLOCK>
__device__ void backward_row(const T* grad, const T* src, const f32* rstds, const W* weight, T* dsrc, u64 rows, u32 cols) {
    const u64 row = BLOCK ? blockIdx.x : thread_index() / 32;
    if (row >= rows) return;
    const u64 start = row * cols;
    const f32 rstd = rstds[row];
    f32 both = 0.f;
    for (u32 col = lane<BLOCK>() * N; col < cols; col += lanes<BLOCK>() * N) {
        f32 x[N], g[N], w[N];
        load_f32(src + start + col, x);
        load_f32(grad + start + col, g);
        load_f32(weight + col, w);
#pragma unroll
        for (int i = 0; i < N; i++) both += g[i] * w[i] * x[i] * rstd;
    }
    both = sum_over<BLOCK>(both) / f32(cols);
    for (u32 col = lane<BLOCK>() * N; col < cols; col += lanes<BLOCK>() * N) {
        f32 x[N], g[N], w[N];
        load_f32(src + start + col, x);
        load_f32(grad + start + col, g);
        load_f32(weight + col, w);
#pragma unroll
        for (int i = 0; i < N; i++) g[i] = rstd * (g[i] * w[i] - x[i] * rstd * both);
        store_f32(dsrc + start + col, g);
    }
}

// What `each` rows from blockIdx.y · each on give to the gradient of the weight.
template <class T>
__device__ void columns(const T* grad, const T* src, const f32* rstds, f32* partial, u64 rows, u64 each, u32 cols) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, col = blockIdx.x * 32 + lane;
    const u64 begin = blockIdx.y * each, end = begin + each < rows ? begin + each : rows;
    f32 sum = 0.f;
    if (col < cols) {
        for (u64 row = begin + warp; row < end; row += 32) {
            sum += to_f32(grad[row * cols + col]) * to_f32(src[row * cols + col]) * rstds[row];
        }
    }
    sum = sum_columns(sum);
    const u32 summed = blockIdx.x * 32 + warp;
    if (lane == 0 && summed < cols) partial[u64(blockIdx.y) * cols + summed] = sum;
}

#define FORMS(T, W, NAME, N, BLOCK) \
    extern "C" __global__ __launch_bounds__(1024) void rms_norm_##NAME##_##T##_##W( \
        const T* src, const W* weight, T* dst, f32* rstd, u64 rows, u32 cols, f32 eps) { \
        forward_row<T, W, N, BLOCK>(src, weight, dst, rstd, rows, cols, eps); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void rms_norm_backward_##NAME##_##T##_##W( \
        const T* grad, const T* src, const f32* rstd, const W* weight, T* dsrc, u64 rows, u32 cols) { \
        backward_row<T, W, N, BLOCK>(grad, src, rstd, weight, dsrc, rows, cols); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void row_norm_##NAME##_##T##_##W( \
        const T* src, W* dst, u64 rows, u32 cols) { \
        norm_of_row<T, W, N, BLOCK>(src, dst, rows, cols); \
    }
#define PAIR(T, W) \
    FORMS(T, W, warp, WIDE<T>, false) FORMS(T, W, block, WIDE<T>, true) FORMS(T, W, any, 1, true)
PAIR(f32, f32) PAIR(f16, f16) PAIR(bf16, bf16)
PAIR(f16, f32) PAIR(bf16, f32) PAIR(f32, f16) PAIR(f32, bf16)

#define SINGLE(T) \
    extern "C" __global__ __launch_bounds__(1024) void rms_norm_columns_##T( \
        const T* grad, const T* src, const f32* rstd, f32* partial, u64 rows, u64 each, u32 cols) { \
        columns(grad, src, rstd, partial, rows, each, cols); \
    }
FOR_FLOATS(SINGLE)
