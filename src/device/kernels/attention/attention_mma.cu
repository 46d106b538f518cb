// Attention on tensor cores, for 16-bit elements; sums are f32. A block has four warps, and each warp owns strips of
// 16 rows of the result: its left factors are in registers from the start, the right ones come through shared memory,
// where the next tile is copied while one is worked on. What a warp gets from one product (a strip of scores) already
// lies as the next product wants its left factor, so that scores never leave registers. Where shared memory is read
// by rows of eight elements, the padding of a row puts eight rows into different banks.

#if __CUDA_ARCH__ >= 800

constexpr int WARPS = 4, THREADS = 32 * WARPS;

constexpr int pitch(int width) { return width + 8; }

// Strips of a warp and rows of a tile that comes by, for head sizes up to D: the launcher has the same table.
template <int D> struct ForwardTile {
    static constexpr int STRIPS = 2, ROWS = D <= 64 ? 64 : 32;
    // Queries stay in registers where they leave enough of them.
    static constexpr bool KEPT = D <= 64;
};
template <int D> struct KeyGradientTile {
    static constexpr int STRIPS = D <= 64 ? 2 : 1, ROWS = D <= 64 ? 64 : 32, CHUNK = 32;
};
template <int D> struct QueryGradientTile {
    static constexpr int STRIPS = D <= 64 ? 2 : 1, ROWS = D <= 80 ? 64 : 32, CHUNK = 32;
};

// The halves of a register as two elements.
template <class T> __device__ __forceinline__ u32 pair(f32 low, f32 high);
template <> __device__ __forceinline__ u32 pair<f16>(f32 low, f32 high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
template <> __device__ __forceinline__ u32 pair<bf16>(f32 low, f32 high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ u32 in_shared(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }

// Four matrices of 8×8 elements: lane l names row l % 8 of matrix l / 8. Of each matrix a lane gets two neighbours,
// columns 2 (l % 4) and the next of row l / 4; transposed, rows 2 (l % 4) and the next of column l / 4.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(in_shared(row))
                 : "memory");
}
__device__ __forceinline__ void load_transposed(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(in_shared(row))
                 : "memory");
}

// c[16×8] += a[16×16] b[16×8]. With g = lane / 4 and t = 2 (lane % 4) a lane holds, of c, columns t and t + 1 of rows
// g and g + 8; of a, columns t and t + 1 of rows g and g + 8, then columns t + 8 and t + 9 of both; of b, rows t and
// t + 1, then t + 8 and t + 9, of column g.
template <class T> __device__ __forceinline__ void multiply_add(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <>
__device__ __forceinline__ void multiply_add<f16>(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<bf16>(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Begins a copy of 16 bytes to shared memory; zeros where the source is outside.
__device__ __forceinline__ void begin_copy(void* to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(in_shared(to)), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
}
// Waits for this thread's copies.
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

// Begins to copy `rows` rows of `width` elements to shared memory; zeros fill the tile. A thread copies the same 16
// bytes of every so many rows.
template <class T, int ROWS, int D>
__device__ __forceinline__ void stage(T* to, const T* from, u64 stride, int rows, int width, bool aligned) {
    if (aligned) {
        constexpr int LANES = D > 64 ? 16 : D > 32 ? 8 : 4, APART = THREADS / LANES;
        static_assert(D <= 8 * LANES && ROWS % APART == 0);
        const int row = threadIdx.x / LANES, column = threadIdx.x % LANES * 8;
        if (D < 8 * LANES && column >= D) return;
        const int inside = column < width ? rows - row : 0;
        from += row * stride + column;
        to += row * pitch(D) + column;
#pragma unroll
        for (int i = 0; i < ROWS; i += APART, from += APART * stride) begin_copy(to + i * pitch(D), from, i < inside);
    } else {
#pragma unroll 1
        for (int at = threadIdx.x; at < ROWS * D; at += THREADS) {
            const int row = at / D, column = at % D;
            to[row * pitch(D) + column] = row < rows && column < width ? from[row * stride + column] : T{0};
        }
    }
}

// Where a lane's row begins when a fragment is loaded: of a left factor (or, transposed, of a right factor whose rows
// are summed over), and of a right factor whose columns are.
template <int D> __device__ __forceinline__ int left_offset(int lane) {
    return lane % 16 * pitch(D) + lane / 16 * 8;
}
template <int D> __device__ __forceinline__ int right_offset(int lane) {
    return (lane % 8 + lane / 16 * 8) * pitch(D) + lane / 8 % 2 * 8;
}

// A strip of 16 rows in shared memory as a left factor.
template <class T, int D> __device__ __forceinline__ void load_strip(u32 (&to)[D / 16][4], const T* strip, int lane) {
#pragma unroll
    for (int x = 0; x < D / 16; x++) load_matrices(to[x], strip + left_offset<D>(lane) + x * 16);
}

// c += a bᵀ: strips of left factors times N rows of D elements in shared memory.
template <class T, int STRIPS, int N, int D>
__device__ __forceinline__ void
multiply_rows(f32 (&c)[STRIPS][N / 8][4], const u32 (&a)[STRIPS][D / 16][4], const T* b, int lane) {
    const T* const row = b + right_offset<D>(lane);
#pragma unroll
    for (int x = 0; x < D / 16; x++) {
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 right[4];
            load_matrices(right, row + n * 16 * pitch(D) + x * 16);
#pragma unroll
            for (int i = 0; i < STRIPS; i++) {
                multiply_add<T>(c[i][2 * n], a[i][x], right[0], right[1]);
                multiply_add<T>(c[i][2 * n + 1], a[i][x], right[2], right[3]);
            }
        }
    }
}

// The same with left factors in shared memory.
template <class T, int STRIPS, int N, int D>
__device__ __forceinline__ void
multiply_rows(f32 (&c)[STRIPS][N / 8][4], const T* a, const T* b, int lane) {
    const T *const left_row = a + left_offset<D>(lane), *const right_row = b + right_offset<D>(lane);
#pragma unroll
    for (int x = 0; x < D / 16; x++) {
        u32 left[STRIPS][4];
#pragma unroll
        for (int i = 0; i < STRIPS; i++) load_matrices(left[i], left_row + i * 16 * pitch(D) + x * 16);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 right[4];
            load_matrices(right, right_row + n * 16 * pitch(D) + x * 16);
#pragma unroll
            for (int i = 0; i < STRIPS; i++) {
                multiply_add<T>(c[i][2 * n], left[i], right[0], right[1]);
                multiply_add<T>(c[i][2 * n + 1], left[i], right[2], right[3]);
            }
        }
    }
}

// c += a b: strips of scores, rounded to T, times N rows of D elements in shared memory.
template <class T, int STRIPS, int N, int D>
__device__ __forceinline__ void
multiply_scores(f32 (&c)[STRIPS][D / 8][4], const f32 (&a)[STRIPS][N / 8][4], const T* b, int lane) {
    const T* const row = b + left_offset<D>(lane);
#pragma unroll
    for (int x = 0; x < N / 16; x++) {
        u32 left[STRIPS][4];
#pragma unroll
        for (int i = 0; i < STRIPS; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                left[i][e] = pair<T>(a[i][2 * x + e / 2][e % 2 * 2], a[i][2 * x + e / 2][e % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 right[4];
            load_transposed(right, row + x * 16 * pitch(D) + n * 16);
#pragma unroll
            for (int i = 0; i < STRIPS; i++) {
                multiply_add<T>(c[i][2 * n], left[i], right[0], right[1]);
                multiply_add<T>(c[i][2 * n + 1], left[i], right[2], right[3]);
            }
        }
    }
}

// Writes a warp's strips times `factor[strip][half]` to rows in global memory, through its own part of shared memory.
template <class T, int STRIPS, int D>
__device__ __forceinline__ void
unload(T* to, u64 stride, const f32 (&from)[STRIPS][D / 8][4], const f32 (&factor)[STRIPS][2], T* through, int rows,
       int width, bool aligned, int lane) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                T* const at = through + (i * 16 + half * 8 + lane / 4) * pitch(D) + n * 8 + lane % 4 * 2;
                const f32 *const values = from[i][n] + half * 2, by = factor[i][half];
                *reinterpret_cast<u32*>(at) = pair<T>(values[0] * by, values[1] * by);
            }
        }
    }
    __syncwarp();
    if (aligned) {
        constexpr int VECTORS = D / 8;
#pragma unroll
        for (int at = lane; at < STRIPS * 16 * VECTORS; at += 32) {
            const int row = at / VECTORS, column = at % VECTORS * 8;
            if (row < rows && column < width) {
                store<T, 8>(to + row * stride + column, load<T, 8>(through + row * pitch(D) + column));
            }
        }
    } else {
        for (int at = lane; at < STRIPS * 16 * D; at += 32) {
            const int row = at / D, column = at % D;
            if (row < rows && column < width) to[row * stride + column] = through[row * pitch(D) + column];
        }
    }
}

// The reduction over the four lanes that hold a row of a strip.
template <class Op> __device__ __forceinline__ f32 row_reduce(f32 x) {
    x = Op()(x, __shfl_xor_sync(0xffffffffu, x, 2));
    return Op()(x, __shfl_xor_sync(0xffffffffu, x, 1));
}

// The larger; it may lose a NaN, which the exponents keep.
struct Larger {
    __device__ __forceinline__ f32 operator()(f32 a, f32 b) const { return fmaxf(a, b); }
};

// Every warp goes with its strips of queries over the keys that they see: the running maximum and sum of each row
// correct what was added before.
template <class T, int D> __device__ __forceinline__ void attention(f32 scale, const Forward<T>& a) {
    using Tile = ForwardTile<D>;
    constexpr int STRIPS = Tile::STRIPS, ROWS = 16 * STRIPS, KEYS = Tile::ROWS, SIZE = KEYS * pitch(D);
    extern __shared__ __align__(16) u16 shared[];
    T *const q = reinterpret_cast<T*>(shared), *const k = q + WARPS * ROWS * pitch(D), *const v = k + 2 * SIZE;

    const Attention& shape = a.shape;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = int(shape.rows), keys = int(shape.keys), width = int(shape.width), values = int(shape.values);
    const bool causal = shape.causal, aligned = shape.aligned;
    const u32 tiles = tiles_of(shape.rows, WARPS * ROWS);
    const Place place(shape, tiles);
    // Where attention is causal the last queries see most: they begin first.
    const int first_row = int(tiles - 1 - place.tile) * WARPS * ROWS, own_row = first_row + warp * ROWS;
    const int begin = first_seen(shape, first_row, KEYS), end = causal ? min(keys, first_row + WARPS * ROWS) : keys;
    const int window = int(shape.window);
    const T* some_k = a.k.of(place.b, place.shared) + begin * a.k.row;
    const T* some_v = a.v.of(place.b, place.shared) + begin * a.v.row;
    const T* const some_q = a.q.of(place.b, place.h) + first_row * a.q.row;
    stage<T, WARPS * ROWS, D>(q, some_q, a.q.row, rows - first_row, width, aligned);
    stage<T, KEYS, D>(k, some_k, a.k.row, keys - begin, width, aligned);
    stage<T, KEYS, D>(v, some_v, a.v.row, keys - begin, values, aligned);
    await_copies();
    __syncthreads();

    T* const own = q + warp * ROWS * pitch(D);
    u32 queries[STRIPS][D / 16][4];
    if constexpr (Tile::KEPT) {
#pragma unroll
        for (int i = 0; i < STRIPS; i++) load_strip<T, D>(queries[i], own + i * 16 * pitch(D), lane);
    }
    const f32 to_power = scale * LOG2_E;
    f32 out[STRIPS][D / 8][4] = {}, max[STRIPS][2], sum[STRIPS][2];
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
        max[i][0] = max[i][1] = -INFINITE;
        sum[i][0] = sum[i][1] = 0.f;
    }

    for (int first_key = begin, now = 0; first_key < end; first_key += KEYS, now ^= 1) {
        await_copies();
        __syncthreads();
        const int next_key = first_key + KEYS;
        if (next_key < end) {
            some_k += KEYS * a.k.row;
            some_v += KEYS * a.v.row;
            stage<T, KEYS, D>(k + (now ^ 1) * SIZE, some_k, a.k.row, keys - next_key, width, aligned);
            stage<T, KEYS, D>(v + (now ^ 1) * SIZE, some_v, a.v.row, keys - next_key, values, aligned);
        }
        if (causal && (first_key >= own_row + ROWS || next_key + window <= own_row + 1)) continue;

        f32 s[STRIPS][KEYS / 8][4] = {};
        if constexpr (Tile::KEPT) {
            multiply_rows<T, STRIPS, KEYS, D>(s, queries, k + now * SIZE, lane);
        } else {
            multiply_rows<T, STRIPS, KEYS, D>(s, own, k + now * SIZE, lane);
        }
        if (next_key > keys || (causal && (next_key > own_row + 1 || first_key + window < own_row + ROWS))) {
#pragma unroll
            for (int i = 0; i < STRIPS; i++) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int key = first_key + n * 8 + lane % 4 * 2 + e % 2;
                        const int row = own_row + i * 16 + e / 2 * 8 + lane / 4;
                        const bool hidden = key >= keys || (causal && (key > row || key + window <= row));
                        if (hidden) s[i][n][e] = HIDDEN;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < STRIPS; i++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                f32 highest = max[i][half];
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    highest = fmaxf(highest, fmaxf(s[i][n][half * 2], s[i][n][half * 2 + 1]));
                }
                highest = row_reduce<Larger>(highest);
                const f32 correction = power_of_two((max[i][half] - highest) * to_power);
                // A row that sees none of these keys: its exponents are zero. The rounding of so large a shift would be
                // larger than any exponent.
                const f32 shift = highest > HIDDEN ? highest * to_power : 0.f;
                max[i][half] = highest;
                sum[i][half] *= correction;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = half * 2; e < half * 2 + 2; e++) {
                        s[i][n][e] = power_of_two(fmaf(s[i][n][e], to_power, -shift));
                        sum[i][half] += s[i][n][e];
                    }
                }
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    out[i][n][half * 2] *= correction;
                    out[i][n][half * 2 + 1] *= correction;
                }
            }
        }
        multiply_scores<T, STRIPS, KEYS, D>(out, s, v + now * SIZE, lane);
    }

    f32 factor[STRIPS][2];
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const f32 total = row_reduce<Sum>(sum[i][half]);
            const int row = own_row + i * 16 + half * 8 + lane / 4;
            factor[i][half] = 1.f / total;
            if (shape.lse && lane % 4 == 0 && row < rows) {
                shape.lse[place.head * shape.lse_stride + row] = max[i][half] * scale + logf(total);
            }
        }
    }
    T* const to = a.out.of(place.b, place.h) + own_row * a.out.row;
    unload<T, STRIPS, D>(to, a.out.row, out, factor, own, rows - own_row, values, aligned, lane);
}

// Every warp goes with its keys over the queries that see them, on Sᵀ = K Qᵀ and dPᵀ = V dOᵀ: dV = Pᵀ dO and
// dK = scale·dSᵀ Q with dS = P ∘ (dP − delta).
template <class T, int D> __device__ __forceinline__ void attention_key_gradients(f32 scale, const Backward<T>& a) {
    using Tile = KeyGradientTile<D>;
    constexpr int STRIPS = Tile::STRIPS, ROWS = 16 * STRIPS, QUERIES = Tile::ROWS, CHUNK = Tile::CHUNK;
    constexpr int SIZE = QUERIES * pitch(D);
    extern __shared__ __align__(16) u16 shared[];
    T *const k = reinterpret_cast<T*>(shared), *const v = k + WARPS * ROWS * pitch(D);
    T *const q = v + WARPS * ROWS * pitch(D), *const grad = q + 2 * SIZE;
    f32 *const shifts = reinterpret_cast<f32*>(grad + 2 * SIZE), *const deltas = shifts + 2 * QUERIES;

    const Attention& shape = a.shape;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = int(shape.rows), keys = int(shape.keys), width = int(shape.width), values = int(shape.values);
    const bool causal = shape.causal, aligned = shape.aligned;
    const Place place(shape, tiles_of(shape.keys, WARPS * ROWS));
    const int first_key = int(place.tile) * WARPS * ROWS, own_key = first_key + warp * ROWS;
    const int begin = causal ? first_key : 0, window = int(shape.window);
    // No later query sees one of these keys.
    const int end = causal ? min(rows, first_key + WARPS * ROWS - 1 + window) : rows;
    const T *some_q = a.q.of(place.b, place.h) + begin * a.q.row;
    const T *some_grad = a.grad.of(place.b, place.h) + begin * a.grad.row;
    const f32 *const lse = shape.lse + place.head * shape.lse_stride, *const delta = a.delta + place.head * shape.rows;

    // Behind the last query the shift is infinite: exponents are zero there.
    const auto stage_queries = [&](int first, int into) {
        stage<T, QUERIES, D>(q + into * SIZE, some_q, a.q.row, rows - first, width, aligned);
        stage<T, QUERIES, D>(grad + into * SIZE, some_grad, a.grad.row, rows - first, values, aligned);
        some_q += QUERIES * a.q.row;
        some_grad += QUERIES * a.grad.row;
        if (threadIdx.x < QUERIES) {
            const int row = first + int(threadIdx.x), at = into * QUERIES + int(threadIdx.x);
            shifts[at] = row < rows ? lse[row] * LOG2_E : INFINITE;
            deltas[at] = row < rows ? delta[row] : 0.f;
        }
    };
    const T* const some_k = a.k.of(place.b, place.shared) + first_key * a.k.row;
    const T* const some_v = a.v.of(place.b, place.shared) + first_key * a.v.row;
    stage<T, WARPS * ROWS, D>(k, some_k, a.k.row, keys - first_key, width, aligned);
    stage<T, WARPS * ROWS, D>(v, some_v, a.v.row, keys - first_key, values, aligned);
    if (begin < rows) stage_queries(begin, 0);
    await_copies();
    __syncthreads();

    T *const own_k = k + warp * ROWS * pitch(D), *const own_v = v + warp * ROWS * pitch(D);
    const f32 to_power = scale * LOG2_E;
    f32 dk[STRIPS][D / 8][4] = {}, dv[STRIPS][D / 8][4] = {};
    for (int first_row = begin, now = 0; first_row < end; first_row += QUERIES, now ^= 1) {
        await_copies();
        __syncthreads();
        if (first_row + QUERIES < end) stage_queries(first_row + QUERIES, now ^ 1);
#pragma unroll 1
        for (int chunk = 0; chunk < QUERIES; chunk += CHUNK) {
            const int first = first_row + chunk;
            if (first >= end) break;
            if (causal && (first + CHUNK <= own_key || first >= own_key + ROWS - 1 + window)) continue;
            const T *const chunk_q = q + now * SIZE + chunk * pitch(D), *const chunk_grad = chunk_q + 2 * SIZE;
            f32 p[STRIPS][CHUNK / 8][4] = {}, ds[STRIPS][CHUNK / 8][4] = {};
            multiply_rows<T, STRIPS, CHUNK, D>(p, own_k, chunk_q, lane);
            multiply_rows<T, STRIPS, CHUNK, D>(ds, own_v, chunk_grad, lane);
            if (causal && (first < own_key + ROWS - 1 || first + CHUNK > own_key + window)) {
#pragma unroll
                for (int i = 0; i < STRIPS; i++) {
#pragma unroll
                    for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int key = own_key + i * 16 + e / 2 * 8 + lane / 4;
                            const int row = first + n * 8 + lane % 4 * 2 + e % 2;
                            const bool hidden = key > row || key + window <= row;
                            if (hidden) p[i][n][e] = -INFINITE;
                            if (hidden) ds[i][n][e] = 0.f;
                        }
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < CHUNK / 8; n++) {
                const int column = now * QUERIES + chunk + n * 8 + lane % 4 * 2;
                const Pack<f32, 2> shift = load<f32, 2>(shifts + column), minus = load<f32, 2>(deltas + column);
#pragma unroll
                for (int i = 0; i < STRIPS; i++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        p[i][n][e] = power_of_two(fmaf(p[i][n][e], to_power, -shift.at[e % 2]));
                        ds[i][n][e] = p[i][n][e] * (ds[i][n][e] - minus.at[e % 2]);
                    }
                }
            }
            multiply_scores<T, STRIPS, CHUNK, D>(dv, p, chunk_grad, lane);
            multiply_scores<T, STRIPS, CHUNK, D>(dk, ds, chunk_q, lane);
        }
    }

    f32 factor[STRIPS][2], one[STRIPS][2];
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
        factor[i][0] = factor[i][1] = scale;
        one[i][0] = one[i][1] = 1.f;
    }
    T* const dk_to = a.dk.of(place.b, place.h) + own_key * a.dk.row;
    T* const dv_to = a.dv.of(place.b, place.h) + own_key * a.dv.row;
    unload<T, STRIPS, D>(dk_to, a.dk.row, dk, factor, own_k, keys - own_key, width, aligned, lane);
    unload<T, STRIPS, D>(dv_to, a.dv.row, dv, one, own_v, keys - own_key, values, aligned, lane);
}

// Every warp goes with its queries over the keys that they see: dQ = scale·dS K with dS = P ∘ (dP − delta).
template <class T, int D> __device__ __forceinline__ void attention_query_gradients(f32 scale, const Backward<T>& a) {
    using Tile = QueryGradientTile<D>;
    constexpr int STRIPS = Tile::STRIPS, ROWS = 16 * STRIPS, KEYS = Tile::ROWS, CHUNK = Tile::CHUNK;
    constexpr int SIZE = KEYS * pitch(D);
    extern __shared__ __align__(16) u16 shared[];
    T *const q = reinterpret_cast<T*>(shared), *const grad = q + WARPS * ROWS * pitch(D);
    T *const k = grad + WARPS * ROWS * pitch(D), *const v = k + 2 * SIZE;

    const Attention& shape = a.shape;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = int(shape.rows), keys = int(shape.keys), width = int(shape.width), values = int(shape.values);
    const bool causal = shape.causal, aligned = shape.aligned;
    const u32 tiles = tiles_of(shape.rows, WARPS * ROWS);
    const Place place(shape, tiles);
    const int first_row = int(tiles - 1 - place.tile) * WARPS * ROWS, own_row = first_row + warp * ROWS;
    const int begin = first_seen(shape, first_row, KEYS), end = causal ? min(keys, first_row + WARPS * ROWS) : keys;
    const int window = int(shape.window);
    const T* some_k = a.k.of(place.b, place.shared) + begin * a.k.row;
    const T* some_v = a.v.of(place.b, place.shared) + begin * a.v.row;
    const T* const some_q = a.q.of(place.b, place.h) + first_row * a.q.row;
    const T* const some_grad = a.grad.of(place.b, place.h) + first_row * a.grad.row;
    stage<T, WARPS * ROWS, D>(q, some_q, a.q.row, rows - first_row, width, aligned);
    stage<T, WARPS * ROWS, D>(grad, some_grad, a.grad.row, rows - first_row, values, aligned);
    stage<T, KEYS, D>(k, some_k, a.k.row, keys - begin, width, aligned);
    stage<T, KEYS, D>(v, some_v, a.v.row, keys - begin, values, aligned);
    await_copies();
    __syncthreads();

    T *const own_q = q + warp * ROWS * pitch(D), *const own_grad = grad + warp * ROWS * pitch(D);
    u32 of_q[STRIPS][D / 16][4], of_grad[STRIPS][D / 16][4];
    f32 shift[STRIPS][2], minus[STRIPS][2], factor[STRIPS][2];
#pragma unroll
    for (int i = 0; i < STRIPS; i++) {
        load_strip<T, D>(of_q[i], own_q + i * 16 * pitch(D), lane);
        load_strip<T, D>(of_grad[i], own_grad + i * 16 * pitch(D), lane);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = own_row + i * 16 + half * 8 + lane / 4;
            // Behind the last query the shift is infinite: exponents are zero there.
            shift[i][half] = row < rows ? shape.lse[place.head * shape.lse_stride + row] * LOG2_E : INFINITE;
            minus[i][half] = row < rows ? a.delta[place.head * shape.rows + row] : 0.f;
            factor[i][half] = scale;
        }
    }
    const f32 to_power = scale * LOG2_E;
    f32 dq[STRIPS][D / 8][4] = {};
    for (int first_key = begin, now = 0; first_key < end; first_key += KEYS, now ^= 1) {
        await_copies();
        __syncthreads();
        const int next_key = first_key + KEYS;
        if (next_key < end) {
            some_k += KEYS * a.k.row;
            some_v += KEYS * a.v.row;
            stage<T, KEYS, D>(k + (now ^ 1) * SIZE, some_k, a.k.row, keys - next_key, width, aligned);
            stage<T, KEYS, D>(v + (now ^ 1) * SIZE, some_v, a.v.row, keys - next_key, values, aligned);
        }
#pragma unroll 1
        for (int chunk = 0; chunk < KEYS; chunk += CHUNK) {
            const int first = first_key + chunk;
            if (first >= end || (causal && first >= own_row + ROWS)) break;
            if (causal && first + CHUNK + window <= own_row + 1) continue;
            const T *const chunk_k = k + now * SIZE + chunk * pitch(D), *const chunk_v = chunk_k + 2 * SIZE;
            f32 p[STRIPS][CHUNK / 8][4] = {}, ds[STRIPS][CHUNK / 8][4] = {};
            multiply_rows<T, STRIPS, CHUNK, D>(p, of_q, chunk_k, lane);
            multiply_rows<T, STRIPS, CHUNK, D>(ds, of_grad, chunk_v, lane);
            if (first + CHUNK > keys || (causal && (first + CHUNK > own_row + 1 || first + window < own_row + ROWS))) {
#pragma unroll
                for (int i = 0; i < STRIPS; i++) {
#pragma unroll
                    for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int key = first + n * 8 + lane % 4 * 2 + e % 2;
                            const int row = own_row + i * 16 + e / 2 * 8 + lane / 4;
                            const bool hidden = key >= keys || (causal && (key > row || key + window <= row));
                            if (hidden) p[i][n][e] = -INFINITE;
                            if (hidden) ds[i][n][e] = 0.f;
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < STRIPS; i++) {
#pragma unroll
                for (int n = 0; n < CHUNK / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const f32 exponent = power_of_two(fmaf(p[i][n][e], to_power, -shift[i][e / 2]));
                        ds[i][n][e] = exponent * (ds[i][n][e] - minus[i][e / 2]);
                    }
                }
            }
            multiply_scores<T, STRIPS, CHUNK, D>(dq, ds, chunk_k, lane);
        }
    }
    T* const to = a.dq.of(place.b, place.h) + own_row * a.dq.row;
    unload<T, STRIPS, D>(to, a.dq.row, dq, factor, own_q, rows - own_row, width, aligned, lane);
}

#define KERNELS(T, D) \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) \
    attention_mma_##D##_##T(f32 scale, const Forward<T> a) { attention<T, D>(scale, a); } \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) \
    attention_mma_key_gradients_##D##_##T(f32 scale, const Backward<T> a) { \
        attention_key_gradients<T, D>(scale, a); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) \
    attention_mma_query_gradients_##D##_##T(f32 scale, const Backward<T> a) { \
        attention_query_gradients<T, D>(scale, a); \
    }
#define ATTENTION(T) KERNELS(T, 32) KERNELS(T, 64) KERNELS(T, 80) KERNELS(T, 128)
ATTENTION(f16)
ATTENTION(bf16)

#endif
