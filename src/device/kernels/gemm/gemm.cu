// Matrix products of any strides: what cuBLASLt has no kernel for. Not fast.

constexpr int TILE = 16;

// One block computes 16 × 16 elements; blockIdx.z is the matrix of the batch. All m and n that fit a grid.
template <class T, class U>
__device__ void gemm(const T* a, u64 a_row, u64 a_col, u64 a_batch, const T* b, u64 b_row, u64 b_col, u64 b_batch, U* c,
                     u64 c_row, u64 c_col, u64 c_batch, const U* bias, u64 m, u64 n, u64 k, f32 alpha, f32 beta) {
    __shared__ f32 left[TILE][TILE + 1], right[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const u64 col = u64(blockIdx.x) * TILE + x, row = u64(blockIdx.y) * TILE + y;
    a += blockIdx.z * a_batch;
    b += blockIdx.z * b_batch;
    c += blockIdx.z * c_batch;
    f32 sum = 0.f;
    for (u64 start = 0; start < k; start += TILE) {
        left[y][x] = row < m && start + x < k ? to_f32(a[row * a_row + (start + x) * a_col]) : 0.f;
        right[y][x] = start + y < k && col < n ? to_f32(b[(start + y) * b_row + col * b_col]) : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row >= m || col >= n) return;
    U* to = c + row * c_row + col * c_col;
    f32 value = alpha * sum;
    if (bias) value += to_f32(bias[col]);
    if (beta != 0.f) value += beta * to_f32(*to);
    *to = from_f32<U>(value);
}

#define GEMM(T, U)                                                                                                  \
    extern "C" __global__ void gemm_##T##_##U(const T* a, u64 a_row, u64 a_col, u64 a_batch, const T* b, u64 b_row, \
                                              u64 b_col, u64 b_batch, U* c, u64 c_row, u64 c_col, u64 c_batch,      \
                                              const U* bias, u64 m, u64 n, u64 k, f32 alpha, f32 beta) {            \
        gemm(a, a_row, a_col, a_batch, b, b_row, b_col, b_batch, c, c_row, c_col, c_batch, bias, m, n, k, alpha,    \
             beta);                                                                                                 \
    }
FOR_FLOAT_PAIRS(GEMM)
