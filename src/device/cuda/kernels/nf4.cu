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
