// Values in 4 and in 8 bits, as bitsandbytes quantises them.

constexpr int THREADS = 256, WARPS = THREADS / 32;
// Elements that share a largest magnitude: of values in 4 bits, and in 8.
constexpr int RUN = 64, BYTES_RUN = 256;
// The place of zero, which stands for a run of zeros.
constexpr u32 ZERO = 7;

__constant__ f32 NF4[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

// The place of what is nearest to `x` in `count` values that ascend; of two as near the lower one.
__device__ __forceinline__ u32 nearest(const f32* codes, u32 count, f32 x) {
    u32 low = 0, high = count - 1;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (x > (codes[middle] + codes[middle + 1]) * 0.5f) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ u64 warp_index() { return u64(blockIdx.x) * WARPS + threadIdx.x / 32; }
__device__ __forceinline__ u64 warp_count() { return u64(gridDim.x) * WARPS; }

// A warp for each run, two elements a lane.
template <class T> __device__ void quantize(const T* src, u64 len, u8* dst, f32* absmax) {
    const u32 lane = threadIdx.x % 32;
    for (u64 run = warp_index(); run * RUN < len; run += warp_count()) {
        const u64 i = run * RUN + 2 * lane;
        const f32 x = i < len ? to_f32(src[i]) : 0.f, y = i + 1 < len ? to_f32(src[i + 1]) : 0.f;
        const f32 most = warp_reduce<Max>(fmaxf(fabsf(x), fabsf(y)));
        if (lane == 0) absmax[run] = most;
        const f32 factor = most > 0.f ? __frcp_rn(most) : 0.f;
        const u32 high = most > 0.f ? nearest(NF4, 16, x * factor) : ZERO;
        const u32 low = most > 0.f && i + 1 < len ? nearest(NF4, 16, y * factor) : ZERO;
        if (i < len) dst[i / 2] = u8(high << 4 | low);
    }
}

// A thread for each byte.
template <class T> __device__ void dequantize(const u8* src, const f32* absmax, T* dst, u64 len) {
    for (u64 byte = thread_index(); 2 * byte < len; byte += thread_count()) {
        const u64 i = 2 * byte;
        const u32 pair = src[byte];
        const f32 most = absmax[i / RUN];
        dst[i] = from_f32<T>(NF4[pair >> 4] * most);
        if (i + 1 < len) dst[i + 1] = from_f32<T>(NF4[pair & 15] * most);
    }
}

// A warp for each run, eight elements a lane.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_bytes(const f32* src, u64 len, const f32* codes, u8* dst, f32* absmax) {
    const u32 lane = threadIdx.x % 32;
    for (u64 run = warp_index(); run * BYTES_RUN < len; run += warp_count()) {
        f32 most = 0.f;
        for (u64 i = run * BYTES_RUN + lane; i < len && i < (run + 1) * BYTES_RUN; i += 32) most = fmaxf(most, fabsf(src[i]));
        most = warp_reduce<Max>(most);
        if (lane == 0) absmax[run] = most;
        const f32 factor = most > 0.f ? __frcp_rn(most) : 0.f;
        for (u64 i = run * BYTES_RUN + lane; i < len && i < (run + 1) * BYTES_RUN; i += 32) {
            dst[i] = u8(nearest(codes, 256, src[i] * factor));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dequantize_bytes(const u8* src, const f32* codes, const f32* absmax, f32* dst, u64 len) {
    for (u64 i = thread_index(); i < len; i += thread_count()) dst[i] = codes[src[i]] * absmax[i / BYTES_RUN];
}

// Where `x` falls among the 255 values half-way between 256 that ascend; what lies on one falls below.
__device__ __forceinline__ u32 place(const f32* halves, f32 x) {
    u32 low = 0;
#pragma unroll
    for (u32 step = 128; step > 0; step /= 2) low += x > halves[low + step - 1] ? step : 0;
    return low;
}

// The codes of a moment, and what lies half-way between them, in shared memory.
struct Codes {
    f32 at[256], halves[256];

    __device__ __forceinline__ void load(const f32* codes) {
        const u32 i = threadIdx.x;
        at[i] = codes[i];
        halves[i] = i < 255 ? (codes[i] + codes[i + 1]) * 0.5f : INFINITE;
    }
};

// AdamW's scalars for one step.
struct AdamRule {
    f32 keep, first_weight, beta2, second_weight, root_correction, eps, step_size;
};

// New moments, and the weight that has gone by them and then decayed. Every operation rounds by itself, as those of bitsandbytes do.
template <class T> __device__ __forceinline__ T updated(T p, f32 g, f32& m, f32& v, const AdamRule& rule) {
    m = __fadd_rn(m, __fmul_rn(rule.first_weight, __fsub_rn(g, m)));
    v = __fadd_rn(__fmul_rn(v, rule.beta2), __fmul_rn(__fmul_rn(rule.second_weight, g), g));
    const f32 root = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), rule.root_correction), rule.eps);
    const T gone = from_f32<T>(__fsub_rn(to_f32(p), __fmul_rn(rule.step_size, __fdiv_rn(m, root))));
    return rule.keep == 1.f ? gone : from_f32<T>(__fmul_rn(to_f32(gone), rule.keep));
}

// A warp for each run, eight elements a lane.
template <class T>
__device__ void adam_of_bytes(T* p, const T* g, u64 len, u8* first, const f32* first_codes, f32* first_absmax, u8* second,
                              const f32* second_codes, f32* second_absmax, const AdamRule& rule) {
    constexpr int EACH = BYTES_RUN / 32;
    __shared__ Codes of_first, of_second;
    of_first.load(first_codes);
    of_second.load(second_codes);
    __syncthreads();
    const u32 lane = threadIdx.x % 32;
    for (u64 run = warp_index(); run * BYTES_RUN < len; run += warp_count()) {
        const f32 scale_m = first_absmax[run], scale_v = second_absmax[run];
        f32 m[EACH], v[EACH], most_m = 0.f, most_v = 0.f;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 i = run * BYTES_RUN + e * 32 + lane;
            m[e] = v[e] = 0.f;
            if (i >= len) continue;
            m[e] = of_first.at[first[i]] * scale_m;
            v[e] = of_second.at[second[i]] * scale_v;
            p[i] = updated(p[i], to_f32(g[i]), m[e], v[e], rule);
            most_m = fmaxf(most_m, fabsf(m[e]));
            most_v = fmaxf(most_v, v[e]);
        }
        most_m = warp_reduce<Max>(most_m);
        most_v = warp_reduce<Max>(most_v);
        const f32 factor_m = most_m > 0.f ? __frcp_rn(most_m) : 0.f, factor_v = most_v > 0.f ? __frcp_rn(most_v) : 0.f;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 i = run * BYTES_RUN + e * 32 + lane;
            if (i >= len) continue;
            const u32 near = place(of_first.halves, m[e] * factor_m);
            // What is no zero does not become one from below.
            first[i] = u8(m[e] < 0.f && of_first.at[near] >= 0.f && near > 0 ? near - 1 : near);
            second[i] = u8(place(of_second.halves, v[e] * factor_v));
        }
        if (lane == 0) {
            first_absmax[run] = most_m;
            second_absmax[run] = most_v;
        }
    }
}

// A thread for each element.
template <class T>
__device__ void adam_of_f32(T* p, const T* g, u64 len, f32* first, f32* second, const AdamRule& rule) {
    for (u64 i = thread_index(); i < len; i += thread_count()) p[i] = updated(p[i], to_f32(g[i]), first[i], second[i], rule);
}

// Lion's scalars.
struct LionRule {
    f32 lr, beta1, beta2, decay;
};

// The direction in which a weight goes.
__device__ __forceinline__ f32 direction(f32 m, f32 g, const LionRule& rule) {
    const f32 x = __fadd_rn(__fmul_rn(m, rule.beta1), __fmul_rn(1.f - rule.beta1, g));
    return x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f;
}

__device__ __forceinline__ f32 moved(f32 m, f32 g, const LionRule& rule) {
    return __fadd_rn(__fmul_rn(m, rule.beta2), __fmul_rn(1.f - rule.beta2, g));
}

// A weight behind its decay, rounded to its type.
template <class T> __device__ __forceinline__ f32 decayed(T p, const LionRule& rule) {
    if (rule.decay <= 0.f) return to_f32(p);
    return to_f32(from_f32<T>(__fmul_rn(to_f32(p), __fsub_rn(1.f, __fmul_rn(rule.lr, rule.decay)))));
}

// A warp for each run, eight elements a lane. The step is rounded to the type of the weights by itself.
template <class T>
__device__ void lion_of_bytes(T* p, const T* g, u64 len, u8* first, const f32* codes, f32* absmax, const LionRule& rule) {
    constexpr int EACH = BYTES_RUN / 32;
    __shared__ Codes of_first;
    of_first.load(codes);
    __syncthreads();
    const u32 lane = threadIdx.x % 32;
    for (u64 run = warp_index(); run * BYTES_RUN < len; run += warp_count()) {
        const f32 scale = absmax[run];
        f32 m[EACH], most = 0.f;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 i = run * BYTES_RUN + e * 32 + lane;
            m[e] = 0.f;
            if (i >= len) continue;
            m[e] = of_first.at[first[i]] * scale;
            const f32 grad = to_f32(g[i]);
            const T step = from_f32<T>(__fmul_rn(rule.lr, direction(m[e], grad, rule)));
            p[i] = from_f32<T>(__fsub_rn(decayed(p[i], rule), to_f32(step)));
            m[e] = moved(m[e], grad, rule);
            most = fmaxf(most, fabsf(m[e]));
        }
        most = warp_reduce<Max>(most);
        const f32 factor = most > 0.f ? __frcp_rn(most) : 0.f;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 i = run * BYTES_RUN + e * 32 + lane;
            if (i >= len) continue;
            const u32 near = place(of_first.halves, m[e] * factor);
            // What is no zero does not become one from below.
            first[i] = u8(m[e] < 0.f && of_first.at[near] >= 0.f && near > 0 ? near - 1 : near);
        }
        if (lane == 0) absmax[run] = most;
    }
}

// A thread for each element.
template <class T> __device__ void lion_of_f32(T* p, const T* g, u64 len, f32* first, const LionRule& rule) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const f32 grad = to_f32(g[i]);
        p[i] = from_f32<T>(__fsub_rn(decayed(p[i], rule), __fmul_rn(rule.lr, direction(first[i], grad, rule))));
        first[i] = moved(first[i], grad, rule);
    }
}

// A warp for each element of the result; where `bytes` is not null the magnitudes of runs are in 8 bits.
template <class T>
__device__ void gemm(const T* a, const u8* w, const f32* absmax, const u8* bytes, const f32* codes, const f32* offset,
                     const T* bias, T* dst, u64 m, u64 n, u64 k) {
    const u32 lane = threadIdx.x % 32;
    for (u64 at = warp_index(); at < m * n; at += warp_count()) {
        const u64 row = at / n, col = at % n;
        f32 sum = 0.f;
        for (u64 run = 0; run < k / RUN; run++) {
            const u64 place = col * (k / RUN) + run;
            const f32 most = bytes ? codes[bytes[place]] * absmax[place / BYTES_RUN] + *offset : absmax[place];
            const u64 i = run * RUN + 2 * lane;
            const u32 pair = w[(col * k + i) / 2];
            sum += to_f32(a[row * k + i]) * (NF4[pair >> 4] * most) + to_f32(a[row * k + i + 1]) * (NF4[pair & 15] * most);
        }
        sum = warp_reduce<Sum>(sum);
        if (lane == 0) dst[at] = from_f32<T>(bias ? sum + to_f32(bias[col]) : sum);
    }
}

#define ADAM_KERNELS(T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS) adam_of_bytes_##T(                                                  \
        T* p, const T* g, u64 len, u8* first, const f32* first_codes, f32* first_absmax, u8* second,                          \
        const f32* second_codes, f32* second_absmax, f32 keep, f32, f32 first_weight, f32 beta2, f32 second_weight,           \
        f32 root_correction, f32 eps, f32 step_size) {                                                                        \
        const AdamRule rule = {keep, first_weight, beta2, second_weight, root_correction, eps, step_size};                    \
        adam_of_bytes(p, g, len, first, first_codes, first_absmax, second, second_codes, second_absmax, rule);                \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) adam_of_f32_##T(                                                    \
        T* p, const T* g, u64 len, f32* first, f32* second, f32 keep, f32, f32 first_weight, f32 beta2, f32 second_weight,    \
        f32 root_correction, f32 eps, f32 step_size) {                                                                        \
        const AdamRule rule = {keep, first_weight, beta2, second_weight, root_correction, eps, step_size};                    \
        adam_of_f32(p, g, len, first, second, rule);                                                                          \
    }
FOR_FLOATS(ADAM_KERNELS)

#define LION_KERNELS(T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS) lion_of_bytes_##T(                                                  \
        T* p, const T* g, u64 len, u8* first, const f32* codes, f32* absmax, f32 lr, f32 beta1, f32 beta2, f32 decay) {       \
        const LionRule rule = {lr, beta1, beta2, decay};                                                                      \
        lion_of_bytes(p, g, len, first, codes, absmax, rule);                                                                 \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) lion_of_f32_##T(                                                    \
        T* p, const T* g, u64 len, f32* first, f32 lr, f32 beta1, f32 beta2, f32 decay) {                                     \
        const LionRule rule = {lr, beta1, beta2, decay};                                                                      \
        lion_of_f32(p, g, len, first, rule);                                                                                  \
    }
FOR_FLOATS(LION_KERNELS)

#define NF4_KERNELS(T)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) quantize_nf4_##T(const T* src, u64 len, u8* dst, f32* absmax) {     \
        quantize(src, len, dst, absmax);                                                                                      \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                     \
        dequantize_nf4_##T(const u8* src, const f32* absmax, T* dst, u64 len) {                                               \
        dequantize(src, absmax, dst, len);                                                                                    \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                     \
        gemm_nf4_##T(const T* a, const u8* w, const f32* absmax, const u8* bytes, const f32* codes, const f32* offset,        \
                     const T* bias, T* dst, u64 m, u64 n, u64 k) {                                                            \
        gemm(a, w, absmax, bytes, codes, offset, bias, dst, m, n, k);                                                         \
    }
FOR_FLOATS(NF4_KERNELS)
