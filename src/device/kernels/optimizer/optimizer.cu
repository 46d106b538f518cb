// Optimizer steps and what a gradient scaler does, for many tensors in one launch. Every operation rounds by itself, as
// PyTorch's do: nothing is contracted.

// One tensor of a list: an optimizer's four, or gradients alone. They have a run of blocks of their own.
struct Entry {
    void *parameter, *gradient, *first, *second;
    u64 len, first_block;
};

constexpr int ENTRIES = 80;
constexpr u32 CHUNK = 4096;

// As many as the arguments of a kernel have room for.
struct List {
    Entry at[ENTRIES];
};

// A number of elements that the compiler knows.
template <int N> struct Count {
    static constexpr int value = N;
};

// This block's tensor.
__device__ __forceinline__ const Entry& entry_of_block(const List& list, u32 entries) {
    u32 low = 0, high = entries;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (list.at[middle].first_block <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return list.at[low];
}

// Calls `body(entry, element, count)` for all elements of this block's chunk of this block's tensor.
template <class T, class Body> __device__ __forceinline__ void each(const List& list, u32 entries, Body body) {
    const Entry& entry = entry_of_block(list, entries);
    const u64 begin = (blockIdx.x - entry.first_block) * CHUNK;
    const u32 len = entry.len - begin < CHUNK ? u32(entry.len - begin) : CHUNK;
    constexpr u32 N = WIDE<T>;
    u32 vectors = 0;
    if ((u64(entry.parameter) | u64(entry.gradient) | u64(entry.first) | u64(entry.second)) % 16 == 0) {
        vectors = len / N;
        for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) body(entry, begin + i * N, Count<N>());
    }
    for (u32 i = vectors * N + threadIdx.x; i < len; i += blockDim.x) body(entry, begin + i, Count<1>());
}

// The elements of one of an entry's tensors.
template <class T> __device__ __forceinline__ T* tensor(void* start, u64 element) {
    return static_cast<T*>(start) + element;
}

// Gradients, divided by the scale in place where there is one.
template <class T, int N>
__device__ __forceinline__ void load_gradient(const Entry& entry, u64 at, const f32* scale, f32 (&g)[N]) {
    T* gradient = tensor<T>(entry.gradient, at);
    load_f32(gradient, g);
    if (!scale) return;
    const f32 factor = *scale;
#pragma unroll
    for (int i = 0; i < N; i++) g[i] = to_f32(from_f32<T>(__fdiv_rn(g[i], factor)));
    store_f32(gradient, g);
}

struct SgdRule {
    f32 lr, momentum, decay;
    bool first_step;
};

template <class T>
__device__ void sgd(const f32* scale, const f32* found_inf, SgdRule rule, u32 entries, const List& list) {
    if (found_inf && *found_inf != 0.f) return;
    each<T>(list, entries, [&](const Entry& entry, u64 at, auto count) {
        constexpr int N = decltype(count)::value;
        f32 p[N], g[N];
        load_f32(tensor<T>(entry.parameter, at), p);
        load_gradient<T>(entry, at, scale, g);
        if (rule.decay != 0.f) {
#pragma unroll
            for (int i = 0; i < N; i++) g[i] = __fadd_rn(g[i], __fmul_rn(rule.decay, p[i]));
        }
        if (entry.first) {
            T* first = tensor<T>(entry.first, at);
            if (!rule.first_step) {
                f32 buffer[N];
                load_f32(first, buffer);
#pragma unroll
                for (int i = 0; i < N; i++) g[i] = __fadd_rn(g[i], __fmul_rn(rule.momentum, buffer[i]));
            }
            store_f32(first, g);
        }
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = __fsub_rn(p[i], __fmul_rn(rule.lr, g[i]));
        store_f32(tensor<T>(entry.parameter, at), p);
    });
}

struct AdamRule {
    f32 keep, decay, first_weight, beta2, second_weight, root_correction, eps, step_size;
};

template <class T>
__device__ void adam(const f32* scale, const f32* found_inf, AdamRule rule, u32 entries, const List& list) {
    if (found_inf && *found_inf != 0.f) return;
    each<T>(list, entries, [&](const Entry& entry, u64 at, auto count) {
        constexpr int N = decltype(count)::value;
        f32 p[N], g[N], m[N], v[N];
        load_f32(tensor<T>(entry.parameter, at), p);
        load_f32(tensor<T>(entry.first, at), m);
        load_f32(tensor<T>(entry.second, at), v);
        load_gradient<T>(entry, at, scale, g);
        if (rule.decay != 0.f) {
#pragma unroll
            for (int i = 0; i < N; i++) g[i] = __fadd_rn(g[i], __fmul_rn(rule.decay, p[i]));
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            p[i] = __fmul_rn(p[i], rule.keep);
            m[i] = __fadd_rn(m[i], __fmul_rn(rule.first_weight, __fsub_rn(g[i], m[i])));
            v[i] = __fadd_rn(__fmul_rn(v[i], rule.beta2), __fmul_rn(__fmul_rn(rule.second_weight, g[i]), g[i]));
            const f32 root = __fadd_rn(__fdiv_rn(__fsqrt_rn(v[i]), rule.root_correction), rule.eps);
            p[i] = __fsub_rn(p[i], __fmul_rn(rule.step_size, __fdiv_rn(m[i], root)));
        }
        store_f32(tensor<T>(entry.parameter, at), p);
        store_f32(tensor<T>(entry.first, at), m);
        store_f32(tensor<T>(entry.second, at), v);
    });
}

// Multiplies gradients; where the factor is one they are only looked at.
template <class T> __device__ void unscale(const f32* inverse_scale, f32* found_inf, u32 entries, const List& list) {
    const f32 factor = *inverse_scale;
    bool finite = true;
    each<T>(list, entries, [&](const Entry& entry, u64 at, auto count) {
        constexpr int N = decltype(count)::value;
        f32 g[N];
        load_f32(tensor<T>(entry.gradient, at), g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            finite = finite && fabsf(g[i]) < INFINITE;
            g[i] = __fmul_rn(g[i], factor);
        }
        if (factor != 1.f) store_f32(tensor<T>(entry.gradient, at), g);
    });
    if (!finite) *found_inf = 1.f;
}

// Elements of a run whose squares one block sums.
constexpr u32 NORM_RUN = 65536;

// A tensor's sums lie at `first`, one for each of its runs.
template <class T> __device__ void square_sums(u32 entries, const List& list) {
    const Entry& entry = entry_of_block(list, entries);
    const u64 run = blockIdx.x - entry.first_block, begin = run * NORM_RUN;
    const u32 len = entry.len - begin < NORM_RUN ? u32(entry.len - begin) : NORM_RUN;
    const T* gradient = tensor<T>(entry.gradient, begin);
    constexpr u32 N = WIDE<T>;
    f32 sum = 0.f;
    u32 vectors = 0;
    if (u64(gradient) % 16 == 0) {
        vectors = len / N;
        for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) {
            f32 g[N];
            load_f32(gradient + i * N, g);
#pragma unroll
            for (u32 j = 0; j < N; j++) sum += g[j] * g[j];
        }
    }
    for (u32 i = vectors * N + threadIdx.x; i < len; i += blockDim.x) {
        f32 g[1];
        load_f32(gradient + i, g);
        sum += g[0] * g[0];
    }
    sum = block_reduce<Sum>(sum);
    if (threadIdx.x == 0) tensor<f32>(entry.first, 0)[run] = sum;
}

template <class T> __device__ __forceinline__ f32 rounded(f32 x) { return to_f32(from_f32<T>(x)); }

// A warp sums the runs of a tensor.
template <class T>
__device__ void clip_factor(const f32* sums, T* factor, u32 rows, u32 runs, f32 most) {
    const u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    f32 squares = 0.f;
    for (u32 row = threadIdx.x / 32; row < rows; row += warps) {
        f32 sum = 0.f;
        for (u32 run = lane; run < runs; run += 32) sum += sums[u64(row) * runs + run];
        const f32 norm = rounded<T>(__fsqrt_rn(warp_reduce<Sum>(sum)));
        if (lane == 0) squares += norm * norm;
    }
    squares = block_reduce<Sum>(squares);
    if (threadIdx.x != 0) return;
    const f32 norm = rounded<T>(__fsqrt_rn(squares));
    const f32 clipped = rounded<T>(__fmul_rn(rounded<T>(__fdiv_rn(1.f, rounded<T>(__fadd_rn(norm, 1e-6f)))), most));
    *factor = from_f32<T>(clipped > 1.f ? 1.f : clipped);
}

#define FOR_TYPE(T) \
    extern "C" __global__ __launch_bounds__(256) void square_sums_##T( \
        u32 entries, const __grid_constant__ List list) { \
        square_sums<T>(entries, list); \
    } \
    extern "C" __global__ __launch_bounds__(1024) void clip_factor_##T( \
        const f32* sums, T* factor, u32 rows, u32 runs, f32 most) { \
        clip_factor<T>(sums, factor, rows, runs, most); \
    } \
    extern "C" __global__ __launch_bounds__(256) void sgd_##T( \
        const f32* scale, const f32* found_inf, f32 lr, f32 momentum, f32 decay, u32 first_step, u32 entries, \
        const __grid_constant__ List list) { \
        sgd<T>(scale, found_inf, {lr, momentum, decay, first_step != 0}, entries, list); \
    } \
    extern "C" __global__ __launch_bounds__(256) void adam_##T( \
        const f32* scale, const f32* found_inf, f32 keep, f32 decay, f32 first_weight, f32 beta2, f32 second_weight, \
        f32 root_correction, f32 eps, f32 step_size, u32 entries, const __grid_constant__ List list) { \
        const AdamRule rule = {keep, decay, first_weight, beta2, second_weight, root_correction, eps, step_size}; \
        adam<T>(scale, found_inf, rule, entries, list); \
    } \
    extern "C" __global__ __launch_bounds__(256) void unscale_##T( \
        const f32* inverse_scale, f32* found_inf, u32 entries, const __grid_constant__ List list) { \
        unscale<T>(inverse_scale, found_inf, entries, list); \
    }
FOR_FLOATS(FOR_TYPE)

extern "C" __global__ void reciprocal_f32(const f32* src, f32* dst, u32 count) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) dst[at] = f32(1.0 / double(src[at]));
}

extern "C" __global__ void update_scale(
    f32* scale, i32* tracker, const f32* found_inf, double growth, double backoff, i32 interval) {
    if (*found_inf != 0.f) {
        *scale = f32(double(*scale) * backoff);
        *tracker = 0;
        return;
    }
    const i32 successes = *tracker + 1;
    *tracker = successes == interval ? 0 : successes;
    const double grown = double(*scale) * growth;
    // A scale that is no finite f32 is not taken.
    if (successes == interval && grown <= 3.4028234663852886e38) *scale = f32(grown);
}
