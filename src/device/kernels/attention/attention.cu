// Attention in f32 without tensor cores. Tiles of queries and keys lie in shared memory as f32; 128 threads multiply
// them, 8 groups of rows by 16 groups of columns, each thread a rectangle of the product. Only tiles of the matrix of
// scores ever exist. The padding of four floats a row puts eight neighbouring rows into different banks.

constexpr int THREADS = 128;
constexpr int DOWN = 8, ACROSS = 16;

// Chips before sm_80 have 64 KiB of shared memory a block.
#if __CUDA_ARCH__ >= 800
constexpr bool LARGE = true;
#else
constexpr bool LARGE = false;
#endif

constexpr int pitch(int width) { return width + 4; }

// Queries and keys of a tile, for head sizes up to D: the launcher has the same table.
template <int D> struct ForwardTile {
    static constexpr int Q = D > 128 ? (LARGE ? 32 : 16) : D <= 80 || LARGE ? 64 : 32;
    static constexpr int K = D > 128 ? 16 : D <= 80 ? 64 : 32;
};
template <int D> struct KeyGradientTile {
    static constexpr int Q = (D > 128 ? 8 : 16) * (LARGE ? 2 : 1), K = D > 128 ? 16 : D <= 80 ? 64 : 32;
};
template <int D> struct QueryGradientTile {
    static constexpr int Q = D > 128 ? (LARGE ? 16 : 8) : D <= (LARGE ? 80 : 64) ? 64 : 32;
    static constexpr int K = D > 128 ? 16 : D <= 80 || LARGE ? 32 : 16;
};

// Copies `rows` rows of `width` elements to shared memory; zeros fill the tile. A thread copies the same four columns
// of every so many rows, several rows at once.
template <class T, int ROWS, int D>
__device__ __forceinline__ void stage(f32* to, const T* from, u64 stride, int rows, int width, bool aligned) {
    if (aligned) {
        constexpr int LANES = D > 128 ? 64 : D > 64 ? 32 : D > 32 ? 16 : 8, APART = THREADS / LANES;
        constexpr int COUNT = ROWS / APART, BATCH = COUNT < 8 ? COUNT : 8;
        static_assert(D <= 4 * LANES && ROWS % APART == 0 && COUNT % BATCH == 0);
        const int row = threadIdx.x / LANES, column = threadIdx.x % LANES * 4;
        if (D < 4 * LANES && column >= D) return;
        const int inside = column < width ? rows - row : 0;
        from += row * stride + column;
        to += row * pitch(D) + column;
#pragma unroll
        for (int first = 0; first < COUNT; first += BATCH) {
            Pack<T, 4> source[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++, from += APART * stride) {
                source[i] = (first + i) * APART < inside ? load<T, 4>(from) : Pack<T, 4>{};
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                Pack<f32, 4> x;
#pragma unroll
                for (int e = 0; e < 4; e++) x.at[e] = to_f32(source[i].at[e]);
                store<f32, 4>(to + (first + i) * APART * pitch(D), x);
            }
        }
    } else {
#pragma unroll 1
        for (int at = threadIdx.x; at < ROWS * D; at += THREADS) {
            const int row = at / D, column = at % D;
            const bool inside = row < rows && column < width;
            to[row * pitch(D) + column] = inside ? to_f32(from[row * stride + column]) : 0.f;
        }
    }
}

// c[i][j] += Σ_x a[i·DOWN][x] b[j·ACROSS][x]: rows of both factors lie in shared memory, LENGTH elements at `pitch`.
template <int ROWS, int COLUMNS, int LENGTH>
__device__ __forceinline__ void multiply_rows(f32 (&c)[ROWS][COLUMNS], const f32* a, const f32* b) {
#pragma unroll 4
    for (int x = 0; x < LENGTH; x += 4) {
        Pack<f32, 4> left[ROWS], right[COLUMNS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) left[i] = load<f32, 4>(a + i * DOWN * pitch(LENGTH) + x);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) right[j] = load<f32, 4>(b + j * ACROSS * pitch(LENGTH) + x);
#pragma unroll
        for (int e = 0; e < 4; e++) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) c[i][j] = fmaf(left[i].at[e], right[j].at[e], c[i][j]);
            }
        }
    }
}

// The D columns of a tile as threads share them: each has vectors of WIDTH columns, ACROSS vectors apart.
template <int D> struct Columns {
    static constexpr int WIDTH = D % (4 * ACROSS) == 0 ? 4 : D % (2 * ACROSS) == 0 ? 2 : 1;
    static constexpr int VECTORS = D / ACROSS / WIDTH, COUNT = D / ACROSS;

    // A thread's columns of a row that begins at `row`.
    static __device__ __forceinline__ void read(f32 (&to)[COUNT], const f32* row, int across) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const Pack<f32, WIDTH> x = load<f32, WIDTH>(row + (i * ACROSS + across) * WIDTH);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) to[i * WIDTH + e] = x.at[e];
        }
    }

    // Stores a thread's columns of a row, in the type of the tensor.
    template <class T>
    static __device__ __forceinline__ void
    write(T* row, const f32 (&from)[COUNT], f32 factor, int across, int width, bool aligned) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int column = (i * ACROSS + across) * WIDTH;
            Pack<T, WIDTH> x;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) x.at[e] = from_f32<T>(from[i * WIDTH + e] * factor);
            if (aligned && column < width) {
                store<T, WIDTH>(row + column, x);
            } else {
#pragma unroll
                for (int e = 0; e < WIDTH; e++) {
                    if (column + e < width) row[column + e] = x.at[e];
                }
            }
        }
    }
};

// c[i][·] += Σ_x a[i·DOWN][x] b[x][·]: `a` of rows of LENGTH elements, `b` a tile of D columns.
template <int ROWS, int LENGTH, int D>
__device__ __forceinline__ void
multiply(f32 (&c)[ROWS][Columns<D>::COUNT], const f32* a, const f32* b, int across) {
#pragma unroll 2
    for (int x = 0; x < LENGTH; x += 4) {
        Pack<f32, 4> left[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) left[i] = load<f32, 4>(a + i * DOWN * pitch(LENGTH) + x);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            f32 right[Columns<D>::COUNT];
            Columns<D>::read(right, b + (x + e) * pitch(D), across);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int j = 0; j < Columns<D>::COUNT; j++) c[i][j] = fmaf(left[i].at[e], right[j], c[i][j]);
            }
        }
    }
}

// c[i][·] += Σ_x a[x][i] b[x][·] for ROWS neighbouring columns of `a`, whose rows have PITCH elements.
template <int ROWS, int LENGTH, int PITCH, int D>
__device__ __forceinline__ void
multiply_columns(f32 (&c)[ROWS][Columns<D>::COUNT], const f32* a, const f32* b, int across) {
    constexpr int WIDTH = ROWS < 4 ? ROWS : 4;
#pragma unroll 4
    for (int x = 0; x < LENGTH; x++) {
        Pack<f32, WIDTH> left[ROWS / WIDTH];
#pragma unroll
        for (int i = 0; i < ROWS / WIDTH; i++) left[i] = load<f32, WIDTH>(a + x * PITCH + WIDTH * i);
        f32 right[Columns<D>::COUNT];
        Columns<D>::read(right, b + x * pitch(D), across);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < Columns<D>::COUNT; j++) {
                c[i][j] = fmaf(left[i / WIDTH].at[i % WIDTH], right[j], c[i][j]);
            }
        }
    }
}

// The reduction of `x` over the threads of one group of rows.
template <class Op> __device__ __forceinline__ f32 row_reduce(f32 x) {
#pragma unroll
    for (int lane = ACROSS / 2; lane > 0; lane >>= 1) x = Op()(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

// Writes a thread's rectangle of a tile of scores; rows have K elements.
template <int ROWS, int COLUMNS, int K>
__device__ __forceinline__ void keep(f32* to, const f32 (&from)[ROWS][COLUMNS], int down, int across) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) to[(i * DOWN + down) * pitch(K) + j * ACROSS + across] = from[i][j];
    }
}

// Some of the `columns` from `column` on are hidden from some of the `rows` from `row` on.
__device__ __forceinline__ bool hides(const Attention& shape, int row, int rows, int column, int columns) {
    const bool late = column + columns > row + 1, early = row + rows - 1 - column >= int(shape.window);
    return column + columns > int(shape.keys) || (shape.causal && (late || early));
}

// Sets what the rows from `row` on do not see of the columns from `column` on.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void
hide(f32 (&s)[ROWS][COLUMNS], int row, int column, const Attention& shape, f32 value) {
    const int keys = int(shape.keys), window = int(shape.window);
    const bool causal = shape.causal;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int key = column + j * ACROSS;
            const int behind = row + i * DOWN - key;
            if (key >= keys || (causal && (behind < 0 || behind >= window))) s[i][j] = value;
        }
    }
}

// One tile of queries over all keys that it sees: the running maximum and sum of each row correct what was added
// before.
template <class T, int D> __device__ __forceinline__ void attention(f32 scale, const Forward<T>& a) {
    using Tile = ForwardTile<D>;
    constexpr int ROWS = Tile::Q / DOWN, COLUMNS = Tile::K / ACROSS;
    constexpr int KEYS = Tile::K * pitch(D), SCORES = Tile::Q * pitch(Tile::K);
    extern __shared__ __align__(16) f32 shared[];
    // The exponents take the place of the keys.
    f32 *const q = shared, *const k = q + Tile::Q * pitch(D), *const p = k;
    f32* const v = k + (KEYS > SCORES ? KEYS : SCORES);

    const Attention& shape = a.shape;
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int rows = int(shape.rows), keys = int(shape.keys), width = int(shape.width), values = int(shape.values);
    const bool causal = shape.causal, aligned = shape.aligned;
    const u32 tiles = tiles_of(shape.rows, Tile::Q);
    const Place place(shape, tiles);
    // Where attention is causal the last queries see most: they begin first.
    const int first_row = int(tiles - 1 - place.tile) * Tile::Q;
    const int end = causal ? min(keys, first_row + Tile::Q) : keys;
    const int begin = first_seen(shape, first_row, Tile::K);
    const T* some_k = a.k.of(place.b, place.shared) + begin * a.k.row;
    const T* some_v = a.v.of(place.b, place.shared) + begin * a.v.row;
    const T* const some_q = a.q.of(place.b, place.h) + first_row * a.q.row;
    stage<T, Tile::Q, D>(q, some_q, a.q.row, rows - first_row, width, aligned);
    const f32 to_power = scale * LOG2_E;
    f32 out[ROWS][Columns<D>::COUNT] = {}, max[ROWS], sum[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        max[i] = -INFINITE;
        sum[i] = 0.f;
    }

    for (int first_key = begin; first_key < end; first_key += Tile::K) {
        __syncthreads();
        stage<T, Tile::K, D>(k, some_k, a.k.row, keys - first_key, width, aligned);
        stage<T, Tile::K, D>(v, some_v, a.v.row, keys - first_key, values, aligned);
        some_k += Tile::K * a.k.row;
        some_v += Tile::K * a.v.row;
        __syncthreads();

        f32 s[ROWS][COLUMNS] = {};
        multiply_rows<ROWS, COLUMNS, D>(s, q + down * pitch(D), k + across * pitch(D));
        if (hides(shape, first_row, Tile::Q, first_key, Tile::K)) {
            hide<ROWS, COLUMNS>(s, first_row + down, first_key + across, shape, HIDDEN);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            f32 highest = max[i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                s[i][j] *= to_power;
                highest = fmaxf(highest, s[i][j]);
            }
            highest = row_reduce<Max>(highest);
            const f32 correction = power_of_two(max[i] - highest);
            max[i] = highest;
            sum[i] *= correction;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                s[i][j] = power_of_two(s[i][j] - highest);
                sum[i] += s[i][j];
            }
#pragma unroll
            for (int j = 0; j < Columns<D>::COUNT; j++) out[i][j] *= correction;
        }
        if (shape.threshold) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    s[i][j] *= shape.stays(place.head, first_row + i * DOWN + down, first_key + j * ACROSS + across);
                }
            }
        }
        __syncthreads();
        keep<ROWS, COLUMNS, Tile::K>(p, s, down, across);
        // A row of exponents is read by the threads that wrote it, which are of one warp.
        __syncwarp();
        multiply<ROWS, Tile::K, D>(out, p + down * pitch(Tile::K), v, across);
    }

#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = first_row + i * DOWN + down;
        const f32 total = row_reduce<Sum>(sum[i]);
        if (row >= rows) continue;
        T* const to = a.out.of(place.b, place.h) + row * a.out.row;
        Columns<D>::write(to, out[i], 1.f / total, across, values, aligned);
        if (shape.lse && across == 0) shape.lse[place.head * shape.lse_stride + row] = max[i] * LN_2 + logf(total);
    }
}

// delta = rowsum(grad ∘ out): eight threads for each row, 32 rows for each block.
constexpr int DELTA_ROWS = 32, DELTA_LANES = 8;

template <class T> __device__ __forceinline__ void attention_delta(const Backward<T>& a) {
    const Attention& shape = a.shape;
    const int rows = int(shape.rows), width = int(shape.values), lane = threadIdx.x % DELTA_LANES;
    const Place place(shape, tiles_of(shape.rows, DELTA_ROWS));
    const int row = int(place.tile) * DELTA_ROWS + int(threadIdx.x) / DELTA_LANES;
    f32 sum = 0.f;
    if (row < rows) {
        const T* const grad = a.grad.of(place.b, place.h) + row * a.grad.row;
        const T* const out = a.out.of(place.b, place.h) + row * a.out.row;
        if (shape.aligned) {
#pragma unroll 4
            for (int x = lane * 4; x < width; x += DELTA_LANES * 4) {
                const Pack<T, 4> g = load<T, 4>(grad + x), o = load<T, 4>(out + x);
#pragma unroll
                for (int e = 0; e < 4; e++) sum = fmaf(to_f32(g.at[e]), to_f32(o.at[e]), sum);
            }
        } else {
            for (int x = lane; x < width; x += DELTA_LANES) sum = fmaf(to_f32(grad[x]), to_f32(out[x]), sum);
        }
    }
#pragma unroll
    for (int step = DELTA_LANES / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row < rows && lane == 0) a.delta[u64(place.head) * rows + row] = sum;
}

// The thread's rectangle of P = softmax(S) and of dS = P ∘ (dP − delta), from tiles in shared memory: `p` and `ds`
// come as zeros. Dropout multiplies dP, and what is left of P. Where a query does not see a key, or one of both is outside, they are zero.
template <int ROWS, int COLUMNS, int D, class T>
__device__ __forceinline__ void score_gradients(
    f32 (&p)[ROWS][COLUMNS], f32 (&ds)[ROWS][COLUMNS], f32 scale, const Backward<T>& a, const Place& place,
    const f32* q, const f32* grad, const f32* k, const f32* v, int first_row, int first_key
) {
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int rows = int(a.shape.rows);
    const f32 *const lse = a.shape.lse + place.head * a.shape.lse_stride;
    const f32* const delta = a.delta + place.head * a.shape.rows;
    f32 shift[ROWS], minus[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = first_row + i * DOWN + down;
        // Behind the last query the shift is infinite: exponents are zero there.
        shift[i] = row < rows ? lse[row] * LOG2_E : INFINITE;
        minus[i] = row < rows ? delta[row] : 0.f;
    }
    multiply_rows<ROWS, COLUMNS, D>(p, q + down * pitch(D), k + across * pitch(D));
    multiply_rows<ROWS, COLUMNS, D>(ds, grad + down * pitch(D), v + across * pitch(D));
    if (hides(a.shape, first_row, ROWS * DOWN, first_key, COLUMNS * ACROSS)) {
        hide<ROWS, COLUMNS>(p, first_row + down, first_key + across, a.shape, -INFINITE);
        hide<ROWS, COLUMNS>(ds, first_row + down, first_key + across, a.shape, 0.f);
    }
    const f32 to_power = scale * LOG2_E;
    if (a.shape.threshold) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                const int row = first_row + i * DOWN + down, key = first_key + j * ACROSS + across;
                const f32 stays = a.shape.stays(place.head, row, key);
                p[i][j] = power_of_two(fmaf(p[i][j], to_power, -shift[i]));
                ds[i][j] = p[i][j] * (ds[i][j] * stays - minus[i]);
                p[i][j] *= stays;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            p[i][j] = power_of_two(fmaf(p[i][j], to_power, -shift[i]));
            ds[i][j] = p[i][j] * (ds[i][j] - minus[i]);
        }
    }
}

// One tile of keys against all queries that see it: dV = Pᵀ dO, dK = scale·dSᵀ Q.
template <class T, int D> __device__ __forceinline__ void attention_key_gradients(f32 scale, const Backward<T>& a) {
    using Tile = KeyGradientTile<D>;
    constexpr int ROWS = Tile::Q / DOWN, COLUMNS = Tile::K / ACROSS, KEYS = Tile::K / DOWN;
    extern __shared__ __align__(16) f32 shared[];
    f32 *const k = shared, *const v = k + Tile::K * pitch(D);
    f32 *const q = v + Tile::K * pitch(D), *const grad = q + Tile::Q * pitch(D);
    f32 *const p = grad + Tile::Q * pitch(D), *const ds = p + Tile::Q * pitch(Tile::K);

    const Attention& shape = a.shape;
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int rows = int(shape.rows), width = int(shape.width), values = int(shape.values);
    const bool aligned = shape.aligned;
    const Place place(shape, tiles_of(shape.keys, Tile::K));
    const int first_key = int(place.tile) * Tile::K, keys = int(shape.keys) - first_key;
    const int begin = shape.causal ? first_key : 0;
    // No later query sees one of these keys.
    const int end = shape.causal ? min(rows, first_key + Tile::K - 1 + int(shape.window)) : rows;
    const T* const some_k = a.k.of(place.b, place.shared) + first_key * a.k.row;
    const T* const some_v = a.v.of(place.b, place.shared) + first_key * a.v.row;
    const T* some_q = a.q.of(place.b, place.h) + begin * a.q.row;
    const T* some_grad = a.grad.of(place.b, place.h) + begin * a.grad.row;
    stage<T, Tile::K, D>(k, some_k, a.k.row, keys, width, aligned);
    stage<T, Tile::K, D>(v, some_v, a.v.row, keys, values, aligned);

    f32 dk[KEYS][Columns<D>::COUNT] = {}, dv[KEYS][Columns<D>::COUNT] = {};
    for (int first_row = begin; first_row < end; first_row += Tile::Q) {
        __syncthreads();
        stage<T, Tile::Q, D>(q, some_q, a.q.row, rows - first_row, width, aligned);
        stage<T, Tile::Q, D>(grad, some_grad, a.grad.row, rows - first_row, values, aligned);
        some_q += Tile::Q * a.q.row;
        some_grad += Tile::Q * a.grad.row;
        __syncthreads();
        f32 scores[ROWS][COLUMNS] = {}, gradients[ROWS][COLUMNS] = {};
        score_gradients<ROWS, COLUMNS, D>(scores, gradients, scale, a, place, q, grad, k, v, first_row, first_key);
        keep<ROWS, COLUMNS, Tile::K>(p, scores, down, across);
        keep<ROWS, COLUMNS, Tile::K>(ds, gradients, down, across);
        __syncthreads();
        multiply_columns<KEYS, Tile::Q, pitch(Tile::K), D>(dv, p + down * KEYS, grad, across);
        multiply_columns<KEYS, Tile::Q, pitch(Tile::K), D>(dk, ds + down * KEYS, q, across);
    }

    T* const dk_to = a.dk.of(place.b, place.h) + (first_key + down * KEYS) * a.dk.row;
    T* const dv_to = a.dv.of(place.b, place.h) + (first_key + down * KEYS) * a.dv.row;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        if (down * KEYS + i >= keys) continue;
        Columns<D>::write(dk_to + i * a.dk.row, dk[i], scale, across, width, aligned);
        Columns<D>::write(dv_to + i * a.dv.row, dv[i], 1.f, across, values, aligned);
    }
}

// One tile of queries against all keys that it sees: dQ = scale·dS K.
template <class T, int D> __device__ __forceinline__ void attention_query_gradients(f32 scale, const Backward<T>& a) {
    using Tile = QueryGradientTile<D>;
    constexpr int ROWS = Tile::Q / DOWN, COLUMNS = Tile::K / ACROSS;
    extern __shared__ __align__(16) f32 shared[];
    f32 *const q = shared, *const grad = q + Tile::Q * pitch(D);
    f32 *const k = grad + Tile::Q * pitch(D), *const v = k + Tile::K * pitch(D), *const ds = v + Tile::K * pitch(D);

    const Attention& shape = a.shape;
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int keys = int(shape.keys), width = int(shape.width), values = int(shape.values);
    const bool aligned = shape.aligned;
    const u32 tiles = tiles_of(shape.rows, Tile::Q);
    const Place place(shape, tiles);
    const int first_row = int(tiles - 1 - place.tile) * Tile::Q, rows = int(shape.rows) - first_row;
    const int begin = first_seen(shape, first_row, Tile::K), end = shape.causal ? min(keys, first_row + Tile::Q) : keys;
    const T* some_k = a.k.of(place.b, place.shared) + begin * a.k.row;
    const T* some_v = a.v.of(place.b, place.shared) + begin * a.v.row;
    const T* const some_q = a.q.of(place.b, place.h) + first_row * a.q.row;
    const T* const some_grad = a.grad.of(place.b, place.h) + first_row * a.grad.row;
    stage<T, Tile::Q, D>(q, some_q, a.q.row, rows, width, aligned);
    stage<T, Tile::Q, D>(grad, some_grad, a.grad.row, rows, values, aligned);

    f32 dq[ROWS][Columns<D>::COUNT] = {};
    for (int first_key = begin; first_key < end; first_key += Tile::K) {
        __syncthreads();
        stage<T, Tile::K, D>(k, some_k, a.k.row, keys - first_key, width, aligned);
        stage<T, Tile::K, D>(v, some_v, a.v.row, keys - first_key, values, aligned);
        some_k += Tile::K * a.k.row;
        some_v += Tile::K * a.v.row;
        __syncthreads();
        f32 scores[ROWS][COLUMNS] = {}, gradients[ROWS][COLUMNS] = {};
        score_gradients<ROWS, COLUMNS, D>(scores, gradients, scale, a, place, q, grad, k, v, first_row, first_key);
        keep<ROWS, COLUMNS, Tile::K>(ds, gradients, down, across);
        // A row of gradients is read by the threads that wrote it, which are of one warp.
        __syncwarp();
        multiply<ROWS, Tile::K, D>(dq, ds + down * pitch(Tile::K), k, across);
    }

    T* const to = a.dq.of(place.b, place.h) + (first_row + down) * a.dq.row;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (i * DOWN + down >= rows) continue;
        Columns<D>::write(to + i * DOWN * a.dq.row, dq[i], scale, across, width, aligned);
    }
}

#define KERNELS(T, D) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    attention_##D##_##T(f32 scale, const Forward<T> a) { attention<T, D>(scale, a); } \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    attention_key_gradients_##D##_##T(f32 scale, const Backward<T> a) { attention_key_gradients<T, D>(scale, a); } \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    attention_query_gradients_##D##_##T(f32 scale, const Backward<T> a) { attention_query_gradients<T, D>(scale, a); }
#define ATTENTION(T) KERNELS(T, 32) KERNELS(T, 64) KERNELS(T, 80) KERNELS(T, 128)
ATTENTION(f32)
// From sm_80 on tensor cores do this.
#if __CUDA_ARCH__ < 800
ATTENTION(f16)
ATTENTION(bf16)
#endif
// But for the widest heads.
KERNELS(f32, 256)
KERNELS(f16, 256)
KERNELS(bf16, 256)

#define DELTA(T) \
    extern "C" __global__ void __launch_bounds__(DELTA_ROWS * DELTA_LANES) \
    attention_delta_##T(f32, const Backward<T> a) { attention_delta(a); }
FOR_FLOATS(DELTA)
