// Convolutions where cuDNN is not: products of matrices that are never written down. Blocks of 64 × 64 results go through
// shared memory 16 factors deep; where that makes too few blocks the depth is split, and what the parts add up to is summed
// by a kernel of its own, in a fixed order.

constexpr int TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4;
// Rows of the left factor in shared memory: padded, still at multiples of 16 bytes.
constexpr int PITCH = TILE + 4;

struct Geometry {
    u64 batch, in_channels, in_height, in_width, out_channels, out_height, out_width, kernel, stride, padding;
    // Channels lie next to each other, in images and in weights.
    u64 last;

    // Where element (out, in, place of the window) of a weight is.
    __device__ u64 weight(u64 out, u64 in, u64 place) const {
        const u64 window = kernel * kernel;
        return last ? (out * window + place) * in_channels + in : (out * in_channels + in) * window + place;
    }
    // Where element (channel, place of the plane) of an image is.
    __device__ u64 input(u64 channel, u64 place) const {
        return last ? place * in_channels + channel : channel * in_height * in_width + place;
    }
    __device__ u64 output(u64 channel, u64 place) const {
        return last ? place * out_channels + channel : channel * out_height * out_width + place;
    }
};

// Where a column's windows begin: image and place in the plane, both of the tensor that is read.
struct Column {
    u64 base;
    i32 y, x;
    bool inside;
};

// Each role is C[m, n] = Σ_k A[m, k] · B[k, n], and says where in the result an element of C goes; a column's B is zero where its window reaches beyond the plane.

// Rows are output channels, columns places of the output, the depth is the window.
struct Forward {
    Geometry g;

    __device__ u32 rows() const { return u32(g.out_channels); }
    __device__ u32 columns() const { return u32(g.batch * g.out_height * g.out_width); }
    __device__ u32 depth() const { return u32(g.in_channels * g.kernel * g.kernel); }
    __device__ u32 area() const { return u32(g.out_height * g.out_width); }
    __device__ u64 result(u32 m, u32 n) const {
        return u64(n / area()) * g.out_channels * area() + g.output(m, n % area());
    }

    template <class T> __device__ f32 a(const T* weight, u32 m, u32 k) const {
        const u32 window = u32(g.kernel * g.kernel);
        return to_f32(weight[g.last ? g.weight(m, k / window, k % window) : u64(m) * depth() + k]);
    }
    __device__ Column column(u32 n) const {
        const u32 place = n % area(), image = n / area();
        const i32 y = i32(place / u32(g.out_width)), x = i32(place % u32(g.out_width));
        const i32 stride = i32(g.stride), padding = i32(g.padding);
        return {image * g.in_channels * g.in_height * g.in_width, y * stride - padding, x * stride - padding,
                n < columns()};
    }
    template <class T> __device__ f32 b(const T* src, Column at, u32 k) const {
        const u32 side = u32(g.kernel), v = k % side, rest = k / side;
        const i32 y = at.y + i32(rest % side), x = at.x + i32(v);
        const u64 channel = rest / side;
        if (y < 0 || x < 0 || y >= i32(g.in_height) || x >= i32(g.in_width)) return 0.f;
        return to_f32(src[at.base + g.input(channel, u32(y) * g.in_width + u32(x))]);
    }
};

// Rows are input channels, columns places of the input, the depth is output channels by windows.
struct BackwardInput {
    Geometry g;

    __device__ u32 rows() const { return u32(g.in_channels); }
    __device__ u32 columns() const { return u32(g.batch * g.in_height * g.in_width); }
    __device__ u32 depth() const { return u32(g.out_channels * g.kernel * g.kernel); }
    __device__ u32 area() const { return u32(g.in_height * g.in_width); }
    __device__ u64 result(u32 m, u32 n) const {
        return u64(n / area()) * g.in_channels * area() + g.input(m, n % area());
    }

    template <class T> __device__ f32 a(const T* weight, u32 m, u32 k) const {
        const u32 window = u32(g.kernel * g.kernel);
        return to_f32(weight[g.weight(k / window, m, k % window)]);
    }
    __device__ Column column(u32 n) const {
        const u32 place = n % area(), image = n / area();
        const i32 y = i32(place / u32(g.in_width)), x = i32(place % u32(g.in_width)), padding = i32(g.padding);
        return {image * g.out_channels * g.out_height * g.out_width, y + padding, x + padding, n < columns()};
    }
    template <class T> __device__ f32 b(const T* grad, Column at, u32 k) const {
        const u32 side = u32(g.kernel), rest = k / side;
        const i32 y = at.y - i32(rest % side), x = at.x - i32(k % side), stride = i32(g.stride);
        const u64 channel = rest / side;
        if (y < 0 || x < 0) return 0.f;
        const i32 row = y / stride, col = x / stride;
        if (row * stride != y || col * stride != x || row >= i32(g.out_height) || col >= i32(g.out_width)) return 0.f;
        return to_f32(grad[at.base + g.output(channel, u32(row) * g.out_width + u32(col))]);
    }
};

// Rows are output channels, columns the window, the depth is places of the output.
struct BackwardWeight {
    Geometry g;

    __device__ u32 rows() const { return u32(g.out_channels); }
    __device__ u32 columns() const { return u32(g.in_channels * g.kernel * g.kernel); }
    __device__ u32 depth() const { return u32(g.batch * g.out_height * g.out_width); }
    __device__ u64 result(u32 m, u32 n) const {
        const u32 window = u32(g.kernel * g.kernel);
        return g.weight(m, n / window, n % window);
    }

    template <class T> __device__ f32 a(const T* grad, u32 m, u32 k) const {
        const u32 places = u32(g.out_height * g.out_width);
        return to_f32(grad[k / places * g.out_channels * places + g.output(m, k % places)]);
    }
    __device__ Column column(u32 n) const {
        const u32 side = u32(g.kernel), rest = n / side;
        const i32 padding = i32(g.padding);
        return {g.input(rest / side, 0), i32(rest % side) - padding, i32(n % side) - padding,
                n < columns()};
    }
    template <class T> __device__ f32 b(const T* src, Column at, u32 k) const {
        const u32 width = u32(g.out_width), rest = k / width;
        const i32 stride = i32(g.stride);
        const i32 y = at.y + i32(rest % u32(g.out_height)) * stride, x = at.x + i32(k % width) * stride;
        const u64 image = rest / u32(g.out_height);
        if (y < 0 || x < 0 || y >= i32(g.in_height) || x >= i32(g.in_width)) return 0.f;
        const u64 place = g.input(0, u32(y) * g.in_width + u32(x));
        return to_f32(src[image * g.in_channels * g.in_height * g.in_width + at.base + place]);
    }
};

// A block of the grid's x takes 64 columns, of its y 64 rows, of its z a part of the depth (`each` factors, a multiple of
// DEPTH). With `parts` the sums go there, part by part in the result's layout, else to the result.
template <class Role, class T>
__device__ void convolve(const T* left, const T* right, T* dst, f32* parts, u64 each, const Geometry& geometry) {
    __shared__ alignas(16) f32 a[DEPTH][PITCH];
    __shared__ f32 b[DEPTH][TILE];
    const Role role{geometry};
    const u32 t = threadIdx.x, rows = role.rows(), columns = role.columns();
    const u32 first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    const u64 from = blockIdx.z * each, end = from + each < role.depth() ? from + each : role.depth();

    const u32 a_depth = t % DEPTH, a_row = t / DEPTH, b_column = t % TILE, b_depth = t / TILE;
    const Column column = role.column(first_column + b_column);
    const u32 row = t / 16 * EACH, col = t % 16;
    f32 sums[EACH][EACH] = {};

    for (u64 at = from; at < end; at += DEPTH) {
        const u32 k = u32(at) + a_depth;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 m = a_row + i * 16;
            a[a_depth][m] = first_row + m < rows && k < end ? role.a(left, first_row + m, k) : 0.f;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 d = b_depth + i * 4;
            b[d][b_column] = column.inside && at + d < end ? role.b(right, column, u32(at) + d) : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const Pack<f32, EACH> x = load<f32, EACH>(&a[d][row]);
            f32 y[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) y[j] = b[d][col + 16 * j];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) sums[i][j] += x.at[i] * y[j];
            }
        }
        __syncthreads();
    }

    const u64 len = u64(rows) * columns;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const u32 n = first_column + col + 16 * j;
        if (n >= columns) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 m = first_row + row + i;
            if (m >= rows) continue;
            const u64 to = role.result(m, n);
            if (parts) parts[blockIdx.z * len + to] = sums[i][j];
            else dst[to] = from_f32<T>(sums[i][j]);
        }
    }
}

// Adds up what the parts of the depth came to.
template <class T> __device__ void sum_parts(const f32* parts, T* dst, u64 len, u64 count) {
    for (u64 i = thread_index(); i < len; i += thread_count()) {
        f32 sum = 0.f;
#pragma unroll 8
        for (u64 part = 0; part < count; part++) sum += parts[part * len + i];
        dst[i] = from_f32<T>(sum);
    }
}

// Channels that a thread of the next two kernels takes: those of its block's y.
constexpr u32 CHANNELS = 4;

// Writes down the windows of some images: for each channel, line and column of the window a row, in which the output's
// places lie one behind the other, and images `image` elements apart. A thread takes a place of an image. SIDE is the
// window's side where that is known, else 0.
template <u32 SIDE, class T>
__device__ __forceinline__ void write_columns(const T* __restrict__ src, T* __restrict__ columns, u64 row, u64 image,
                                              u32 threads, const Geometry& g) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * CHANNELS;
    if (at >= threads) return;
    const u32 side = SIDE ? SIDE : u32(g.kernel), channels = u32(g.in_channels);
    const u32 width = u32(g.out_width), area = u32(g.out_height) * width, place = at % area;
    // Beyond the edges before the first line or column these wrap around, and are beyond all.
    const u32 y = place / width * u32(g.stride) - u32(g.padding), x = place % width * u32(g.stride) - u32(g.padding);
    const u64 plane = g.in_height * g.in_width;
    const T* from = src + (u64(at / area) * channels + first) * plane;
    T* to = columns + u64(at / area) * image + place + u64(first) * side * side * row;
#pragma unroll
    for (u32 c = 0; c < CHANNELS; c++) {
        if (first + c >= channels) break;
#pragma unroll
        for (u32 u = 0; u < side; u++) {
#pragma unroll
            for (u32 v = 0; v < side; v++) {
                const bool inside = y + u < u32(g.in_height) && x + v < u32(g.in_width);
                to[u64(u * side + v) * row] = inside ? from[u64(y + u) * g.in_width + (x + v)] : T{};
            }
        }
        from += plane;
        to += u64(side) * side * row;
    }
}

template <class T>
__device__ void columns(const T* src, T* to, u64 row, u64 image, u32 threads, const Geometry& g) {
    switch (g.kernel) {
        case 1: return write_columns<1>(src, to, row, image, threads, g);
        case 3: return write_columns<3>(src, to, row, image, threads, g);
        case 4: return write_columns<4>(src, to, row, image, threads, g);
        default: return write_columns<0>(src, to, row, image, threads, g);
    }
}

// The other way round: each element of the source is the sum of its places in all windows, in a fixed order. A thread takes
// a place of an image.
template <class T>
__device__ void images(const f32* __restrict__ columns, T* __restrict__ dst, u64 row, u64 image, u32 threads,
                       const Geometry& g) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * CHANNELS;
    if (at >= threads) return;
    const u32 side = u32(g.kernel), stride = u32(g.stride), channels = u32(g.in_channels);
    const u32 width = u32(g.in_width), area = u32(g.in_height) * width, place = at % area;
    const u32 y = place / width + u32(g.padding), x = place % width + u32(g.padding);
    const u64 window = u64(side) * side * row;
    const f32* from = columns + u64(at / area) * image + first * window;
    f32 sums[CHANNELS] = {};
    for (u32 u = y % stride; u < side && u <= y; u += stride) {
        const u32 line = (y - u) / stride;
        if (line >= u32(g.out_height)) continue;
        for (u32 v = x % stride; v < side && v <= x; v += stride) {
            const u32 column = (x - v) / stride;
            if (column >= u32(g.out_width)) continue;
            const f32* term = from + u64(u * side + v) * row + line * u32(g.out_width) + column;
#pragma unroll
            for (u32 c = 0; c < CHANNELS; c++) {
                if (first + c < channels) sums[c] += term[c * window];
            }
        }
    }
    T* to = dst + (u64(at / area) * channels + first) * area + place;
#pragma unroll
    for (u32 c = 0; c < CHANNELS; c++) {
        if (first + c < channels) to[u64(c) * area] = from_f32<T>(sums[c]);
    }
}

// The weight (in, out, window) by which the output's gradient is convolved to the source's: windows back to front.
template <class T> __device__ void turn(const T* weight, T* turned, u64 out, u64 in, u64 window) {
    for (u64 i = thread_index(); i < in * out * window; i += thread_count()) {
        const u64 rest = i / window, at = i % window;
        turned[i] = weight[(rest % out * in + rest / out) * window + (window - 1 - at)];
    }
}

// Adds each channel's bias to its planes of `area` elements. The first `packs` times 16 bytes are taken 16 bytes at once: none
// where `dst` is not aligned. `len` fits 32 bits.
template <class T> __device__ void add_bias(T* dst, const T* bias, u64 len, u64 packs, u32 channels, u32 area) {
    constexpr int N = WIDE<T>;
    const bool whole = area % N == 0;
    for (u64 i = thread_index(); i < packs; i += thread_count()) {
        Pack<T, N> pack = load<T, N>(dst + i * N);
        const u32 first = u32(i) * N;
        f32 offset = to_f32(bias[first / area % channels]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (!whole) offset = to_f32(bias[(first + j) / area % channels]);
            pack.at[j] = from_f32<T>(to_f32(pack.at[j]) + offset);
        }
        store(dst + i * N, pack);
    }
    for (u64 i = packs * N + thread_index(); i < len; i += thread_count()) {
        dst[i] = from_f32<T>(to_f32(dst[i]) + to_f32(bias[u32(i) / area % channels]));
    }
}

#define CONVOLVE(NAME, ROLE, T) \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    NAME##_##T(const T* left, const T* right, T* dst, f32* parts, u64 each, Geometry geometry) { \
        convolve<ROLE>(left, right, dst, parts, each, geometry); \
    }
#define CONVOLUTION(T) \
    CONVOLVE(conv2d, Forward, T) \
    CONVOLVE(conv2d_backward_input, BackwardInput, T) \
    CONVOLVE(conv2d_backward_weight, BackwardWeight, T) \
    extern "C" __global__ void conv2d_sum_parts_##T(const f32* parts, T* dst, u64 len, u64 count) { \
        sum_parts(parts, dst, len, count); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    conv2d_columns_##T(const T* src, T* to, u64 row, u64 image, u32 threads, Geometry geometry) { \
        columns(src, to, row, image, threads, geometry); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) \
    conv2d_images_##T(const f32* from, T* dst, u64 row, u64 image, u32 threads, Geometry geometry) { \
        images(from, dst, row, image, threads, geometry); \
    } \
    extern "C" __global__ void conv2d_turn_##T(const T* weight, T* turned, u64 out, u64 in, u64 window) { \
        turn(weight, turned, out, in, window); \
    } \
    extern "C" __global__ void conv2d_bias_##T(T* dst, const T* bias, u64 len, u64 packs, u32 channels, u32 area) { \
        add_bias(dst, bias, len, packs, channels, area); \
    }
FOR_FLOATS(CONVOLUTION)
