// The largest element of each window, and its gradient. A launch counts fewer than 2³¹ elements.

// Division by a number that the host knows: n / divisor for n < 2³¹ as ((n · magic >> 32) + n) >> shift.
struct Divisor {
    u32 divisor, magic, shift;

    __device__ __forceinline__ u32 quotient(u32 n) const { return (__umulhi(n, magic) + n) >> shift; }
    __device__ __forceinline__ u32 split(u32 n, u32& rest) const {
        const u32 q = quotient(n);
        rest = n - q * divisor;
        return q;
    }
};

struct Windows {
    u32 in_height, in_width, out_height, out_width, kernel, stride, padding;
};

// One output for each thread, of windows of side SIDE, or of any side where that is 0. Nothing but NaN displaces an
// equal element; a window of −∞ alone keeps its first.
template <class T, u32 SIDE>
__device__ void forward(
    const T* src, T* dst, i64* indices, u32 len, const Windows& windows, Divisor out_width, Divisor out_height) {
    const u32 output = blockIdx.x * blockDim.x + threadIdx.x;
    if (output >= len) return;
    u32 x, y;
    const u32 plane = out_height.split(out_width.split(output, x), y);
    src += plane * (windows.in_height * windows.in_width);
    // Rows and columns before the first are very large ones, and so outside.
    const u32 top = y * windows.stride - windows.padding, left = x * windows.stride - windows.padding;
    const u32 first_row = i32(top) < 0 ? 0 : top, first_col = i32(left) < 0 ? 0 : left;
    const auto inside = [&](u32 row, u32 col) { return row < windows.in_height && col < windows.in_width; };
    f32 largest = -INFINITE;
    u32 chosen = first_row * windows.in_width + first_col;
    const auto meet = [&](f32 element, u32 place) {
        if (element > largest || element != element) {
            largest = element;
            chosen = place;
        }
    };
    if constexpr (SIDE > 0) {
        f32 elements[SIDE][SIDE];
#pragma unroll
        for (u32 u = 0; u < SIDE; u++) {
#pragma unroll
            for (u32 v = 0; v < SIDE; v++) {
                const u32 place = (top + u) * windows.in_width + left + v;
                elements[u][v] = inside(top + u, left + v) ? to_f32(src[place]) : -INFINITE;
            }
        }
#pragma unroll
        for (u32 u = 0; u < SIDE; u++) {
#pragma unroll
            for (u32 v = 0; v < SIDE; v++) meet(elements[u][v], (top + u) * windows.in_width + left + v);
        }
    } else {
        for (u32 u = 0; u < windows.kernel; u++) {
            for (u32 v = 0; v < windows.kernel; v++) {
                const u32 place = (top + u) * windows.in_width + left + v;
                if (inside(top + u, left + v)) meet(to_f32(src[place]), place);
            }
        }
    }
    dst[output] = from_f32<T>(largest);
    indices[output] = chosen;
}

// Neighbours of a thread, and windows that it looks at together.
constexpr u32 GROUP = 4;
constexpr u32 TOGETHER = 4;

// Up to four neighbours of a row for each thread: each is the sum over the windows that may have chosen it.
template <class T, bool VECTORS>
__device__ void backward(
    const T* grad, const i64* indices, T* dst, u32 groups, const Windows& windows, Divisor row_groups,
    Divisor in_height, Divisor stride) {
    const u32 group = blockIdx.x * blockDim.x + threadIdx.x;
    if (group >= groups) return;
    u32 col, row;
    const u32 plane = in_height.split(row_groups.split(group, col), row);
    col *= GROUP;
    const u32 out_plane = plane * (windows.out_height * windows.out_width);
    grad += out_plane;
    indices += out_plane;
    // Windows from the first that reaches `to` up to the one that begins at `from` or before.
    const auto reach = [&](u32 from, u32 to, u32 count, u32& first, u32& end) {
        from += windows.padding;
        first = from < windows.kernel ? 0 : stride.quotient(from - windows.kernel) + 1;
        end = stride.quotient(to + windows.padding) + 1;
        end = end < count ? end : count;
    };
    u32 top, bottom, left, right;
    reach(row, row, windows.out_height, top, bottom);
    reach(col, col + GROUP - 1, windows.out_width, left, right);
    const u32 start = row * windows.in_width + col;
    f32 sums[GROUP] = {};
    for (u32 y = top; y < bottom; y++) {
        for (u32 x = left; x < right; x += TOGETHER) {
            u32 chosen[TOGETHER];
            f32 g[TOGETHER];
#pragma unroll
            for (u32 j = 0; j < TOGETHER; j++) {
                const u32 at = y * windows.out_width + x + j;
                const bool exists = x + j < right;
                chosen[j] = exists ? u32(indices[at]) - start : GROUP;
                g[j] = exists ? to_f32(grad[at]) : 0.f;
            }
#pragma unroll
            for (u32 j = 0; j < TOGETHER; j++) {
#pragma unroll
                for (u32 i = 0; i < GROUP; i++) sums[i] += chosen[j] == i ? g[j] : 0.f;
            }
        }
    }
    dst += plane * (windows.in_height * windows.in_width) + start;
    if constexpr (VECTORS) {
        store_f32(dst, sums);
    } else {
#pragma unroll
        for (u32 i = 0; i < GROUP; i++) {
            if (col + i < windows.in_width) dst[i] = from_f32<T>(sums[i]);
        }
    }
}

// Channels that lie next to each other: N of a pixel for each thread, and `vectors` of those in a pixel.
template <class T, int N>
__device__ void forward_pixels(
    const T* src, T* dst, i64* indices, u64 count, u32 vectors, const Windows& windows) {
    const u64 i = thread_index();
    if (i >= count) return;
    const u64 pixel = i / vectors, image = pixel / (windows.out_height * windows.out_width);
    const u32 place = u32(pixel - image * (windows.out_height * windows.out_width));
    const u32 y = place / windows.out_width, x = place % windows.out_width;
    src += (image * windows.in_height * windows.in_width * vectors + i % vectors) * N;
    const u32 top = y * windows.stride - windows.padding, left = x * windows.stride - windows.padding;
    const u32 first_row = i32(top) < 0 ? 0 : top, first_col = i32(left) < 0 ? 0 : left;
    f32 largest[N];
    u32 chosen[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        largest[j] = -INFINITE;
        chosen[j] = first_row * windows.in_width + first_col;
    }
    const u32 rows = min(top + windows.kernel, windows.in_height), cols = min(left + windows.kernel, windows.in_width);
    for (u32 row = first_row; row < rows; row++) {
#pragma unroll 3
        for (u32 col = first_col; col < cols; col++) {
            const u32 at = row * windows.in_width + col;
            const Pack<T, N> pack = load<T, N>(src + u64(at) * vectors * N);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const f32 element = to_f32(pack.at[j]);
                if (element > largest[j] || element != element) {
                    largest[j] = element;
                    chosen[j] = at;
                }
            }
        }
    }
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) {
        pack.at[j] = from_f32<T>(largest[j]);
        indices[i * N + j] = chosen[j];
    }
    store(dst + i * N, pack);
}

template <class T, int N>
__device__ void backward_pixels(
    const T* grad, const i64* indices, T* dst, u64 count, u32 vectors, const Windows& windows) {
    const u64 i = thread_index();
    if (i >= count) return;
    const u64 pixel = i / vectors, image = pixel / (windows.in_height * windows.in_width);
    const u32 place = u32(pixel - image * (windows.in_height * windows.in_width));
    const u32 row = place / windows.in_width + windows.padding, col = place % windows.in_width + windows.padding;
    const u64 skipped = (image * windows.out_height * windows.out_width * vectors + i % vectors) * N;
    grad += skipped;
    indices += skipped;
    const u32 top = row < windows.kernel ? 0 : (row - windows.kernel) / windows.stride + 1;
    const u32 left = col < windows.kernel ? 0 : (col - windows.kernel) / windows.stride + 1;
    const u32 bottom = min(row / windows.stride + 1, windows.out_height);
    const u32 right = min(col / windows.stride + 1, windows.out_width);
    f32 sums[N] = {};
    for (u32 y = top; y < bottom; y++) {
        for (u32 x = left; x < right; x++) {
            const u64 at = u64(y * windows.out_width + x) * vectors * N;
            const Pack<T, N> pack = load<T, N>(grad + at);
#pragma unroll
            for (int j = 0; j < N; j++) sums[j] += u32(indices[at + j]) == place ? to_f32(pack.at[j]) : 0.f;
        }
    }
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; j++) pack.at[j] = from_f32<T>(sums[j]);
    store(dst + i * N, pack);
}

#define WINDOWS {in_height, in_width, out_height, out_width, kernel, stride, padding}
#define FORWARD(T, NAME, SIDE) \
    extern "C" __global__ void max_pool_##NAME##_##T( \
        const T* src, T* dst, i64* indices, u32 len, u32 in_height, u32 in_width, u32 out_height, u32 out_width, \
        u32 kernel, u32 stride, u32 padding, u32 magic_x, u32 shift_x, u32 magic_y, u32 shift_y) { \
        const Divisor by_width = {out_width, magic_x, shift_x}, by_height = {out_height, magic_y, shift_y}; \
        forward<T, SIDE>(src, dst, indices, len, WINDOWS, by_width, by_height); \
    }
#define BACKWARD(T, NAME, VECTORS) \
    extern "C" __global__ void max_pool_backward_##NAME##_##T( \
        const T* grad, const i64* indices, T* dst, u32 groups, u32 in_height, u32 in_width, u32 out_height, \
        u32 out_width, u32 kernel, u32 stride, u32 padding, u32 magic_x, u32 shift_x, u32 magic_y, u32 shift_y, \
        u32 magic_stride, u32 shift_stride) { \
        const Divisor by_width = {(in_width + GROUP - 1) / GROUP, magic_x, shift_x}; \
        const Divisor by_height = {in_height, magic_y, shift_y}, by_stride = {stride, magic_stride, shift_stride}; \
        backward<T, VECTORS>(grad, indices, dst, groups, WINDOWS, by_width, by_height, by_stride); \
    }
#define PIXELS(T, NAME, N) \
    extern "C" __global__ void max_pool_pixels_##NAME##_##T( \
        const T* src, T* dst, i64* indices, u64 count, u32 vectors, u32 in_height, u32 in_width, u32 out_height, \
        u32 out_width, u32 kernel, u32 stride, u32 padding) { \
        forward_pixels<T, N>(src, dst, indices, count, vectors, WINDOWS); \
    } \
    extern "C" __global__ void max_pool_backward_pixels_##NAME##_##T( \
        const T* grad, const i64* indices, T* dst, u64 count, u32 vectors, u32 in_height, u32 in_width, \
        u32 out_height, u32 out_width, u32 kernel, u32 stride, u32 padding) { \
        backward_pixels<T, N>(grad, indices, dst, count, vectors, WINDOWS); \
    }
#define FOR_TYPE(T) \
    PIXELS(T, wide, WIDE<T>) \
    PIXELS(T, single, 1) \
    FORWARD(T, 2, 2) \
    FORWARD(T, 3, 3) \
    FORWARD(T, any, 0) \
    BACKWARD(T, wide, true) \
    BACKWARD(T, any, false)
FOR_FLOATS(FOR_TYPE)
