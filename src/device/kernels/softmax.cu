// Softmax, log-softmax and their gradients, row by row. Rows of any length begin at any address: they are read in
// vectors that begin at multiples of 16 bytes, and what is left at both ends element by element. Each row is read
// once; it waits in registers or in shared memory until it is written.

// A row as seen in slots of 16 bytes, the first and the last of which may lie partly outside of it.
template <class T> struct Slots {
    static constexpr u32 N = WIDE<T>;
    const T* from;
    T* to;
    // The row is elements [first, end) of its slots.
    u32 first, end;

    // `src` and `dst` lie alike in their slots.
    __device__ Slots(const T* src, T* dst, u32 cols) : first(u32(u64(src) / sizeof(T) % N)) {
        from = src - first;
        to = dst - first;
        end = first + cols;
    }
    __device__ bool holds(u32 element) const { return element >= first && element < end; }
    __device__ bool is_whole(u32 slot) const { return slot * N >= first && slot * N + N <= end; }

    // What is not of the row becomes `outside`.
    __device__ void read(u32 slot, f32 outside, f32 (&x)[N]) const {
        const u32 start = slot * N;
        if (is_whole(slot)) {
            load_f32(from + start, x);
        } else {
#pragma unroll
            for (u32 i = 0; i < N; i++) x[i] = holds(start + i) ? to_f32(from[start + i]) : outside;
        }
    }
    __device__ void write(u32 slot, const f32 (&x)[N]) const {
        const u32 start = slot * N;
        if (is_whole(slot)) {
            store_f32(to + start, x);
        } else {
#pragma unroll
            for (u32 i = 0; i < N; i++) {
                if (holds(start + i)) to[start + i] = from_f32<T>(x[i]);
            }
        }
    }
};

// The reduction over groups of `lanes` neighbours, a power of two up to 32.
template <class Op> __device__ f32 lanes_reduce(f32 x, u32 lanes) {
    for (u32 distance = lanes / 2; distance > 0; distance /= 2) x = Op()(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

// The softmax of rows that fit K slots of each of `lanes` neighbouring threads.
template <class T, int K, bool LOG>
__device__ void softmax_lanes(const T* src, T* dst, u64 rows, u32 cols, u32 lanes) {
    constexpr int N = WIDE<T>;
    const u64 row = thread_index() / lanes, start = (row < rows ? row : rows - 1) * cols;
    const u32 lane = threadIdx.x % lanes;
    const Slots<T> slots(src + start, dst + start, cols);
    f32 x[K][N], max = -INFINITE, sum = 0.f;
#pragma unroll
    for (int k = 0; k < K; k++) slots.read(lane + k * lanes, -INFINITE, x[k]);
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) max = Max()(max, x[k][i]);
    }
    max = lanes_reduce<Max>(max, lanes);
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 shifted = x[k][i] - max, power = expf(shifted);
            sum += power;
            x[k][i] = LOG ? shifted : power;
        }
    }
    sum = lanes_reduce<Sum>(sum, lanes);
    const f32 shift = LOG ? logf(sum) : 0.f;
    if (row >= rows) return;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) x[k][i] = LOG ? x[k][i] - shift : x[k][i] / sum;
        slots.write(lane + k * lanes, x[k]);
    }
}

// The gradient of one element, where `sum` is that of the row.
template <bool LOG> __device__ __forceinline__ f32 gradient(f32 output, f32 grad, f32 sum) {
    return LOG ? grad - expf(output) * sum : output * (grad - sum);
}

// The gradient of rows that fit K slots of each of `lanes` neighbouring threads.
template <class T, int K, bool LOG>
__device__ void gradient_lanes(const T* output, const T* grad, T* dst, u64 rows, u32 cols, u32 lanes) {
    constexpr int N = WIDE<T>;
    const u64 row = thread_index() / lanes, start = (row < rows ? row : rows - 1) * cols;
    const u32 lane = threadIdx.x % lanes;
    const Slots<T> outputs(output + start, dst + start, cols), grads(grad + start, dst + start, cols);
    f32 y[K][N], g[K][N], sum = 0.f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        outputs.read(lane + k * lanes, 0.f, y[k]);
        grads.read(lane + k * lanes, 0.f, g[k]);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) sum += LOG ? g[k][i] : g[k][i] * y[k][i];
    }
    sum = lanes_reduce<Sum>(sum, lanes);
    if (row >= rows) return;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < N; i++) g[k][i] = gradient<LOG>(y[k][i], g[k][i], sum);
        grads.write(lane + k * lanes, g[k]);
    }
}

// A number of elements that the compiler knows.
template <int N> struct Count {
    static constexpr int value = N;
};

// A row of one block's own: vectors of N elements from the first multiple of their size on, single elements before and
// after them.
template <class T, int N, int BATCH> struct Cut {
    u32 cols, head, vectors;

    __device__ Cut(const T* row, u32 cols) : cols(cols) {
        head = (N - u32(u64(row) / sizeof(T) % N)) % N;
        head = head < cols ? head : cols;
        vectors = (cols - head) / N;
    }

    // Calls `use(element, load(element, count), count)` for each of this thread's vectors and elements. Loads of
    // several are under way at once: what is used must not change what is loaded for others.
    template <class Load, class Use> __device__ void each(Load load, Use use) const {
        const u32 threads = blockDim.x;
        for (u32 vector = threadIdx.x; vector < vectors; vector += BATCH * threads) {
            decltype(load(0u, Count<N>())) loaded[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 at = vector + i * threads;
                if (at < vectors) loaded[i] = load(head + at * N, Count<N>());
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                const u32 at = vector + i * threads;
                if (at < vectors) use(head + at * N, loaded[i], Count<N>());
            }
        }
        const u32 edges = cols - vectors * N;
        for (u32 edge = threadIdx.x; edge < edges; edge += threads) {
            const u32 element = edge < head ? edge : edge + vectors * N;
            use(element, load(element, Count<1>()), Count<1>());
        }
    }
};

extern __shared__ __align__(16) u8 dynamic[];

// Shared memory for a row that is cut as `cut`: its vectors are aligned there too.
template <class T, int N, int BATCH> __device__ T* room(const Cut<T, N, BATCH>& cut) {
    return reinterpret_cast<T*>(dynamic) + (N - cut.head) % N;
}

// The softmax of one row by a block. Where it is not HELD in shared memory it is read three times.
template <class T, int N, bool HELD, bool LOG> __device__ void softmax_row(const T* src, T* dst, u32 cols) {
    src += u64(blockIdx.x) * cols;
    dst += u64(blockIdx.x) * cols;
    const Cut<T, N, 4> cut(src, cols);
    T* held = room(cut);
    const T* again = HELD ? held : src;
    f32 max = -INFINITE, sum = 0.f;
    const auto read_first = [&](u32 at, auto count) { return load<T, count.value>(src + at); };
    const auto read_again = [&](u32 at, auto count) { return load<T, count.value>(again + at); };
    cut.each(read_first, [&](u32 at, auto x, auto count) {
        if (HELD) store(held + at, x);
#pragma unroll
        for (int i = 0; i < count.value; i++) max = Max()(max, to_f32(x.at[i]));
    });
    max = block_reduce<Max>(max);
    cut.each(read_again, [&](u32, auto x, auto count) {
#pragma unroll
        for (int i = 0; i < count.value; i++) sum += expf(to_f32(x.at[i]) - max);
    });
    sum = block_reduce<Sum>(sum);
    const f32 shift = LOG ? logf(sum) : 0.f;
    cut.each(read_again, [&](u32 at, auto x, auto count) {
#pragma unroll
        for (int i = 0; i < count.value; i++) {
            const f32 shifted = to_f32(x.at[i]) - max;
            x.at[i] = from_f32<T>(LOG ? shifted - shift : expf(shifted) / sum);
        }
        store(dst + at, x);
    });
}

// Elements of both sources of a gradient.
template <class T, int N> struct Both {
    Pack<T, N> output, grad;
};

// The gradient of one row by a block. The incoming gradient is HELD in shared memory or read twice; the outputs are
// read twice, those of the log-softmax once.
template <class T, int N, bool HELD, bool LOG>
__device__ void gradient_row(const T* output, const T* grad, T* dst, u32 cols) {
    output += u64(blockIdx.x) * cols;
    grad += u64(blockIdx.x) * cols;
    dst += u64(blockIdx.x) * cols;
    const Cut<T, N, LOG ? 4 : 2> cut(grad, cols);
    T* held = room(cut);
    const T* again = HELD ? held : grad;
    f32 sum = 0.f;
    const auto read_first = [&](u32 at, auto count) {
        Both<T, count.value> both;
        if (!LOG) both.output = load<T, count.value>(output + at);
        both.grad = load<T, count.value>(grad + at);
        return both;
    };
    const auto read_again = [&](u32 at, auto count) {
        return Both<T, count.value>{load<T, count.value>(output + at), load<T, count.value>(again + at)};
    };
    cut.each(read_first, [&](u32 at, auto x, auto count) {
        if (HELD) store(held + at, x.grad);
#pragma unroll
        for (int i = 0; i < count.value; i++) {
            const f32 g = to_f32(x.grad.at[i]);
            sum += LOG ? g : g * to_f32(x.output.at[i]);
        }
    });
    sum = block_reduce<Sum>(sum);
    cut.each(read_again, [&](u32 at, auto x, auto count) {
#pragma unroll
        for (int i = 0; i < count.value; i++) {
            x.grad.at[i] = from_f32<T>(gradient<LOG>(to_f32(x.output.at[i]), to_f32(x.grad.at[i]), sum));
        }
        store(dst + at, x.grad);
    });
}

// Of each: rows of one slot a thread, rows of 32 elements a thread, rows in shared memory, rows of any length and
// place.
#define SOFTMAX(T, NAME, LOG) \
    extern "C" __global__ void NAME##_slot_##T(const T* src, T* dst, u64 rows, u32 cols, u32 lanes) { \
        softmax_lanes<T, 1, LOG>(src, dst, rows, cols, lanes); \
    } \
    extern "C" __global__ void NAME##_warp_##T(const T* src, T* dst, u64 rows, u32 cols, u32 lanes) { \
        softmax_lanes<T, 32 / WIDE<T>, LOG>(src, dst, rows, cols, lanes); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void NAME##_held_##T(const T* src, T* dst, u32 cols) { \
        softmax_row<T, WIDE<T>, true, LOG>(src, dst, cols); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void NAME##_any_##T(const T* src, T* dst, u32 cols) { \
        softmax_row<T, 1, false, LOG>(src, dst, cols); \
    }
#define GRADIENT(T, NAME, LOG) \
    extern "C" __global__ void NAME##_slot_##T( \
        const T* output, const T* grad, T* dst, u64 rows, u32 cols, u32 lanes) { \
        gradient_lanes<T, 1, LOG>(output, grad, dst, rows, cols, lanes); \
    } \
    extern "C" __global__ void NAME##_warp_##T( \
        const T* output, const T* grad, T* dst, u64 rows, u32 cols, u32 lanes) { \
        gradient_lanes<T, 32 / WIDE<T>, LOG>(output, grad, dst, rows, cols, lanes); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void NAME##_held_##T( \
        const T* output, const T* grad, T* dst, u32 cols) { \
        gradient_row<T, WIDE<T>, true, LOG>(output, grad, dst, cols); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void NAME##_any_##T( \
        const T* output, const T* grad, T* dst, u32 cols) { \
        gradient_row<T, 1, false, LOG>(output, grad, dst, cols); \
    }
#define ALL(T) \
    SOFTMAX(T, softmax, false) \
    SOFTMAX(T, log_softmax, true) \
    GRADIENT(T, softmax_backward, false) \
    GRADIENT(T, log_softmax_backward, true)
FOR_FLOATS(ALL)
