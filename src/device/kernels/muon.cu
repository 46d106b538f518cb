// Muon's update of a parameter beside its matrix products. Every operation rounds by itself, as PyTorch's do: nothing is contracted.

template <class T> __device__ __forceinline__ f32 as_kept(f32 x) { return to_f32(from_f32<T>(x)); }

template <class T> __device__ __forceinline__ void nesterov(T* buffer, const T* gradient, T* update, u64 len, f32 rest) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const f32 g = to_f32(gradient[i]), before = to_f32(buffer[i]);
        const f32 b = as_kept<T>(__fadd_rn(before, __fmul_rn(rest, __fsub_rn(g, before))));
        buffer[i] = from_f32<T>(b);
        update[i] = from_f32<T>(__fsub_rn(b, __fmul_rn(__fsub_rn(b, g), rest)));
    }
}

// What is no number stays.
template <class T> __device__ __forceinline__ void normalise(T* matrix, const T* norm, u64 len, f32 least) {
    const f32 n = to_f32(*norm), divisor = n < least ? least : n;
    for (u64 i = thread_index(); i < len; i += thread_count()) matrix[i] = from_f32<T>(__fdiv_rn(to_f32(matrix[i]), divisor));
}

constexpr int STEP_TILE = 32;

// A block has a tile of the matrix: where columns of the update are contiguous it is turned on its way.
template <class P, class U>
__device__ __forceinline__ void step(P* parameter, const U* update, u64 row_stride, u64 col_stride, u64 rows, u64 cols,
                                     f32 keep, f32 size) {
    __shared__ f32 tile[STEP_TILE][STEP_TILE + 1];
    const u64 across = (cols + STEP_TILE - 1) / STEP_TILE;
    const u64 row = blockIdx.x / across * STEP_TILE, col = blockIdx.x % across * STEP_TILE;
    const int x = threadIdx.x % STEP_TILE, first = threadIdx.x / STEP_TILE, more = blockDim.x / STEP_TILE;
    const bool turned = col_stride != 1;
    for (int y = first; y < STEP_TILE; y += more) {
        const int r = turned ? x : y, c = turned ? y : x;
        if (row + r < rows && col + c < cols) tile[r][c] = to_f32(update[(row + r) * row_stride + (col + c) * col_stride]);
    }
    __syncthreads();
    for (int y = first; y < STEP_TILE; y += more) {
        if (row + y >= rows || col + x >= cols) continue;
        P* at = parameter + (row + y) * cols + col + x;
        *at = from_f32<P>(__fsub_rn(as_kept<P>(__fmul_rn(to_f32(*at), keep)), __fmul_rn(size, tile[y][x])));
    }
}

#define MUON(T) \
    extern "C" __global__ __launch_bounds__(256) void muon_nesterov_##T( \
        T* buffer, const T* gradient, T* update, u64 len, f32 rest) { \
        nesterov<T>(buffer, gradient, update, len, rest); \
    } \
    extern "C" __global__ __launch_bounds__(256) void muon_normalise_##T(T* matrix, const T* norm, u64 len, f32 least) { \
        normalise<T>(matrix, norm, len, least); \
    }
FOR_FLOATS(MUON)

#define MUON_STEP(P, U) \
    extern "C" __global__ __launch_bounds__(256) void muon_step_##P##_##U( \
        P* parameter, const U* update, u64 row_stride, u64 col_stride, u64 rows, u64 cols, f32 keep, f32 size) { \
        step<P, U>(parameter, update, row_stride, col_stride, rows, cols, keep, size); \
    }
FOR_FLOAT_PAIRS(MUON_STEP)
