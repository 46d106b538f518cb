// 8-bit floats as PyTorch rounds them: e4m3fn has three bits of mantissa and no infinity, e5m2 two and one.

// The bits of a magnitude below the first value that is not there, of two as near the even one.
template <u32 MANTISSA, u32 BIAS> __device__ __forceinline__ u32 rounded(u32 bits) {
    constexpr u32 DROPPED = 23 - MANTISSA;
    if (bits < (128 - BIAS) << 23) {
        // Below the smallest normal value: a sum whose last bit is that of the result.
        constexpr u32 LAST = (128 - BIAS + DROPPED) << 23;
        return __float_as_uint(__fadd_rn(__uint_as_float(bits), __uint_as_float(LAST))) - LAST;
    }
    return (bits - ((127 - BIAS) << 23) + (1u << (DROPPED - 1)) - 1 + ((bits >> DROPPED) & 1)) >> DROPPED;
}

__device__ __forceinline__ u8 to_e4m3(f32 x) {
    const u32 all = __float_as_uint(x), bits = all & 0x7fffffff;
    return u8((all >> 24 & 0x80) | (bits >= 1087u << 20 ? 0x7f : rounded<3, 7>(bits)));
}

__device__ __forceinline__ u8 to_e5m2(f32 x) {
    const u32 all = __float_as_uint(x), bits = all & 0x7fffffff;
    const u32 magnitude = bits > 0x7f800000 ? 0x7f : bits >= 0x47800000 ? 0x7c : rounded<2, 15>(bits);
    return u8((all >> 24 & 0x80) | magnitude);
}

// The largest magnitude of a grid's share for each block: partial results, or the result where there is one block.
template <class S, class D> __device__ __forceinline__ void abs_max(const S* src, u64 len, D* dst) {
    f32 most = 0.f;
    for (u64 i = thread_index(); i < len; i += thread_count()) most = Max()(most, fabsf(to_f32(src[i])));
    most = block_reduce<Max>(most);
    if (threadIdx.x == 0) dst[blockIdx.x] = from_f32<D>(most);
}

#define ABS_MAX(S, D) \
    extern "C" __global__ void abs_max_##S##_##D(const S* src, u64 len, D* dst) { abs_max<S, D>(src, len, dst); }
FOR_FLOAT_PAIRS(ABS_MAX)

// PyTorch has no number over a tensor: it multiplies by the reciprocal. NaN stays.
#define FLOAT8_SCALE(T) \
    extern "C" __global__ void float8_scale_##T(const T* amax, f32* dst, double most) { \
        const double x = double(to_f32(*amax)); \
        *dst = f32((1.0 / (x < 1e-12 ? 1e-12 : x)) * most); \
    }
FOR_FLOATS(FLOAT8_SCALE)

template <class T, class Round>
__device__ __forceinline__ void quantize(const T* src, const f32* scale, u8* dst, u64 len, f32 most, Round round) {
    const f32 factor = *scale;
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const f32 x = __fmul_rn(to_f32(src[i]), factor);
        dst[i] = round(x < -most ? -most : x > most ? most : x);
    }
}

#define QUANTIZE(T) \
    extern "C" __global__ void quantize_float8_##T##_e4m3(const T* src, const f32* scale, u8* dst, u64 len) { \
        quantize(src, scale, dst, len, 448.f, to_e4m3); \
    } \
    extern "C" __global__ void quantize_float8_##T##_e5m2(const T* src, const f32* scale, u8* dst, u64 len) { \
        quantize(src, scale, dst, len, 57344.f, to_e5m2); \
    }
FOR_FLOATS(QUANTIZE)
