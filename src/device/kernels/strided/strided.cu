// Copies between layouts, converting floats on the way. The launcher has dropped dimensions of size 1, put those with the
// longest strides of the destination first and joined what lies behind one another.

constexpr u32 THREADS = 256;

// Four dimensions, outermost first; strides in elements.
struct Layout {
    u64 size[4];
    u64 src[4];
    u64 dst[4];
};

template <class D, class S> __device__ __forceinline__ D converted(S x) { return from_f32<D>(to_f32(x)); }
template <> __device__ __forceinline__ i64 converted<i64, i64>(i64 x) { return x; }
template <> __device__ __forceinline__ f32 converted<f32, f32>(f32 x) { return x; }
template <> __device__ __forceinline__ f16 converted<f16, f16>(f16 x) { return x; }
template <> __device__ __forceinline__ bf16 converted<bf16, bf16>(bf16 x) { return x; }
template <> __device__ __forceinline__ u8 converted<u8, u8>(u8 x) { return x; }

// Copies N elements of the innermost dimension at once. With N over 1 that dimension is contiguous in both layouts, and all
// others begin at multiples of N.
template <class S, class D, int N>
__device__ __forceinline__ void copy_runs(const S* src, D* dst, u32 packs, const Layout& layout) {
    constexpr u32 UNROLL = 4;
    const u32 per_run = u32((layout.size[3] + N - 1) / N);
    const u64 first = u64(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
    u64 to[UNROLL];
    u32 count[UNROLL];
    Pack<S, N> values[UNROLL];
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        count[i] = 0;
        const u64 pack = first + i * THREADS;
        if (pack >= packs) continue;
        u32 rest = u32(pack) / per_run;
        const u64 inner = u64(u32(pack) - rest * per_run) * N;
        const u64 z = rest % u32(layout.size[2]);
        rest /= u32(layout.size[2]);
        const u64 y = rest % u32(layout.size[1]), x = rest / u32(layout.size[1]);
        const u64 from = x * layout.src[0] + y * layout.src[1] + z * layout.src[2] + inner * layout.src[3];
        to[i] = x * layout.dst[0] + y * layout.dst[1] + z * layout.dst[2] + inner * layout.dst[3];
        count[i] = u32(min(u64(N), layout.size[3] - inner));
        if (count[i] == N) {
            values[i] = load<S, N>(src + from);
        } else {
#pragma unroll
            for (u32 j = 0; j < N; j++) {
                if (j < count[i]) values[i].at[j] = src[from + j];
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        Pack<D, N> pack;
#pragma unroll
        for (int j = 0; j < N; j++) pack.at[j] = converted<D, S>(values[i].at[j]);
        if (count[i] == N) {
            store<D, N>(dst + to[i], pack);
        } else {
#pragma unroll
            for (u32 j = 0; j < N; j++) {
                if (j < count[i]) dst[to[i] + j] = pack.at[j];
            }
        }
    }
}

// Transposes squares of 64 × 64 through shared memory: the source is contiguous in dimension 2, the destination in
// dimension 3.
constexpr u32 SQUARE = 64;
template <class S, class D>
__device__ __forceinline__ void transpose(const S* src, D* dst, const Layout& layout) {
    constexpr u32 ROWS = THREADS / SQUARE, ROUNDS = SQUARE / ROWS;
    __shared__ S square[SQUARE][SQUARE + 1];
    const u64 across = (layout.size[3] + SQUARE - 1) / SQUARE, down = (layout.size[2] + SQUARE - 1) / SQUARE;
    const u64 matrix = blockIdx.x / (across * down), tile = blockIdx.x % (across * down);
    const u64 x = matrix / layout.size[1], y = matrix % layout.size[1];
    const u64 first2 = tile / across * SQUARE, first3 = tile % across * SQUARE;
    const u32 lane = threadIdx.x % SQUARE, row = threadIdx.x / SQUARE;
    const S* from = src + x * layout.src[0] + y * layout.src[1];
    D* to = dst + x * layout.dst[0] + y * layout.dst[1];
    S values[ROUNDS];
#pragma unroll
    for (u32 i = 0; i < ROUNDS; i++) {
        const u64 at2 = first2 + lane, at3 = first3 + i * ROWS + row;
        if (at2 < layout.size[2] && at3 < layout.size[3]) values[i] = from[at2 + at3 * layout.src[3]];
    }
#pragma unroll
    for (u32 i = 0; i < ROUNDS; i++) square[i * ROWS + row][lane] = values[i];
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ROUNDS; i++) {
        const u64 at2 = first2 + i * ROWS + row, at3 = first3 + lane;
        if (at2 < layout.size[2] && at3 < layout.size[3])
            to[at2 * layout.dst[2] + at3] = converted<D, S>(square[lane][i * ROWS + row]);
    }
}

// The larger of two types decides how many elements are 16 bytes.
template <class S, class D> constexpr int AT_ONCE = sizeof(S) > sizeof(D) ? WIDE<S> : WIDE<D>;

#define STRIDED(S, D)                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        strided_packs_##S##_##D(const S* src, D* dst, u32 packs, Layout layout) {                                       \
        copy_runs<S, D, AT_ONCE<S, D>>(src, dst, packs, layout);                                                     \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        strided_elements_##S##_##D(const S* src, D* dst, u32 packs, Layout layout) {                                    \
        copy_runs<S, D, 1>(src, dst, packs, layout);                                                                 \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        strided_transpose_##S##_##D(const S* src, D* dst, Layout layout) {                                                   \
        transpose(src, dst, layout);                                                                                 \
    }
FOR_FLOAT_PAIRS(STRIDED)
STRIDED(i64, i64)
STRIDED(u8, u8)
