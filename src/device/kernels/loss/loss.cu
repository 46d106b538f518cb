// Losses, which are means over rows or elements, and their gradients.

constexpr u32 THREADS = 256;
// Rows or elements of a thread whose loads are under way at once.
constexpr u32 UNROLL = 4;
// Targets of rows that do not count.
constexpr i64 IGNORED = -100;

// Writes the mean of `count` terms; `weight` may be missing.
template <class D> __device__ __forceinline__ void write_mean(f32 sum, f32 count, D* loss, D* weight) {
    if (threadIdx.x != 0) return;
    *loss = from_f32<D>(sum / count);
    if (weight) *weight = from_f32<D>(count);
}

// Sums over a block: the mean itself if there is only one, else a share for `mean_of_shares`.
template <class D>
__device__ __forceinline__ void finish(f32 sum, f32 count, f32* shares, D* loss, D* weight) {
    sum = block_reduce<Sum>(sum);
    count = block_reduce<Sum>(count);
    if (gridDim.x == 1) {
        write_mean(sum, count, loss, weight);
    } else if (threadIdx.x == 0) {
        shares[blockIdx.x] = sum;
        shares[gridDim.x + blockIdx.x] = count;
    }
}

// One block puts the shares of `blocks` others together, in their order.
template <class D> __device__ __forceinline__ void mean_of_shares(const f32* shares, u32 blocks, D* loss, D* weight) {
    f32 sum = 0.f, count = 0.f;
    for (u32 i = threadIdx.x; i < blocks; i += THREADS) {
        sum += shares[i];
        count += shares[blocks + i];
    }
    sum = block_reduce<Sum>(sum);
    write_mean(sum, block_reduce<Sum>(count), loss, weight);
}

// The mean of `−logp[r, targets[r]]`. A target that is no class makes it NaN.
template <class T, class D>
__device__ __forceinline__ void nll_loss(const T* logp, const i64* targets, f32* shares, D* loss, D* weight, u64 rows,
                                         u64 cols) {
    f32 sum = 0.f, count = 0.f;
    for (u64 row = thread_index(); row < rows; row += UNROLL * thread_count()) {
        i64 target[UNROLL];
        f32 term[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            const u64 r = row + i * thread_count();
            target[i] = r < rows ? targets[r] : IGNORED;
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            const bool inside = target[i] >= 0 && u64(target[i]) < cols;
            term[i] = target[i] == IGNORED ? 0.f : __int_as_float(0x7fc00000);
            if (inside) term[i] = to_f32(logp[(row + i * thread_count()) * cols + target[i]]);
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            sum -= term[i];
            count += target[i] == IGNORED ? 0.f : 1.f;
        }
    }
    finish(sum, count, shares, loss, weight);
}

// `dst[r, targets[r]] = −grad / weight`, zeros elsewhere: 16 bytes at once.
template <class T, class G>
__device__ __forceinline__ void nll_loss_backward(const G* grad, const i64* targets, const G* weight, T* dst, u64 len,
                                                  u64 cols) {
    constexpr int N = WIDE<T>;
    const f32 slope = -to_f32(*grad) / to_f32(*weight);
    const bool aligned = (u64(dst) & 15) == 0, narrow = len >> 32 == 0;
    u64 at = u64(blockIdx.x) * (THREADS * UNROLL * N) + threadIdx.x * N;
#pragma unroll
    for (u32 round = 0; round < UNROLL; round++, at += THREADS * N) {
        if (at >= len) return;
        u64 row = narrow ? u32(at) / u32(cols) : at / cols;
        const u64 column = at - row * cols;
        // Where in the pack this row's target lies, if it does, and where the row ends.
        const u64 place = u64(targets[row]) - column, end = cols - column;
        Pack<T, N> pack;
#pragma unroll
        for (int j = 0; j < N; j++) pack.at[j] = from_f32<T>(j == place ? slope : 0.f);
        if (end < N) {
            u64 next = cols;
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (j < end || at + j >= len) continue;
                if (next == cols) {
                    row += 1;
                    next = 0;
                }
                pack.at[j] = from_f32<T>(next == u64(targets[row]) ? slope : 0.f);
                next += 1;
            }
        }
        if (aligned && at + N <= len) {
            store<T, N>(dst + at, pack);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (at + j < len) dst[at + j] = pack.at[j];
            }
        }
    }
}

// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)): nothing overflows.
__device__ __forceinline__ f32 cross_entropy(f32 x, f32 t) {
    return (1.f - t) * x + fmaxf(-x, 0.f) + log1pf(expf(-fabsf(x)));
}

template <class T, class U>
__device__ __forceinline__ void bce(const T* logits, const U* targets, f32* shares, T* loss, u64 len) {
    f32 sum = 0.f, count = 0.f;
#pragma unroll 4
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        sum += cross_entropy(to_f32(logits[i]), to_f32(targets[i]));
        count += 1.f;
    }
    finish(sum, count, shares, loss, static_cast<T*>(nullptr));
}

// `dst = grad · (σ(logits) − targets) / len`; dst may be one of the sources.
template <class T, class U>
__device__ __forceinline__ void bce_backward(const T* grad, const T* logits, const U* targets, T* dst, u64 len) {
    const f32 share = to_f32(*grad) / f32(len);
    const u64 first = u64(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
    f32 x[UNROLL], t[UNROLL];
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        const u64 at = first + i * THREADS;
        x[i] = at < len ? to_f32(logits[at]) : 0.f;
        t[i] = at < len ? to_f32(targets[at]) : 0.f;
    }
#pragma unroll
    for (u32 i = 0; i < UNROLL; i++) {
        const u64 at = first + i * THREADS;
        if (at < len) dst[at] = from_f32<T>((1.f / (1.f + expf(-x[i])) - t[i]) * share);
    }
}

#define MEAN_OF_SHARES(D)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        mean_of_shares_##D(const f32* shares, D* loss, D* weight, u32 blocks) {                                      \
        mean_of_shares(shares, blocks, loss, weight);                                                                \
    }
FOR_FLOATS(MEAN_OF_SHARES)

#define LOSSES(T, U)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        nll_loss_##T##_##U(const T* logp, const i64* targets, f32* shares, U* loss, U* weight, u64 rows, u64 cols) { \
        nll_loss(logp, targets, shares, loss, weight, rows, cols);                                                   \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        nll_loss_backward_##T##_##U(const U* grad, const i64* targets, const U* weight, T* dst, u64 len, u64 cols) { \
        nll_loss_backward(grad, targets, weight, dst, len, cols);                                                    \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        bce_##T##_##U(const T* logits, const U* targets, f32* shares, T* loss, u64 len) {                            \
        bce(logits, targets, shares, loss, len);                                                                     \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                            \
        bce_backward_##T##_##U(const T* grad, const T* logits, const U* targets, T* dst, u64 len) {                  \
        bce_backward(grad, logits, targets, dst, len);                                                               \
    }
FOR_FLOAT_PAIRS(LOSSES)
