// Which expert a row goes to, and the products of each expert's rows. The products are not fast.

constexpr u32 THREADS = 256;
constexpr u32 WARPS = THREADS / 32;
constexpr u32 EVERY_LANE = 0xffffffffu;
constexpr int TILE = 16;

// `a` comes before `b` among the largest: NaN first, as in PyTorch.
__device__ __forceinline__ bool is_larger(f32 a, f32 b) { return a > b || (a != a && b == b); }

// One thread for each row: again and again the best of those that come after the last one.
template <class T> __device__ void top_k(const T* src, T* values, i64* indices, u64 rows, u64 cols, u64 k) {
    const u64 row = thread_index();
    if (row >= rows) return;
    src += row * cols;
    f32 last = 0.f;
    u64 behind = 0;
    for (u64 i = 0; i < k; i++) {
        f32 best = 0.f;
        u64 at = cols;
        for (u64 col = 0; col < cols; col++) {
            const f32 x = to_f32(src[col]);
            const bool left = i == 0 || is_larger(last, x) || (!is_larger(x, last) && col > behind);
            if (left && (at == cols || is_larger(x, best))) best = x, at = col;
        }
        values[row * k + i] = src[at];
        indices[row * k + i] = i64(at);
        last = best, behind = at;
    }
}

template <class T>
__device__ void top_k_backward(const T* grad, const i64* indices, T* dst, u64 rows, u64 cols, u64 k) {
    const u64 row = thread_index();
    if (row >= rows) return;
    for (u64 col = 0; col < cols; col++) dst[row * cols + col] = from_f32<T>(0.f);
    for (u64 i = 0; i < k; i++) {
        const u64 at = u64(indices[row * k + i]);
        if (at < cols) dst[row * cols + at] = grad[row * k + i];
    }
}

template <class T>
__device__ void gather(const T* src, const i64* indices, T* dst, u64 rows, u64 cols, u64 k) {
    const u64 row = thread_index();
    if (row >= rows) return;
    for (u64 i = 0; i < k; i++) {
        const u64 at = u64(indices[row * k + i]);
        dst[row * k + i] = at < cols ? src[row * cols + at] : from_f32<T>(0.f);
    }
}

#define ROUTING(T)                                                                                                   \
    extern "C" __global__ void top_k_##T(const T* src, T* values, i64* indices, u64 rows, u64 cols, u64 k) {         \
        top_k(src, values, indices, rows, cols, k);                                                                  \
    }                                                                                                                \
    extern "C" __global__ void top_k_backward_##T(const T* grad, const i64* indices, T* dst, u64 rows, u64 cols,     \
                                                  u64 k) {                                                           \
        top_k_backward(grad, indices, dst, rows, cols, k);                                                           \
    }                                                                                                                \
    extern "C" __global__ void gather_##T(const T* src, const i64* indices, T* dst, u64 rows, u64 cols, u64 k) {      \
        gather(src, indices, dst, rows, cols, k);                                                                    \
    }
FOR_FLOATS(ROUTING)

// The sum over a block before each thread's own, and over the whole block; all threads must call it.
__device__ __forceinline__ u32 count_before(bool mine, u32& all) {
    __shared__ u32 counts[WARPS];
    const u32 votes = __ballot_sync(EVERY_LANE, mine), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    u32 before = __popc(votes & ((1u << lane) - 1));
    all = 0;
    for (u32 i = 0; i < WARPS; i++) {
        if (i < warp) before += counts[i];
        all += counts[i];
    }
    return before;
}

// How many of `groups` are below `bound`, in every thread of the block; all threads must call it.
__device__ __forceinline__ u32 count_below(const i64* groups, i64 bound, u64 n) {
    __shared__ u32 counts[WARPS];
    u32 mine = 0;
    for (u64 i = threadIdx.x; i < n; i += THREADS) mine += groups[i] < bound;
    for (int lane = 16; lane > 0; lane >>= 1) mine += __shfl_xor_sync(EVERY_LANE, mine, lane);
    if ((threadIdx.x & 31) == 0) counts[threadIdx.x >> 5] = mine;
    __syncthreads();
    u32 all = 0;
    for (u32 i = 0; i < WARPS; i++) all += counts[i];
    return all;
}

// One block for each group.
extern "C" __global__ void __launch_bounds__(THREADS) group_ends(const i64* groups, i32* ends, u64 n) {
    const u32 end = count_below(groups, i64(blockIdx.x) + 1, n);
    if (threadIdx.x == 0) ends[blockIdx.x] = i32(end);
}

// One block for each group: it counts those of the groups before, then lists its own in their order.
extern "C" __global__ void __launch_bounds__(THREADS)
    group_rows(const i64* groups, i64* sorted, i64* order, i64* rows, u64 n, u64 each) {
    const i64 group = blockIdx.x;
    u64 next = count_below(groups, group, n);
    for (u64 first = 0; first < n; first += THREADS) {
        const u64 i = first + threadIdx.x;
        const bool is_mine = i < n && groups[i] == group;
        u32 all;
        const u32 before = count_before(is_mine, all);
        if (is_mine) {
            sorted[next + before] = group;
            order[next + before] = i64(i);
            rows[next + before] = i64(i / each);
        }
        next += all;
    }
}

extern "C" __global__ void invert(const i64* order, i64* dst, u64 n) {
    const u64 i = thread_index();
    if (i < n && u64(order[i]) < n) dst[order[i]] = i64(i);
}

// 16 × 16 elements of the rows of one group: blockIdx.y counts the tiles of all groups.
template <class T>
__device__ void grouped_gemm(const T* a, const T* b, T* dst, const i32* ends, u64 b_row, u64 b_col, u64 b_group,
                             u64 groups, u64 n, u64 k) {
    __shared__ f32 left[TILE][TILE + 1], right[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    u64 tile = blockIdx.y, first = 0, end = 0, group = 0;
    for (; group < groups; group++) {
        first = end;
        end = u64(ends[group]);
        const u64 tiles = (end - first + TILE - 1) / TILE;
        if (tile < tiles) break;
        tile -= tiles;
    }
    if (group == groups) return;
    b += group * b_group;
    const u64 col = u64(blockIdx.x) * TILE + x, row = first + tile * TILE + y;
    f32 sum = 0.f;
    for (u64 start = 0; start < k; start += TILE) {
        left[y][x] = row < end && start + x < k ? to_f32(a[row * k + start + x]) : 0.f;
        right[y][x] = start + y < k && col < n ? to_f32(b[(start + y) * b_row + col * b_col]) : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row < end && col < n) dst[row * n + col] = from_f32<T>(sum);
}

// 16 × 16 elements of the matrix of one group.
template <class T>
__device__ void grouped_gemm_outer(const T* a, const T* b, T* dst, const i32* ends, u64 m, u64 n) {
    __shared__ f32 left[TILE][TILE + 1], right[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const u64 group = blockIdx.z, first = group ? u64(ends[group - 1]) : 0, end = u64(ends[group]);
    const u64 col = u64(blockIdx.x) * TILE + x, row = u64(blockIdx.y) * TILE + y, of_left = u64(blockIdx.y) * TILE + x;
    f32 sum = 0.f;
    for (u64 start = first; start < end; start += TILE) {
        left[y][x] = start + y < end && of_left < m ? to_f32(a[(start + y) * m + of_left]) : 0.f;
        right[y][x] = start + y < end && col < n ? to_f32(b[(start + y) * n + col]) : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[i][y] * right[i][x];
        __syncthreads();
    }
    if (row < m && col < n) dst[(group * m + row) * n + col] = from_f32<T>(sum);
}

#define GROUPED(T)                                                                                                  \
    extern "C" __global__ void grouped_gemm_##T(const T* a, const T* b, T* dst, const i32* ends, u64 b_row,          \
                                                u64 b_col, u64 b_group, u64 groups, u64 n, u64 k) {                 \
        grouped_gemm(a, b, dst, ends, b_row, b_col, b_group, groups, n, k);                                         \
    }                                                                                                               \
    extern "C" __global__ void grouped_gemm_outer_##T(const T* a, const T* b, T* dst, const i32* ends, u64 m,       \
                                                      u64 n) {                                                      \
        grouped_gemm_outer(a, b, dst, ends, m, n);                                                                  \
    }
FOR_FLOATS(GROUPED)
