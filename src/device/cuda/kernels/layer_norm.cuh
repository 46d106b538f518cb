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
