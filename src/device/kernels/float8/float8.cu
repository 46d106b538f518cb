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

// The largest magnitude of each row: a block has one.
template <class T> __device__ __forceinline__ void abs_max_rows(const T* src, u64 cols, T* dst) {
    const T* row = src + blockIdx.x * cols;
    f32 most = 0.f;
    for (u64 i = threadIdx.x; i < cols; i += blockDim.x) most = Max()(most, fabsf(to_f32(row[i])));
    most = block_reduce<Max>(most);
    if (threadIdx.x == 0) dst[blockIdx.x] = from_f32<T>(most);
}

// The largest magnitude of each column: a block has 32, of which every warp reads each 32nd row.
template <class T> __device__ __forceinline__ void abs_max_columns(const T* src, u64 rows, u64 cols, T* dst) {
    __shared__ f32 found[32][33];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 first = u64(blockIdx.x) * 32, column = first + lane;
    f32 most = 0.f;
    if (column < cols) {
        for (u64 row = warp; row < rows; row += 32) most = Max()(most, fabsf(to_f32(src[row * cols + column])));
    }
    found[warp][lane] = most;
    __syncthreads();
    // From here on a warp has a column.
    most = warp_reduce<Max>(found[lane][warp]);
    if (lane == 0 && first + warp < cols) dst[first + warp] = from_f32<T>(most);
}

#define ABS_MAX_GROUPS(T) \
    extern "C" __global__ void abs_max_rows_##T(const T* src, u64 rows, u64 cols, T* dst) { \
        abs_max_rows(src, cols, dst); \
    } \
    extern "C" __global__ void abs_max_columns_##T(const T* src, u64 rows, u64 cols, T* dst) { \
        abs_max_columns(src, rows, cols, dst); \
    }
FOR_FLOATS(ABS_MAX_GROUPS)

// PyTorch has no number over a tensor: it multiplies by the reciprocal. NaN stays.
__device__ __forceinline__ f32 scale_of(f32 amax, double most) {
    const double x = double(amax);
    return f32((1.0 / (x < 1e-12 ? 1e-12 : x)) * most);
}

#define FLOAT8_SCALE(T) \
    extern "C" __global__ void float8_scale_##T(const T* amax, f32* dst, double most) { \
        *dst = scale_of(to_f32(*amax), most); \
    } \
    extern "C" __global__ void float8_power_##T(const T* amax, f32* dst, double most, u64 len) { \
        const u64 i = thread_index(); \
        if (i >= len) return; \
        const f32 whole = floorf(log2f(scale_of(to_f32(amax[i]), most))); \
        dst[i] = whole != whole ? whole : scalbnf(1.f, int(whole)); \
    }
FOR_FLOATS(FLOAT8_SCALE)

// Where element `i` has its scale: they have one together, or rows of `cols` or their columns have each their own.
struct OfAll {
    __device__ __forceinline__ u64 operator()(u64) const { return 0; }
};
struct OfRow {
    u64 cols;
    __device__ __forceinline__ u64 operator()(u64 i) const { return (i | cols) >> 32 ? i / cols : u32(i) / u32(cols); }
};
struct OfColumn {
    u64 cols;
    __device__ __forceinline__ u64 operator()(u64 i) const { return (i | cols) >> 32 ? i % cols : u32(i) % u32(cols); }
};

template <class T, class Round, class Place = OfAll>
__device__ __forceinline__ void quantize(const T* src, const f32* scale, u8* dst, u64 len, f32 most, Round round,
                                         Place place = Place()) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        const f32 x = __fmul_rn(to_f32(src[i]), scale[place(i)]);
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

// Recipes with a scale for each row or column round to e4m3 alone.
#define QUANTIZE_GROUPS(T) \
    extern "C" __global__ void quantize_float8_rows_##T##_e4m3(const T* src, const f32* scale, u8* dst, u64 len, \
                                                               u64 cols) { \
        quantize(src, scale, dst, len, 448.f, to_e4m3, OfRow{cols}); \
    } \
    extern "C" __global__ void quantize_float8_columns_##T##_e4m3(const T* src, const f32* scale, u8* dst, u64 len, \
                                                                  u64 cols) { \
        quantize(src, scale, dst, len, 448.f, to_e4m3, OfColumn{cols}); \
    }
FOR_FLOATS(QUANTIZE_GROUPS)

// Multiplies a product, whose rows begin `stride` elements apart, by a factor for each row and one for each column.
#define SCALE_PRODUCT(T) \
    extern "C" __global__ void scale_product_##T(T* c, u64 stride, const f32* of_rows, const f32* of_columns, u64 cols, \
                                                 u64 len) { \
        for (u64 i = thread_index(); i < len; i += thread_count()) { \
            const u64 row = OfRow{cols}(i), column = i - row * cols; \
            T* at = c + row * stride + column; \
            *at = from_f32<T>(to_f32(*at) * (of_rows[row] * of_columns[column])); \
        } \
    }
FOR_FLOATS(SCALE_PRODUCT)
