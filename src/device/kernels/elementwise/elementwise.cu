// Element by element. One kernel for each function: what its operands' types are is read at run time, uniformly for all
// threads, so that mixed types need no kernels of their own. Memory is read and written 16 bytes at once where addresses
// permit.

// Types of elements, in the order of `DType`.
enum Type : u32 { F32, F16, BF16, F64, I64, I32, U8 };

// Threads of a block, and elements of a thread: as many for every type.
constexpr u32 THREADS = 256;
constexpr u32 PER_THREAD = 16;

// Four f32 or up to eight 16-bit elements as they lie in memory. All loads of a thread are under way before the first
// element is converted.
struct Raw {
    u32 word[4];
};

// Whether N elements at `at` can be loaded or stored at once.
template <int N> __device__ __forceinline__ bool aligned(const void* base, u32 type, u64 at) {
    const u32 size = type == F32 ? 4 : 2;
    return ((u64(base) + at * size) & (N * size - 1)) == 0;
}

template <int N> __device__ __forceinline__ Raw load_raw(const void* from, u32 type, u64 at) {
    Raw raw;
    if (N == 8 || type == F32) {
        const u32* words = static_cast<const u32*>(from) + (N == 8 ? at / 2 : at);
        const Pack<u32, 4> pack = load<u32, 4>(words);
        for (int i = 0; i < 4; i++) raw.word[i] = pack.at[i];
    } else {
        const Pack<u32, 2> pack = load<u32, 2>(static_cast<const u32*>(from) + at / 2);
        raw.word[0] = pack.at[0];
        raw.word[1] = pack.at[1];
    }
    return raw;
}

template <int N> __device__ __forceinline__ void convert(const Raw& raw, u32 type, f32 (&x)[N]) {
    if (N == 4 && type == F32) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __uint_as_float(raw.word[i & 3]);
    } else if (type == F16) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = to_f32(f16{u16(raw.word[i / 2] >> (16 * (i & 1)))});
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = to_f32(bf16{u16(raw.word[i / 2] >> (16 * (i & 1)))});
    }
}

template <class T, int N> __device__ __forceinline__ void store_as(void* to, u64 at, const f32 (&x)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.at[i] = from_f32<T>(x[i]);
    store<T, N>(static_cast<T*>(to) + at, pack);
}

template <int N> __device__ __forceinline__ void store_all(void* to, u32 type, u64 at, const f32 (&x)[N]) {
    if constexpr (N == 4) {
        if (type == F32) return store_as<f32>(to, at, x);
    }
    if (type == F16) store_as<f16>(to, at, x);
    else store_as<bf16>(to, at, x);
}

__device__ __forceinline__ f32 load_one(const void* from, u32 type, u64 at) {
    if (type == F32) return static_cast<const f32*>(from)[at];
    if (type == F16) return to_f32(static_cast<const f16*>(from)[at]);
    return to_f32(static_cast<const bf16*>(from)[at]);
}

__device__ __forceinline__ void store_one(void* to, u32 type, u64 at, f32 x) {
    if (type == F32) static_cast<f32*>(to)[at] = x;
    else if (type == F16) static_cast<f16*>(to)[at] = from_f32<f16>(x);
    else static_cast<bf16*>(to)[at] = from_f32<bf16>(x);
}

// `dst[i] = f(src[i])`, N elements at once.
template <int N, class F>
__device__ __forceinline__ void map1(const void* src, u32 src_type, void* dst, u32 dst_type, u64 len, F f) {
    constexpr u32 ROUNDS = PER_THREAD / N;
    const u64 first = u64(blockIdx.x) * (THREADS * PER_THREAD) + threadIdx.x * N;
    const bool vectors = aligned<N>(src, src_type, 0) && aligned<N>(dst, dst_type, 0);
    Raw raw[ROUNDS];
#pragma unroll
    for (u32 round = 0; round < ROUNDS; round++) {
        const u64 at = first + round * (THREADS * N);
        if (vectors && at + N <= len) raw[round] = load_raw<N>(src, src_type, at);
    }
#pragma unroll
    for (u32 round = 0; round < ROUNDS; round++) {
        const u64 at = first + round * (THREADS * N);
        if (vectors && at + N <= len) {
            f32 x[N];
            convert(raw[round], src_type, x);
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = f(x[i]);
            store_all(dst, dst_type, at, x);
        } else {
#pragma unroll 1
            for (u64 i = at; i < min(at + N, len); i++) store_one(dst, dst_type, i, f(load_one(src, src_type, i)));
        }
    }
}

// `dst[i] = f(a[i], b[i % b_len])`, N elements at once.
template <int N, class F>
__device__ __forceinline__ void map2(const void* a, u32 a_type, const void* b, u32 b_type, u64 b_len, void* dst,
                                     u32 dst_type, u64 len, F f) {
    constexpr u32 ROUNDS = PER_THREAD / N;
    const u64 first = u64(blockIdx.x) * (THREADS * PER_THREAD) + threadIdx.x * N;
    const bool vectors = aligned<N>(a, a_type, 0) && aligned<N>(dst, dst_type, 0);
    const bool cyclic = b_len < len, narrow = len >> 32 == 0;
    Raw left[ROUNDS], right[ROUNDS];
    u64 b_at[ROUNDS];
    bool whole[ROUNDS];
#pragma unroll
    for (u32 round = 0; round < ROUNDS; round++) {
        const u64 at = first + round * (THREADS * N);
        b_at[round] = !cyclic ? at : narrow ? u32(at) % u32(b_len) : at % b_len;
        whole[round] = vectors && at + N <= len && b_at[round] + N <= b_len && aligned<N>(b, b_type, b_at[round]);
        if (whole[round]) {
            left[round] = load_raw<N>(a, a_type, at);
            // Where b is repeated this need not be a multiple of N: its address counts.
            right[round] = load_raw<N>(static_cast<const u8*>(b) + b_at[round] * (b_type == F32 ? 4 : 2), b_type, 0);
        }
    }
#pragma unroll
    for (u32 round = 0; round < ROUNDS; round++) {
        const u64 at = first + round * (THREADS * N);
        if (whole[round]) {
            f32 x[N], y[N];
            convert(left[round], a_type, x);
            convert(right[round], b_type, y);
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = f(x[i], y[i]);
            store_all(dst, dst_type, at, x);
        } else {
            u64 other = b_at[round];
#pragma unroll 1
            for (u64 i = at; i < min(at + N, len); i++) {
                store_one(dst, dst_type, i, f(load_one(a, a_type, i), load_one(b, b_type, other)));
                other = other + 1 == b_len ? 0 : other + 1;
            }
        }
    }
}

__device__ __forceinline__ f32 silu_slope(f32 x) {
    const f32 sigmoid = 1.f / (1.f + expf(-x));
    return sigmoid * (1.f + x * (1.f - sigmoid));
}

// A kernel of one operand: `x` is its element, `p` a number.
#define UNARY(NAME, RESULT)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        NAME(const void* src, u32 src_type, void* dst, u32 dst_type, u64 len, f32 p) {                               \
        const auto f = [=](f32 x) { return RESULT; };                                                                \
        if (src_type == F32 || dst_type == F32) map1<4>(src, src_type, dst, dst_type, len, f);                       \
        else map1<8>(src, src_type, dst, dst_type, len, f);                                                          \
    }

// A kernel of two operands: `x` and `y` are their elements, `p` a number.
#define BINARY(NAME, RESULT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        NAME(const void* a, u32 a_type, const void* b, u32 b_type, u64 b_len, void* dst, u32 dst_type, u64 len,      \
             f32 p) {                                                                                                \
        const auto f = [=](f32 x, f32 y) { return RESULT; };                                                         \
        if (a_type == F32 || b_type == F32 || dst_type == F32)                                                       \
            map2<4>(a, a_type, b, b_type, b_len, dst, dst_type, len, f);                                             \
        else map2<8>(a, a_type, b, b_type, b_len, dst, dst_type, len, f);                                            \
    }

UNARY(cast, x)
UNARY(scale, p * x)
UNARY(add_scalar, x + p)
UNARY(relu, x < 0.f ? 0.f : x) // NaN stays
UNARY(leaky_relu, x * (x > 0.f ? 1.f : p))
UNARY(at_most, x > p ? p : x) // NaN stays
UNARY(tanh_of, tanhf(x))
UNARY(silu, x / (1.f + expf(-x)))
UNARY(sigmoid, 1.f / (1.f + expf(-x)))
UNARY(rsqrt_of, 1.f / sqrtf(x))
UNARY(gelu_erf, 0.5f * x * (1.f + erff(x * SQRT_HALF)))
UNARY(gelu_tanh, x * gelu_gate(x))

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(divide, x / y)
BINARY(relu_backward, x > 0.f ? y : 0.f)
BINARY(leaky_relu_backward, y * (x > 0.f ? 1.f : p))
BINARY(at_most_backward, x <= p ? y : 0.f)
BINARY(tanh_backward, y * (1.f - x * x))
BINARY(sigmoid_backward, y * x * (1.f - x))
BINARY(silu_backward, y * silu_slope(x))
BINARY(gated_silu, x / (1.f + expf(-x)) * y)
BINARY(gelu_erf_backward, y * gelu_erf_slope(x))
BINARY(gelu_tanh_backward, y * gelu_tanh_slope(x))

// The gradients of `silu(gate) · up`, N elements at once.
template <int N>
__device__ __forceinline__ void gated_silu_gradients(const void* grad, u32 grad_type, const void* gate, u32 gate_type,
                                                     const void* up, u32 up_type, void* dgate, u32 dgate_type,
                                                     void* dup, u32 dup_type, u64 len) {
    const u64 at = thread_index() * N;
    const bool vectors = aligned<N>(grad, grad_type, 0) && aligned<N>(gate, gate_type, 0) && aligned<N>(up, up_type, 0)
        && aligned<N>(dgate, dgate_type, 0) && aligned<N>(dup, dup_type, 0);
    if (vectors && at + N <= len) {
        const Raw raw[3] = {load_raw<N>(grad, grad_type, at), load_raw<N>(gate, gate_type, at), load_raw<N>(up, up_type, at)};
        f32 g[N], x[N], y[N];
        convert(raw[0], grad_type, g);
        convert(raw[1], gate_type, x);
        convert(raw[2], up_type, y);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 slope = silu_slope(x[i]), value = x[i] / (1.f + expf(-x[i]));
            y[i] *= g[i] * slope;
            x[i] = g[i] * value;
        }
        store_all(dgate, dgate_type, at, y);
        store_all(dup, dup_type, at, x);
        return;
    }
    for (u64 i = at; i < min(at + N, len); i++) {
        const f32 g = load_one(grad, grad_type, i), x = load_one(gate, gate_type, i), y = load_one(up, up_type, i);
        store_one(dgate, dgate_type, i, g * y * silu_slope(x));
        store_one(dup, dup_type, i, g * (x / (1.f + expf(-x))));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gated_silu_backward(const void* grad, u32 grad_type, const void* gate, u32 gate_type, const void* up, u32 up_type,
                        void* dgate, u32 dgate_type, void* dup, u32 dup_type, u64 len) {
    if (grad_type == F32 || gate_type == F32 || up_type == F32 || dgate_type == F32 || dup_type == F32)
        gated_silu_gradients<4>(
            grad, grad_type, gate, gate_type, up, up_type, dgate, dgate_type, dup, dup_type, len);
    else
        gated_silu_gradients<8>(
            grad, grad_type, gate, gate_type, up, up_type, dgate, dgate_type, dup, dup_type, len);
}

// Rows of `cols` elements, each times a factor of its own.
extern "C" __global__ void __launch_bounds__(THREADS)
    mul_rows(const void* a, u32 a_type, const void* b, u32 b_type, u64 cols, void* dst, u32 dst_type, u64 len) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        store_one(dst, dst_type, i, load_one(a, a_type, i) * load_one(b, b_type, i / cols));
    }
}

// What stays of `src`, times a factor: elements whose draw is below the threshold become 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    dropout(const void* src, u32 src_type, void* dst, u32 dst_type, u64 len, u64 seed, u64 threshold, f32 factor) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const f32 x = load_one(src, src_type, i);
        store_one(dst, dst_type, i, draw(seed, i) < threshold ? 0.f : factor * x);
    }
}

// Rows of `cols` zeros but for a diagonal of ones.
extern "C" __global__ void __launch_bounds__(THREADS) identity(void* dst, u32 dst_type, u64 cols, u64 len) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        store_one(dst, dst_type, i, i / cols == i % cols ? 1.f : 0.f);
    }
}

// Repeats eight bytes over all of `dst`, whose elements' size divides eight.
extern "C" __global__ void __launch_bounds__(THREADS) fill(u8* dst, u64 bytes, u64 pattern) {
    const u64 thread = thread_index(), head = min(bytes, (16 - (u64(dst) & 15)) & 15);
    const u64 vectors = (bytes - head) / 16;
    Pack<u64, 2>* middle = reinterpret_cast<Pack<u64, 2>*>(dst + head);
    for (u64 i = thread; i < vectors; i += thread_count()) middle[i] = {pattern, pattern};
    u8* tail = dst + head + 16 * vectors;
    if (thread < head) dst[thread] = u8(pattern >> (8 * (u64(dst + thread) & 7)));
    if (thread < u64(dst + bytes - tail)) tail[thread] = u8(pattern >> (8 * (u64(tail + thread) & 7)));
}

__device__ __forceinline__ double load_exact(const void* from, u32 type, u64 at) {
    switch (type) {
        case F64: return static_cast<const double*>(from)[at];
        case I64: return double(static_cast<const i64*>(from)[at]);
        case I32: return double(static_cast<const i32*>(from)[at]);
        case U8: return double(static_cast<const u8*>(from)[at]);
        default: return load_one(from, type, at);
    }
}

// Integers are cut off, clamped to their range, and 0 for NaN.
__device__ __forceinline__ void store_exact(void* to, u32 type, u64 at, double x) {
    switch (type) {
        case F64: static_cast<double*>(to)[at] = x; break;
        case I64: static_cast<i64*>(to)[at] = x != x ? 0 : __double2ll_rz(x); break;
        case I32: static_cast<i32*>(to)[at] = x != x ? 0 : __double2int_rz(x); break;
        case U8: static_cast<u8*>(to)[at] = x != x ? u8(0) : u8(__double2int_rz(fmin(fmax(x, 0.0), 255.0))); break;
        default: store_one(to, type, at, f32(x));
    }
}

// `dst[i] = src[i] + value` where one of them is no float of 32 or 16 bits.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_exact(const void* src, u32 src_type, void* dst, u32 dst_type, u64 len, double value) {
    for (u64 i = thread_index(); i < len; i += thread_count())
        store_exact(dst, dst_type, i, load_exact(src, src_type, i) + value);
}

// `dst[i] = i`.
extern "C" __global__ void __launch_bounds__(THREADS) arange(void* dst, u32 dst_type, u64 len) {
    for (u64 i = thread_index(); i < len; i += thread_count()) store_exact(dst, dst_type, i, double(i));
}
