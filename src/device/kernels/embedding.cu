// Rows of a table by index. The gradient adds rows of equal index without atomics on floats: integer atomics find out
// which positions have an index, and sums run in the order of positions.

constexpr u32 THREADS = 256;
constexpr u32 WARPS = THREADS / 32;
constexpr u32 EVERY_LANE = 0xffffffffu;
constexpr u32 NO_ROW = 0xffffffffu;
// Positions that are kept of each table row: rows of more are crowded.
constexpr u32 KEPT = 16;
// Positions that one block adds for a crowded row, at most.
constexpr u32 MOST_IN_SEGMENT = 1024;
constexpr u32 MOST_SEGMENTS = 4096;

// Four elements of a row of `width`: side by side, or `step` apart where rows are not aligned.
template <class T, bool PACKED>
__device__ __forceinline__ Pack<T, 4> load_four(const T* row, u64 column, u32 step, u64 width) {
    Pack<T, 4> x{};
    if constexpr (PACKED) {
        if (column < width) x = load<T, 4>(row + column);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (column + i * step < width) x.at[i] = row[column + i * step];
        }
    }
    return x;
}

template <class T, bool PACKED>
__device__ __forceinline__ void store_four(T* row, u64 column, u32 step, u64 width, const f32 (&x)[4]) {
    if constexpr (PACKED) {
        Pack<T, 4> pack;
#pragma unroll
        for (u32 i = 0; i < 4; i++) pack.at[i] = from_f32<T>(x[i]);
        if (column < width) store<T, 4>(row + column, pack);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (column + i * step < width) row[column + i * step] = from_f32<T>(x[i]);
        }
    }
}

// `dst[i, :] = weight[indices[i], :]`, N elements at once; NaN for an index outside the table.
template <class T, class D, int N>
__device__ __forceinline__ void embedding(const T* weight, const i64* indices, D* dst, u64 rows, u64 width,
                                          u64 packs) {
    constexpr u32 UNROLL = 4;
    const u32 per_row = u32(width / N);
    const u64 first = u64(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
    const T* from[UNROLL];
    Pack<T, N> values[UNROLL];
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        const u64 pack = min(first + i * THREADS, packs - 1);
        const u64 row = packs >> 32 == 0 ? u32(pack) / per_row : pack / per_row;
        const u64 index = u64(indices[row]);
        from[i] = index < rows ? weight + index * width + (pack - row * per_row) * N : nullptr;
    }
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        if (from[i]) values[i] = load<T, N>(from[i]);
    }
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        const u64 pack = first + i * THREADS;
        Pack<D, N> converted;
#pragma unroll
        for (int j = 0; j < N; j++)
            converted.at[j] = from_f32<D>(from[i] ? to_f32(values[i].at[j]) : __int_as_float(0x7fc00000));
        if (pack < packs) store<D, N>(dst + pack * N, converted);
    }
}

// What is known of the positions of each index. `count` (one for each table row) and `items` begin as zeros.
struct Places {
    u32* row_of; // table row of each position; positions up to the next multiple of 16 have none
    u32* count;  // positions of each table row
    u32* kept;   // KEPT positions of each table row, in any order
    u64* item;   // segments of crowded rows, in any order: row, and number of the segment in its upper half
    u32* items;  // how many
};

// Counts the positions of each index, and keeps them where they are few.
extern "C" __global__ void __launch_bounds__(THREADS)
    embedding_places(const i64* indices, u64 n, u64 rows, u32 segment, Places places) {
    const u64 position = thread_index();
    const u64 index = position < n ? u64(indices[position]) : rows;
    const u32 row = index < rows ? u32(index) : NO_ROW;
    if (position < (n + 15) / 16 * 16) places.row_of[position] = row;
    // One lane counts for all that have the same index.
    const u32 same = __match_any_sync(EVERY_LANE, row), lane = threadIdx.x & 31;
    const int first = __ffs(same) - 1;
    u32 rank = 0;
    if (lane == first && row != NO_ROW) rank = atomicAdd(places.count + row, __popc(same));
    rank = __shfl_sync(EVERY_LANE, rank, first) + __popc(same & ((1u << lane) - 1));
    if (row == NO_ROW) return;
    if (rank < KEPT) places.kept[u64(row) * KEPT + rank] = u32(position);
    if (rank == KEPT) places.item[atomicAdd(places.items, 1)] = row;
    if (rank > 0 && rank % segment == 0) places.item[atomicAdd(places.items, 1)] = u64(rank / segment) << 32 | row;
}

// Lists positions `[skipped, skipped + most)` among those of `row`, in their order; returns how many there are.
__device__ u32 list_positions(const u32* row_of, u64 n, u32 row, u32 skipped, u32 most, u32* list) {
    __shared__ u32 of_warp[WARPS];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 before = 0;
    for (u64 base = 0; base < n && before < skipped + most; base += THREADS * 16) {
        const u64 first = base + threadIdx.x * 16;
        u32 matches = 0; // one bit for each of the thread's 16 positions
        if (first < n) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const Pack<u32, 4> four = load<u32, 4>(row_of + first + 4 * i);
#pragma unroll
                for (u32 j = 0; j < 4; j++) matches |= u32(four.at[j] == row) << (4 * i + j);
            }
        }
        const u32 own = __popc(matches);
        u32 up_to = own;
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 other = __shfl_up_sync(EVERY_LANE, up_to, distance);
            if (lane >= distance) up_to += other;
        }
        __syncthreads();
        if (lane == 31) of_warp[warp] = up_to;
        __syncthreads();
        u32 place = before + up_to - own;
        for (u32 i = 0; i < WARPS; i++) {
            if (i < warp) place += of_warp[i];
            before += of_warp[i];
        }
        for (; matches != 0; matches &= matches - 1, place++) {
            if (place >= skipped && place < skipped + most) list[place - skipped] = u32(first) + __ffs(matches) - 1;
        }
    }
    __syncthreads();
    return before <= skipped ? 0 : min(before - skipped, most);
}

// Adds the rows of `grad` that `list` names into `dst`: a block's threads stand in rows of `across`, each for four columns.
template <class T, class D, bool PACKED>
__device__ void add_listed(const T* grad, const u32* list, u32 listed, D* dst, u64 width) {
    constexpr u32 UNROLL = 8;
    __shared__ f32 sums[THREADS * 4];
    const u32 across = u32(min(u64(THREADS), PACKED ? width / 4 : width)), down = THREADS / across;
    const u32 x = threadIdx.x % across, y = threadIdx.x / across, tile = 4 * across;
    for (u64 start = 0; start < width; start += tile) {
        const u64 column = start + (PACKED ? 4 * x : x);
        f32 sum[4] = {};
        for (u32 at = y; y < down && at < listed; at += UNROLL * down) {
            Pack<T, 4> lines[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                lines[i] = Pack<T, 4>{};
                if (at + i * down < listed)
                    lines[i] = load_four<T, PACKED>(grad + list[at + i * down] * width, column, across, width);
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) sum[j] += to_f32(lines[i].at[j]);
            }
        }
        __syncthreads();
        if (y < down) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) sums[y * tile + (PACKED ? 4 * x + j : j * across + x)] = sum[j];
        }
        for (u32 left = down; left > 1;) {
            const u32 half = (left + 1) / 2;
            __syncthreads();
            for (u32 i = threadIdx.x; i < (left - half) * tile; i += THREADS) sums[i] += sums[i + half * tile];
            left = half;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < tile && start + i < width; i += THREADS) dst[start + i] = from_f32<D>(sums[i]);
    }
}

// `dst[r] = Σ grad[i]` over the positions i of r that were kept: one warp for a row.
template <class T, class D, bool PACKED>
__device__ __forceinline__ void add_kept(const T* grad, D* dst, u64 row, u64 width, const Places& places) {
    constexpr u32 GROUPS = 4;
    const u32 lane = threadIdx.x & 31, count = places.count[row];
    if (count > KEPT) return;
    const u32 position = lane < count ? places.kept[row * KEPT + lane] : NO_ROW;
    u32 rank = 0, ordered = 0;
    for (u32 i = 0; i < count; i++) rank += __shfl_sync(EVERY_LANE, position, i) < position;
    for (u32 i = 0; i < count; i++) {
        const u32 other = __shfl_sync(EVERY_LANE, position, i);
        if (__shfl_sync(EVERY_LANE, rank, i) == lane) ordered = other;
    }
    for (u64 start = 0; start < width; start += GROUPS * 128) {
        f32 sum[GROUPS][4] = {};
        for (u32 i = 0; i < count; i++) {
            const T* line = grad + u64(__shfl_sync(EVERY_LANE, ordered, i)) * width;
            Pack<T, 4> packs[GROUPS];
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++)
                packs[g] = load_four<T, PACKED>(line, start + g * 128 + (PACKED ? 4 * lane : lane), 32, width);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) sum[g][j] += to_f32(packs[g].at[j]);
            }
        }
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++)
            store_four<D, PACKED>(dst + row * width, start + g * 128 + (PACKED ? 4 * lane : lane), 32, width, sum[g]);
    }
}

// The gradient of every table row but those of several segments, whose sums go to `shares`, each to that of its item. The
// first `most_items` blocks take one item each, the others WARPS rows each.
template <class T, class D, bool PACKED>
__device__ __forceinline__ void embedding_backward(const T* grad, D* dst, f32* shares, u64 n, u64 rows, u64 width,
                                                   u32 segment, u32 most_items, const Places& places) {
    if (blockIdx.x >= most_items) {
        const u64 row = u64(blockIdx.x - most_items) * WARPS + (threadIdx.x >> 5);
        if (row < rows) add_kept<T, D, PACKED>(grad, dst, row, width, places);
        return;
    }
    if (blockIdx.x >= *places.items) return;
    __shared__ u32 list[MOST_IN_SEGMENT];
    const u64 item = places.item[blockIdx.x];
    const u32 row = u32(item), number = u32(item >> 32);
    const u32 listed = list_positions(places.row_of, n, row, number * segment, segment, list);
    if (places.count[row] > segment) {
        add_listed<T, f32, PACKED>(grad, list, listed, shares + blockIdx.x * width, width);
    } else {
        add_listed<T, D, PACKED>(grad, list, listed, dst + row * width, width);
    }
}

// Adds the shares of rows of several segments, in the order of the segments: the block of a row's first item does it.
template <class D, bool PACKED>
__device__ __forceinline__ void embedding_shares(const f32* shares, D* dst, u64 width, u32 segment,
                                                 const Places& places) {
    __shared__ u32 list[MOST_SEGMENTS];
    const u32 items = *places.items;
    if (blockIdx.x >= items) return;
    const u64 item = places.item[blockIdx.x];
    const u32 row = u32(item), count = places.count[row];
    if (item >> 32 != 0 || count <= segment) return;
    for (u32 i = threadIdx.x; i < items; i += THREADS) {
        if (u32(places.item[i]) == row) list[places.item[i] >> 32] = i;
    }
    __syncthreads();
    add_listed<f32, D, PACKED>(shares, list, (count + segment - 1) / segment, dst + row * width, width);
}

#define EMBEDDING(T, D)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        embedding_##T##_##D(const T* weight, const i64* indices, D* dst, u64 rows, u64 width, u64 packs) {           \
        embedding<T, D, 4>(weight, indices, dst, rows, width, packs);                                                \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        embedding_unaligned_##T##_##D(const T* weight, const i64* indices, D* dst, u64 rows, u64 width, u64 packs) { \
        embedding<T, D, 1>(weight, indices, dst, rows, width, packs);                                                \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        embedding_backward_##T##_##D(const T* grad, D* dst, f32* shares, u64 n, u64 rows, u64 width, u32 segment,    \
                                     u32 most_items, Places places) {                                                \
        embedding_backward<T, D, true>(grad, dst, shares, n, rows, width, segment, most_items, places);              \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        embedding_backward_unaligned_##T##_##D(const T* grad, D* dst, f32* shares, u64 n, u64 rows, u64 width,       \
                                               u32 segment, u32 most_items, Places places) {                         \
        embedding_backward<T, D, false>(grad, dst, shares, n, rows, width, segment, most_items, places);             \
    }
FOR_FLOAT_PAIRS(EMBEDDING)

#define EMBEDDING_SHARES(D)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        embedding_shares_##D(const f32* shares, D* dst, u64 width, u32 segment, Places places) {                     \
        embedding_shares<D, false>(shares, dst, width, segment, places);                                             \
    }
FOR_FLOATS(EMBEDDING_SHARES)
