// What the kernels of layer normalisation have in common.

// The sum over a warp or a block, in every thread of it.
template <bool BLOCK> __device__ __forceinline__ f32 sum_over(f32 x) {
    if constexpr (BLOCK) {
        return block_reduce<Sum>(x);
    } else {
        return warp_reduce<Sum>(x);
    }
}

// The place of this thread among those that share a row, and their number.
template <bool BLOCK> __device__ __forceinline__ u32 lane() { return BLOCK ? threadIdx.x : threadIdx.x % 32; }
template <bool BLOCK> __device__ __forceinline__ u32 lanes() { return BLOCK ? blockDim.x : 32; }

// The sums of 32 columns of a block of 32 warps: warp w returns that of column w. Thread t brings a part of column
// t % 32.
__device__ f32 sum_columns(f32 part) {
    __shared__ f32 tile[32][33];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    tile[warp][lane] = part;
    __syncthreads();
    return warp_reduce<Sum>(tile[lane][warp]);
}

extern __shared__ __align__(16) f32 dynamic[];

// Writes what the threads of a block have summed for the gradients of weight and bias to its part of `partial`: of the
// weight, then of the bias.
template <int K, int N, bool BLOCK>
__device__ __forceinline__ void keep_sums(f32 (&dweight)[K][N], f32 (&dbias)[K][N], f32* partial, u32 cols) {
    const u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
    partial += u64(blockIdx.x) * 2 * cols;
    if constexpr (BLOCK) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
            if (col >= cols) continue;
            store_f32(partial + col, dweight[k]);
            store_f32(partial + cols + col, dbias[k]);
        }
    } else {
        // One warp after the other adds its sums.
        for (u32 turn = 0; turn < warps; turn++) {
            __syncthreads();
            if (warp != turn) continue;
#pragma unroll
            for (int k = 0; k < K; k++) {
                const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
                if (col >= cols) continue;
                if (turn > 0) {
                    f32 w[N], b[N];
                    load_f32(dynamic + col, w);
                    load_f32(dynamic + cols + col, b);
#pragma unroll
                    for (int i = 0; i < N; i++) {
                        dweight[k][i] += w[i];
                        dbias[k][i] += b[i];
                    }
                }
                store_f32(dynamic + col, dweight[k]);
                store_f32(dynamic + cols + col, dbias[k]);
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < 2 * cols; i += blockDim.x) partial[i] = dynamic[i];
    }
}

// A vector of weights or biases from a column on: where a norm has none, all are the same.
template <int N, class W>
__device__ __forceinline__ void load_or(const W* from, u32 col, f32 otherwise, f32 (&x)[N]) {
    if (from) {
        load_f32(from + col, x);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = otherwise;
    }
}

// Takes K vectors of a row and the gradients of what it became: `x` is normalised, `g` multiplied by the weight, and the
// gradients of weight and bias get their shares. Adds this thread's sums of g and of g · x to the last two.
template <bool BLOCK, int K, int N, class W>
__device__ __forceinline__ void weigh(
    f32 (&x)[K][N], f32 (&g)[K][N], const W* weight, f32 mean, f32 rstd, u32 cols, f32 (&dweight)[K][N],
    f32 (&dbias)[K][N], f32& of_grad, f32& of_both) {
#pragma unroll
    for (int k = 0; k < K; k++) {
        const u32 col = (lane<BLOCK>() + k * lanes<BLOCK>()) * N;
        if (col >= cols) continue;
        f32 w[N];
        load_or(weight, col, 1.f, w);
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[k][i] = (x[k][i] - mean) * rstd;
            dweight[k][i] += g[k][i] * x[k][i];
            dbias[k][i] += g[k][i];
            g[k][i] *= w[i];
            of_grad += g[k][i];
            of_both += g[k][i] * x[k][i];
        }
    }
}

// What `each` rows from blockIdx.y · each on give to the gradients of weight and bias, for rows of any length and place;
// `gradient` tells that of the result at an element.
template <class T, class G>
__device__ __forceinline__ void columns_any(
    const G& gradient, const T* src, const f32* means, const f32* rstds, f32* partial, u64 rows, u64 each, u32 cols) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, col = blockIdx.x * 32 + lane;
    const u64 begin = blockIdx.y * each, end = begin + each < rows ? begin + each : rows;
    f32 dweight = 0.f, dbias = 0.f;
    if (col < cols) {
        for (u64 row = begin + warp; row < end; row += 32) {
            const f32 g = gradient(row * cols + col);
            dweight += g * (to_f32(src[row * cols + col]) - means[row]) * rstds[row];
            dbias += g;
        }
    }
    dweight = sum_columns(dweight);
    dbias = sum_columns(dbias);
    const u32 summed = blockIdx.x * 32 + warp;
    if (lane == 0 && summed < cols) {
        partial += u64(blockIdx.y) * 2 * cols;
        partial[summed] = dweight;
        partial[cols + summed] = dbias;
    }
}
