// Sums over one dimension. A sum is split among blocks where there are few results; every block's share goes to scratch,
// and a second launch of the same kernels adds the shares, in their order.

constexpr u32 THREADS = 256;
// Loads of a thread that are under way at once.
constexpr u32 UNROLL = 8;

// Four elements of a row: side by side, or `across` apart where rows are not aligned.
template <class T, bool PACKED>
__device__ __forceinline__ Pack<T, 4> load_four(const T* row, u64 column, u32 across, u64 cols) {
    if constexpr (PACKED) return load<T, 4>(row + column);
    Pack<T, 4> x;
#pragma unroll
    for (u32 i = 0; i < 4; i++) x.at[i] = column + i * across < cols ? row[column + i * across] : T{};
    return x;
}

// `dst[split][o][c] = Σ_r src[o][r][c] / divisor` over the rows of each split. A block's threads stand in rows of
// `across`, each for four columns.
template <class T, class D, bool PACKED>
__device__ __forceinline__ void column_sum(const T* src, D* dst, u64 outer, u64 rows, u64 cols, u32 across, u64 splits,
                                           u64 per_split, f32 divisor) {
    __shared__ f32 sums[THREADS * 4];
    const u32 down = THREADS / across, width = 4 * across;
    const u32 x = threadIdx.x % across, y = threadIdx.x / across;
    const u64 tiles = (cols + width - 1) / width, tile = blockIdx.x % tiles;
    const u64 split = blockIdx.x / tiles % splits, o = blockIdx.x / tiles / splits;
    const u64 column = tile * width + (PACKED ? 4 * x : x);
    const u64 begin = split * per_split, end = min(begin + per_split, rows);
    f32 sum[4] = {};
    if (y < down && column < cols) {
        const T* first = src + o * rows * cols;
        for (u64 row = begin + y; row < end; row += UNROLL * down) {
            Pack<T, 4> lines[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                const u64 line = row + i * down;
                lines[i] = Pack<T, 4>{};
                if (line < end) lines[i] = load_four<T, PACKED>(first + line * cols, column, across, cols);
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) sum[j] += to_f32(lines[i].at[j]);
            }
        }
    }
    if (y < down) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) sums[y * width + (PACKED ? 4 * x + j : j * across + x)] = sum[j];
    }
    // The lower half of the rows takes up the upper, until one is left.
    for (u32 left = down; left > 1;) {
        const u32 half = (left + 1) / 2;
        __syncthreads();
        for (u32 i = threadIdx.x; i < (left - half) * width; i += THREADS) sums[i] += sums[i + half * width];
        left = half;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < width && tile * width + i < cols; i += THREADS)
        dst[(split * outer + o) * cols + tile * width + i] = from_f32<D>(sums[i] / divisor);
}

// `dst[o][c] = Σ_r src[o][r][c] / divisor` where rows are few: each thread adds four columns.
template <class T, class D>
__device__ __forceinline__ void few_rows(const T* src, D* dst, u64 results, u64 rows, u64 cols, f32 divisor) {
    const u64 at = 4 * thread_index();
    if (at >= results) return;
    const u64 o = results >> 32 == 0 ? u32(at) / u32(cols) : at / cols;
    const T* first = src + o * (rows - 1) * cols + at;
    f32 sum[4] = {};
#pragma unroll 8
    for (u64 row = 0; row < rows; row++) {
        f32 x[4];
        load_f32(first + row * cols, x);
#pragma unroll
        for (u32 j = 0; j < 4; j++) sum[j] += x[j];
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) dst[at + j] = from_f32<D>(sum[j] / divisor);
}

#define COLUMN_SUM(T, D)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                         \
        column_sum_##T##_##D(const T* src, D* dst, u64 outer, u64 rows, u64 cols, u32 across, u64 splits,            \
                             u64 per_split, f32 divisor) {                                                           \
        column_sum<T, D, true>(src, dst, outer, rows, cols, across, splits, per_split, divisor);                     \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 3)                                                         \
        column_sum_unaligned_##T##_##D(const T* src, D* dst, u64 outer, u64 rows, u64 cols, u32 across, u64 splits,  \
                                       u64 per_split, f32 divisor) {                                                 \
        column_sum<T, D, false>(src, dst, outer, rows, cols, across, splits, per_split, divisor);                    \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        few_rows_##T##_##D(const T* src, D* dst, u64 results, u64 rows, u64 cols, f32 divisor) {                     \
        few_rows<T, D>(src, dst, results, rows, cols, divisor);                                                      \
    }
FOR_FLOAT_PAIRS(COLUMN_SUM)

// `dst[split][c] = Σ_{n,i} src[n][c][i] / divisor`, N elements at once. A block sums one channel. What its threads load at
// once is a piece: `across` of them stand side by side along the area; areas that one row of threads covers are one piece
// each, and several rows of threads load as many images.
template <class T, class D, int N>
__device__ __forceinline__ void channel_sum(const T* src, D* dst, u64 batch, u64 channels, u64 area, u32 across,
                                            u64 per_split, f32 divisor) {
    const u64 channel = blockIdx.x % channels, split = blockIdx.x / channels;
    const u32 down = THREADS / across, x = threadIdx.x % across, y = threadIdx.x / across;
    const u64 width = u64(across) * N, chunks = (area + width - 1) / width;
    // Several rows of threads only where areas have one chunk.
    const u64 end = min((split + 1) * per_split, batch * chunks), carry = down * channels * area - (chunks - 1) * width;
    u64 piece = split * per_split + y, chunk = piece % chunks;
    u64 at = (piece / chunks * channels + channel) * area + chunk * width + x * N;
    f32 sum[N] = {};
    while (y < down && piece < end) {
        Pack<T, N> packs[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            packs[i] = Pack<T, N>{};
            if (piece < end && chunk * width + x * N < area) packs[i] = load<T, N>(src + at);
            piece += down;
            chunk += 1;
            at += chunk == chunks ? carry : width;
            chunk = chunk == chunks ? 0 : chunk;
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += to_f32(packs[i].at[j]);
        }
    }
    f32 total = sum[0];
    for (int j = 1; j < N; j++) total += sum[j];
    total = block_reduce<Sum>(total);
    if (threadIdx.x == 0) dst[split * channels + channel] = from_f32<D>(total / divisor);
}

// `dst[r] = Σ_i src[r][i] / divisor` for short rows: a block takes `rows_per_block` of them, which lie side by side and
// have TILE elements at most, and `share` threads (a power of two) add each.
constexpr u32 TILE = 8192;
template <class T, class D>
__device__ __forceinline__ void row_sum(const T* src, D* dst, u64 rows, u32 cols, u32 rows_per_block, u32 share,
                                        f32 divisor) {
    __shared__ f32 tile[TILE];
    const u64 first = u64(blockIdx.x) * rows_per_block;
    const u32 count = u32(min(u64(rows_per_block), rows - first)), elements = count * cols;
    const T* from = src + first * cols;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < elements; i += THREADS) tile[i] = to_f32(from[i]);
    __syncthreads();
    for (u32 base = 0; base < count; base += THREADS / share) {
        const u32 row = base + threadIdx.x / share;
        f32 sum = 0.f;
        if (row < count) {
            for (u32 i = threadIdx.x % share; i < cols; i += share) sum += tile[row * cols + i];
        }
        for (u32 lane = share / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
        if (row < count && threadIdx.x % share == 0) dst[first + row] = from_f32<D>(sum / divisor);
    }
}

#define CHANNEL_SUM(T, D)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                         \
        channel_sum_##T##_##D(const T* src, D* dst, u64 batch, u64 channels, u64 area, u32 across, u64 per_split,    \
                              f32 divisor) {                                                                         \
        channel_sum<T, D, 4>(src, dst, batch, channels, area, across, per_split, divisor);                           \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                         \
        channel_sum_unaligned_##T##_##D(const T* src, D* dst, u64 batch, u64 channels, u64 area, u32 across,         \
                                        u64 per_split, f32 divisor) {                                                \
        channel_sum<T, D, 1>(src, dst, batch, channels, area, across, per_split, divisor);                           \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        row_sum_##T##_##D(const T* src, D* dst, u64 rows, u32 cols, u32 rows_per_block, u32 share, f32 divisor) {    \
        row_sum(src, dst, rows, cols, rows_per_block, share, divisor);                                               \
    }
FOR_FLOAT_PAIRS(CHANNEL_SUM)

// `dst[o][m][i] = src[o][i] / middle`.
template <class T, class D>
__device__ __forceinline__ void spread(const T* src, D* dst, u64 outer, u64 middle, u64 inner, f32 divisor) {
    constexpr int N = WIDE<D>;
    const u64 len = outer * middle * inner, at = thread_index() * N;
    if (at >= len) return;
    u64 o, i;
    if (len >> 32 == 0) {
        o = u32(at) / (u32(middle) * u32(inner));
        i = u32(at) % u32(inner);
    } else {
        o = at / (middle * inner);
        i = at % inner;
    }
    u64 left = (o + 1) * middle * inner - at; // elements up to the next o
    Pack<D, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) {
        pack.at[j] = at + j < len ? from_f32<D>(to_f32(src[o * inner + i]) / divisor) : D{};
        i = i + 1 == inner ? 0 : i + 1;
        left -= 1;
        if (left == 0) {
            left = middle * inner;
            o += 1;
        }
    }
    if (at + N <= len && (u64(dst) & 15) == 0) {
        store<D, N>(dst + at, pack);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (at + j < len) dst[at + j] = pack.at[j];
        }
    }
}

#define MEAN_BACKWARD(T, D)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        mean_backward_##T##_##D(const T* src, D* dst, u64 outer, u64 middle, u64 inner, f32 divisor) {               \
        spread(src, dst, outer, middle, inner, divisor);                                                             \
    }
FOR_FLOAT_PAIRS(MEAN_BACKWARD)
