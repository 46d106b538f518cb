// Cross-entropy of logits in one pass, and its gradient in their place. A block for each row.

constexpr i64 IGNORED = -100;

// Calls `body(first column, values, number)` for the row's pieces that are this thread's: vectors where rows begin at
// multiples of 16 bytes, else single elements.
template <class T, bool ALIGNED, class Body> __device__ __forceinline__ void for_pieces(u32 cols, Body body) {
    constexpr u32 N = ALIGNED ? WIDE<T> : 1;
    const u32 whole = cols / N * N;
    for (u32 i = threadIdx.x * N; i < whole; i += blockDim.x * N) body(i, Pack<T, N>());
    for (u32 i = whole + threadIdx.x; i < cols; i += blockDim.x) body(i, Pack<T, 1>());
}

// The logarithm of the sum of exponentials of each row, and the row's loss and whether it counts.
template <class T, bool ALIGNED>
__device__ void cross_entropy(const T* logits, const i64* targets, f32* logsumexp, f32* losses, u32 cols, u64 stride) {
    const u64 row = blockIdx.x;
    const T* x = logits + row * stride;
    f32 max = -INFINITE, sum = 0.f;
    for_pieces<T, ALIGNED>(cols, [&](u32 start, auto shape) {
        const auto piece = load<T, sizeof(shape) / sizeof(T)>(x + start);
        constexpr int N = sizeof(shape) / sizeof(T);
        f32 top = -INFINITE;
#pragma unroll
        for (int i = 0; i < N; i++) top = fmaxf(top, to_f32(piece.at[i]));
        if (top > max) {
            sum *= expf(max - top);
            max = top;
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            // Of a column of nothing but -inf so far, nothing is to be added; NaN must pass.
            const f32 value = to_f32(piece.at[i]);
            sum += value == -INFINITE ? 0.f : expf(value - max);
        }
    });
    const f32 all = block_reduce<Max>(max);
    sum = block_reduce<Sum>(max == -INFINITE ? sum : sum * expf(max - all));
    if (threadIdx.x == 0) {
        const f32 total = all + logf(sum);
        const i64 target = targets[row];
        const bool counts = target != IGNORED;
        logsumexp[row] = total;
        losses[2 * row] = counts ? total - to_f32(x[target]) : 0.f;
        losses[2 * row + 1] = counts ? 1.f : 0.f;
    }
}

// The mean of all rows' losses, by one block.
extern "C" __global__ void cross_entropy_mean(const f32* losses, u64 rows, f32* loss, f32* total_weight) {
    f32 sum = 0.f, count = 0.f;
    for (u64 row = threadIdx.x; row < rows; row += blockDim.x) {
        sum += losses[2 * row];
        count += losses[2 * row + 1];
    }
    sum = block_reduce<Sum>(sum);
    count = block_reduce<Sum>(count);
    if (threadIdx.x == 0) {
        *loss = sum / count;
        *total_weight = count;
    }
}

template <class T, bool ALIGNED>
__device__ void cross_entropy_backward(T* logits, const i64* targets, const f32* logsumexp, const f32* grad,
                                       const f32* total_weight, u32 cols, u64 stride) {
    const u64 row = blockIdx.x;
    T* x = logits + row * stride;
    const i64 target = targets[row];
    const f32 shift = logsumexp[row], share = target == IGNORED ? 0.f : *grad / *total_weight;
    for_pieces<T, ALIGNED>(cols, [&](u32 start, auto shape) {
        constexpr int N = sizeof(shape) / sizeof(T);
        auto piece = load<T, N>(x + start);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 hit = i64(start + i) == target ? 1.f : 0.f;
            const f32 value = target == IGNORED ? 0.f : (expf(to_f32(piece.at[i]) - shift) - hit) * share;
            piece.at[i] = from_f32<T>(value);
        }
        store<T, N>(x + start, piece);
    });
    for (u64 i = cols + threadIdx.x; i < stride; i += blockDim.x) x[i] = from_f32<T>(0.f);
}

#define CROSS_ENTROPY(T)                                                                                             \
    extern "C" __global__ void cross_entropy_##T(const T* logits, const i64* targets, f32* logsumexp, f32* losses,   \
                                                 u32 cols, u64 stride) {                                             \
        cross_entropy<T, false>(logits, targets, logsumexp, losses, cols, stride);                                   \
    }                                                                                                                \
    extern "C" __global__ void cross_entropy_aligned_##T(const T* logits, const i64* targets, f32* logsumexp,        \
                                                         f32* losses, u32 cols, u64 stride) {                        \
        cross_entropy<T, true>(logits, targets, logsumexp, losses, cols, stride);                                    \
    }                                                                                                                \
    extern "C" __global__ void cross_entropy_backward_##T(T* logits, const i64* targets, const f32* logsumexp,       \
                                                          const f32* grad, const f32* total_weight, u32 cols,        \
                                                          u64 stride) {                                              \
        cross_entropy_backward<T, false>(logits, targets, logsumexp, grad, total_weight, cols, stride);              \
    }                                                                                                                \
    extern "C" __global__ void cross_entropy_backward_aligned_##T(                                                   \
        T* logits, const i64* targets, const f32* logsumexp, const f32* grad, const f32* total_weight, u32 cols,     \
        u64 stride) {                                                                                                \
        cross_entropy_backward<T, true>(logits, targets, logsumexp, grad, total_weight, cols, stride);               \
    }
FOR_FLOATS(CROSS_ENTROPY)
