// Goes in front of every unit: types, conversions, vectors, reductions. Self-contained: NVRTC comes without headers.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

#define INFINITE __int_as_float(0x7f800000)

__device__ __forceinline__ f32 to_f32(f32 x) { return x; }
__device__ __forceinline__ f32 to_f32(f16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ f32 to_f32(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

// Rounds to nearest, ties to even, as PyTorch does.
template <class T> __device__ __forceinline__ T from_f32(f32 x);
template <> __device__ __forceinline__ f32 from_f32<f32>(f32 x) { return x; }
template <> __device__ __forceinline__ f16 from_f32<f16>(f32 x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <> __device__ __forceinline__ bf16 from_f32<bf16>(f32 x) {
    bf16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    u32 bits = __float_as_uint(x);
    y.bits = x != x ? u16(0x7fff) : u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
    return y;
}

// N elements that are read and written at once; 16 bytes at most.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

// Elements of T in 16 bytes.
template <class T> constexpr int WIDE = 16 / int(sizeof(T));

template <class T, int N> __device__ __forceinline__ Pack<T, N> load(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N> __device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// N elements as f32, 16 bytes at a time: the address is a multiple of 16 or of all N elements.
template <int N, class T> __device__ __forceinline__ void load_f32(const T* from, f32 (&x)[N]) {
    constexpr int EACH = N < WIDE<T> ? N : WIDE<T>;
#pragma unroll
    for (int first = 0; first < N; first += EACH) {
        const Pack<T, EACH> pack = load<T, EACH>(from + first);
#pragma unroll
        for (int i = 0; i < EACH; i++) x[first + i] = to_f32(pack.at[i]);
    }
}
template <int N, class T> __device__ __forceinline__ void store_f32(T* to, const f32 (&x)[N]) {
    constexpr int EACH = N < WIDE<T> ? N : WIDE<T>;
#pragma unroll
    for (int first = 0; first < N; first += EACH) {
        Pack<T, EACH> pack;
#pragma unroll
        for (int i = 0; i < EACH; i++) pack.at[i] = from_f32<T>(x[first + i]);
        store(to + first, pack);
    }
}

// This thread's place among all of a one-dimensional grid, and their number.
__device__ __forceinline__ u64 thread_index() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 thread_count() { return u64(gridDim.x) * blockDim.x; }

// SplitMix64 of an element behind the call's seed: the upper 53 bits.
__device__ __forceinline__ u64 draw(u64 seed, u64 index) {
    u64 x = seed + index + 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return (x ^ (x >> 31)) >> 11;
}

struct Sum {
    static __device__ __forceinline__ f32 zero() { return 0.f; }
    __device__ __forceinline__ f32 operator()(f32 a, f32 b) const { return a + b; }
};
struct Max {
    static __device__ __forceinline__ f32 zero() { return -INFINITE; }
    // NaN wins, as in PyTorch.
    __device__ __forceinline__ f32 operator()(f32 a, f32 b) const { return a != a || a > b ? a : b; }
};

// The reduction of `x` over a warp, in every lane. The order is fixed, so that equal inputs give equal bits.
template <class Op> __device__ __forceinline__ f32 warp_reduce(f32 x) {
#pragma unroll
    for (int lane = 16; lane > 0; lane >>= 1) x = Op()(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

// The reduction of `x` over a block of whole warps (1024 threads at most), in every thread. All threads must call it.
template <class Op> __device__ __forceinline__ f32 block_reduce(f32 x) {
    __shared__ f32 partial[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_reduce<Op>(x);
    __syncthreads();
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    x = lane < warps ? partial[lane] : Op::zero();
    return warp_reduce<Op>(x);
}

// Kernels are templates; what is launched is named "kernel_dtype" or "kernel_dtype_dtype", without mangling.
#define FOR_FLOATS(INSTANCE) INSTANCE(f32) INSTANCE(f16) INSTANCE(bf16)
#define FOR_FLOAT_PAIRS(INSTANCE) \
    INSTANCE(f32, f32) INSTANCE(f32, f16) INSTANCE(f32, bf16) \
    INSTANCE(f16, f32) INSTANCE(f16, f16) INSTANCE(f16, bf16) \
    INSTANCE(bf16, f32) INSTANCE(bf16, f16) INSTANCE(bf16, bf16)
