// The gradient of GELU together with the sums of its columns, the gradient of the bias that was added before.

constexpr u32 THREADS = 256, ACROSS = 32, DOWN = THREADS / ACROSS;
// Rows that a thread loads at once.
constexpr u32 UNROLL = 4;

// `dst = grad · gelu'(src)`, and the sums of dst's columns over the rows of each split (blockIdx.y), as they are kept in
// T. A block's threads stand in rows of 32, each for 16 bytes of columns, whose number is whole. `dst` may be `grad`.
template <class T, bool TANH>
__device__ __forceinline__ void gelu_sums(const T* src, const T* grad, T* dst, f32* partial, u64 rows, u64 each, u64 cols) {
    constexpr int N = WIDE<T>;
    constexpr u32 WIDTH = ACROSS * N;
    __shared__ __align__(16) f32 sums[DOWN * WIDTH];
    const u32 x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    const u64 column = u64(blockIdx.x) * WIDTH + x * N, begin = blockIdx.y * each, end = min(begin + each, rows);
    f32 sum[N] = {};
    if (column < cols) {
        for (u64 row = begin + y; row < end; row += UNROLL * DOWN) {
            Pack<T, N> inputs[UNROLL], gradients[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                const u64 at = (row + i * DOWN) * cols + column;
                if (row + i * DOWN >= end) continue;
                inputs[i] = load<T, N>(src + at);
                gradients[i] = load<T, N>(grad + at);
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                if (row + i * DOWN >= end) continue;
                Pack<T, N> result;
#pragma unroll
                for (int j = 0; j < N; j++) {
                    const f32 input = to_f32(inputs[i].at[j]);
                    const f32 slope = TANH ? gelu_tanh_slope(input) : gelu_erf_slope(input);
                    result.at[j] = from_f32<T>(to_f32(gradients[i].at[j]) * slope);
                    sum[j] += to_f32(result.at[j]);
                }
                store(dst + (row + i * DOWN) * cols + column, result);
            }
        }
    }
    store_f32(sums + y * WIDTH + x * N, sum);
    __syncthreads();
    for (u32 i = threadIdx.x; i < WIDTH; i += THREADS) {
        const u64 summed = u64(blockIdx.x) * WIDTH + i;
        if (summed >= cols) continue;
        f32 total = 0.f;
#pragma unroll
        for (u32 line = 0; line < DOWN; line++) total += sums[line * WIDTH + i];
        partial[blockIdx.y * cols + summed] = total;
    }
}

#define GELU_SUMS(T) \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) gelu_erf_sums_##T( \
        const T* src, const T* grad, T* dst, f32* partial, u64 rows, u64 each, u64 cols) { \
        gelu_sums<T, false>(src, grad, dst, partial, rows, each, cols); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) gelu_tanh_sums_##T( \
        const T* src, const T* grad, T* dst, f32* partial, u64 rows, u64 each, u64 cols) { \
        gelu_sums<T, true>(src, grad, dst, partial, rows, each, cols); \
    }
FOR_FLOATS(GELU_SUMS)
