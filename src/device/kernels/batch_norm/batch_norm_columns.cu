// Batch normalisation of images whose channels lie next to each other, as a matrix of a row for each pixel: with the sum
// with a residual and ReLU (or its leaky form) in one pass, and the way back. Blocks take sums of some rows of some
// columns, one small kernel joins them, and a last one goes through everything again, last rows first: what was read
// last may still be in the cache.

constexpr u32 THREADS = 256, WARPS = THREADS / 32;
// Rows that tell about where the elements of a column are: sums of squares of distances from there do not cancel.
constexpr u32 SAMPLES = 8;

// What of `x` passes by the sign of `y`.
__device__ __forceinline__ f32 gated(f32 x, f32 y, f32 slope) {
    // An infinity is cut off too.
    return y <= 0.f ? (slope == 0.f ? 0.f : slope * x) : x;
}

struct Matrix {
    u32 rows, channels;
};

// What a block is to go through: `lanes` vectors of N columns, a power of two that divides a warp, and rows of `part`.
// A thread stays in its columns.
template <int N> struct Place {
    u32 column, first, end, step;
    bool inside;

    __device__ Place(Matrix matrix, u32 lanes, u32 part, u32 parts) {
        const u32 each = (matrix.rows + parts - 1) / parts;
        const u32 begin = part * each < matrix.rows ? part * each : matrix.rows;
        column = (blockIdx.x * lanes + threadIdx.x % lanes) * N;
        inside = column < matrix.channels;
        step = THREADS / lanes;
        first = begin + threadIdx.x / lanes;
        end = matrix.rows - begin < each ? matrix.rows : begin + each;
    }

    // Calls `use(place, load(place))` with where each of this thread's vectors begins. Loads of BATCH vectors are under
    // way at once.
    template <int BATCH, class Load, class Use>
    __device__ __forceinline__ void each(Matrix matrix, Load load, Use use) const {
        if (!inside) return;
        for (u32 row = first; row < end; row += BATCH * step) {
            decltype(load(u64(0))) loaded[BATCH];
            u64 places[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                places[i] = u64(row + i * step) * matrix.channels + column;
                if (row + i * step < end) loaded[i] = load(places[i]);
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (row + i * step < end) use(places[i], loaded[i]);
            }
        }
    }
};

// Stores the sums over a block of two values for each of its columns: `parts` are of (part, which, channel).
template <int N>
__device__ void store_sums(f32 (&one)[N], f32 (&two)[N], f32* parts, const Place<N>& place, Matrix matrix, u32 lanes) {
    __shared__ f32 warps[WARPS][128];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < N; i++) {
        for (u32 distance = 16; distance >= lanes; distance /= 2) {
            one[i] += __shfl_down_sync(0xffffffffu, one[i], distance);
            two[i] += __shfl_down_sync(0xffffffffu, two[i], distance);
        }
        if (lane < lanes) {
            warps[warp][lane * N + i] = one[i];
            warps[warp][(lanes + lane) * N + i] = two[i];
        }
    }
    __syncthreads();
    const u32 width = lanes * N;
    if (threadIdx.x < 2 * width) {
        f32 sum = 0.f;
        for (u32 i = 0; i < WARPS; i++) sum += warps[i][threadIdx.x];
        const u32 which = threadIdx.x / width, column = blockIdx.x * width + threadIdx.x % width;
        if (column < matrix.channels) parts[(u64(blockIdx.y) * 2 + which) * matrix.channels + column] = sum;
    }
}

// The sums over all parts of a column, for 32 columns by 32 warps: in the threads of the first warp.
struct Sums {
    f32 one, two;
};
__device__ Sums join_parts(const f32* parts, u32 count, u32 channel, u32 channels) {
    __shared__ Sums warps[32][32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Sums own = {0.f, 0.f};
    if (channel < channels) {
#pragma unroll 4
        for (u32 part = warp; part < count; part += 32) {
            own.one += parts[u64(part) * 2 * channels + channel];
            own.two += parts[(u64(part) * 2 + 1) * channels + channel];
        }
    }
    warps[warp][lane] = own;
    __syncthreads();
    if (warp > 0) return own;
    own = {0.f, 0.f};
    for (u32 i = 0; i < 32; i++) {
        own.one += warps[i][lane].one;
        own.two += warps[i][lane].two;
    }
    return own;
}

// About where the elements of columns are: the mean of a few of them, the same for everybody who asks.
template <class T, int N> __device__ void centres(const T* src, Matrix matrix, u32 column, f32 (&centre)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) centre[i] = 0.f;
#pragma unroll
    for (u32 sample = 0; sample < SAMPLES; sample++) {
        const u64 row = u64(matrix.rows) * sample / SAMPLES;
        const Pack<T, N> pack = load<T, N>(src + row * matrix.channels + column);
#pragma unroll
        for (int i = 0; i < N; i++) centre[i] += to_f32(pack.at[i]) * (1.f / SAMPLES);
    }
}

// Sums of distances from the centres, and of their squares.
template <class T, int N> __device__ void statistics(const T* src, f32* parts, u32 lanes, Matrix matrix) {
    const Place<N> place(matrix, lanes, blockIdx.y, gridDim.y);
    f32 centre[N], sums[N], squares[N];
    if (place.inside) centres<T, N>(src, matrix, place.column, centre);
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = squares[i] = 0.f;
    place.template each<4>(matrix, [&](u64 at) { return load<T, N>(src + at); }, [&](u64, const Pack<T, N>& pack) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 x = to_f32(pack.at[i]) - centre[i];
            sums[i] += x;
            squares[i] += x * x;
        }
    });
    store_sums<N>(sums, squares, parts, place, matrix, lanes);
}

// Affine functions of N columns.
template <int N> struct Lines {
    f32 scale[N], shift[N];

    __device__ Lines(const Values& weight, const Values& bias, const Values& mean, const Values& rstd, u32 column) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            scale[i] = weight.get(column + i) * rstd.get(column + i);
            shift[i] = bias.get(column + i) - mean.get(column + i) * scale[i];
        }
    }
};

template <class T, int N> struct Two {
    Pack<T, N> src, other;
};

// Stores what becomes of normalised elements; there may be no residual.
template <class T, int N>
__device__ void apply(
    const T* src, const T* residual, T* dst, Values weight, Values bias, f32* mean, f32* rstd, f32 slope, u32 lanes,
    Matrix matrix) {
    const Place<N> place(matrix, lanes, gridDim.y - 1 - blockIdx.y, gridDim.y);
    if (!place.inside) return;
    const Lines<N> lines(weight, bias, {mean, 0}, {rstd, 0}, place.column);
    const auto read = [&](u64 at) {
        Two<T, N> two;
        two.src = load<T, N>(src + at);
        if (residual) two.other = load<T, N>(residual + at);
        return two;
    };
    place.template each<4>(matrix, read, [&](u64 at, Two<T, N> two) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            f32 y = to_f32(two.src.at[i]) * lines.scale[i] + lines.shift[i];
            if (residual) y += to_f32(two.other.at[i]);
            two.src.at[i] = from_f32<T>(gated(y, y, slope));
        }
        store(dst + at, two.src);
    });
}

// The gradient of the output on its way to what was normalised. With a residual the sign is that of the output, and
// what passes is stored as the residual's gradient, where it is read again; without one the sign is made again.
template <class T> struct Gate {
    const T *grad, *src, *output;
    T* dresidual;
    f32 slope;
};

template <class T, int N> struct Three {
    Pack<T, N> grad, src, output;
};

// Sums of what passes the gate, and of its products with the centred source.
template <class T, int N>
__device__ void gradient_sums(
    const Gate<T>& gate, Values mean, Values rstd, Values weight, Values bias, f32* parts, u32 lanes, Matrix matrix) {
    const Place<N> place(matrix, lanes, blockIdx.y, gridDim.y);
    const u32 column = place.inside ? place.column : 0;
    const Lines<N> lines(weight, bias, mean, rstd, column);
    f32 centre[N], sums[N], products[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        centre[i] = mean.get(column + i);
        sums[i] = products[i] = 0.f;
    }
    const auto read = [&](u64 at) {
        Three<T, N> three;
        three.grad = load<T, N>(gate.grad + at);
        three.src = load<T, N>(gate.src + at);
        if (gate.output) three.output = load<T, N>(gate.output + at);
        return three;
    };
    place.template each<2>(matrix, read, [&](u64 at, Three<T, N> three) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 x = to_f32(three.src.at[i]);
            const f32 y = gate.output ? to_f32(three.output.at[i]) : x * lines.scale[i] + lines.shift[i];
            const f32 g = gated(to_f32(three.grad.at[i]), y, gate.slope);
            three.grad.at[i] = from_f32<T>(g);
            sums[i] += g;
            products[i] += g * (x - centre[i]);
        }
        if (gate.output) store(gate.dresidual + at, three.grad);
    });
    store_sums<N>(sums, products, parts, place, matrix, lanes);
}

// With `level` and `slope` for each channel, dx = weight · rstd · (g − level − (x − mean) · slope).
template <class T, int N>
__device__ void apply_gradient(
    const Gate<T>& gate, T* dsrc, Values mean, Values rstd, Values weight, Values bias, const f32* joined, u32 lanes,
    Matrix matrix) {
    const Place<N> place(matrix, lanes, gridDim.y - 1 - blockIdx.y, gridDim.y);
    if (!place.inside) return;
    const Lines<N> lines(weight, bias, mean, rstd, place.column);
    f32 constant[N], slope[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        slope[i] = joined[matrix.channels + place.column + i];
        constant[i] = mean.get(place.column + i) * slope[i] - joined[place.column + i];
    }
    const T* grad = gate.output ? gate.dresidual : gate.grad;
    const auto read = [&](u64 at) { return Two<T, N>{load<T, N>(gate.src + at), load<T, N>(grad + at)}; };
    place.template each<2>(matrix, read, [&](u64 at, Two<T, N> two) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 x = to_f32(two.src.at[i]);
            f32 g = to_f32(two.other.at[i]);
            if (!gate.output) g = gated(g, x * lines.scale[i] + lines.shift[i], gate.slope);
            two.src.at[i] = from_f32<T>((g + (constant[i] - x * slope[i])) * lines.scale[i]);
        }
        store(dsrc + at, two.src);
    });
}

#define KERNEL(T, SUFFIX, NAME) \
    extern "C" __global__ __launch_bounds__(THREADS) void batch_norm_columns_##NAME##SUFFIX##_##T
#define BACKWARD(T) \
    const T *grad, const T *src, const T *output, T *dresidual, T *dsrc, void *mean, u32 mean_type, void *rstd, \
        u32 rstd_type, void *weight, u32 weight_type, void *bias, u32 bias_type, f32 slope, u32 lanes, u32 rows, \
        u32 channels
#define GATE {grad, src, output, dresidual, slope}
#define VALUES {mean, mean_type}, {rstd, rstd_type}, {weight, weight_type}, {bias, bias_type}
// With vectors of N elements. Types of values follow their pointers.
#define COLUMNS(T, SUFFIX, N) \
    KERNEL(T, SUFFIX, statistics)(const T* src, f32* parts, u32 lanes, u32 rows, u32 channels) { \
        statistics<T, N>(src, parts, lanes, {rows, channels}); \
    } \
    KERNEL(T, SUFFIX, apply)( \
        const T* src, const T* residual, T* dst, void* weight, u32 weight_type, void* bias, u32 bias_type, f32* mean, \
        f32* rstd, f32 slope, u32 lanes, u32 rows, u32 channels) { \
        apply<T, N>( \
            src, residual, dst, {weight, weight_type}, {bias, bias_type}, mean, rstd, slope, lanes, {rows, channels}); \
    } \
    KERNEL(T, SUFFIX, gradient_sums)(BACKWARD(T), f32* parts) { \
        gradient_sums<T, N>(GATE, VALUES, parts, lanes, {rows, channels}); \
    } \
    KERNEL(T, SUFFIX, apply_gradient)(BACKWARD(T), const f32* joined) { \
        apply_gradient<T, N>(GATE, dsrc, VALUES, joined, lanes, {rows, channels}); \
    }

// Statistics of channels from the sums of parts: 32 channels for each block.
template <class T>
__device__ void join_statistics(
    const T* src, const f32* parts, u32 count, f32* mean, f32* rstd, Values running_mean, Values running_var, f32 eps,
    f32 momentum, Matrix matrix) {
    const u32 channel = blockIdx.x * 32 + threadIdx.x % 32;
    const Sums all = join_parts(parts, count, channel, matrix.channels);
    if (threadIdx.x >= 32 || channel >= matrix.channels) return;
    f32 centre[1];
    centres<T, 1>(src, matrix, channel, centre);
    const f32 rows = f32(matrix.rows), distance = all.one / rows, left = 1.f - momentum;
    const f32 squares = fmaxf(all.two - all.one * distance, 0.f), variance = squares / rows;
    mean[channel] = centre[0] + distance;
    rstd[channel] = 1.f / sqrtf(variance + eps);
    running_mean.set(channel, left * running_mean.get(channel) + momentum * (centre[0] + distance));
    running_var.set(channel, left * running_var.get(channel) + momentum * (squares / (rows - 1.f)));
}

// The gradients of weights and biases from the sums of parts, and `joined`: what all elements of a channel lose.
extern "C" __global__ __launch_bounds__(1024) void batch_norm_columns_join_gradients(
    const f32* parts, u32 count, f32* joined, void* rstd, u32 rstd_type, void* dweight, u32 dweight_type, void* dbias,
    u32 dbias_type, u32 rows, u32 channels) {
    const u32 channel = blockIdx.x * 32 + threadIdx.x % 32;
    const Sums all = join_parts(parts, count, channel, channels);
    if (threadIdx.x >= 32 || channel >= channels) return;
    const f32 reciprocal = Values{rstd, rstd_type}.get(channel);
    Values{dweight, dweight_type}.set(channel, all.two * reciprocal);
    Values{dbias, dbias_type}.set(channel, all.one);
    joined[channel] = all.one / f32(rows);
    joined[channels + channel] = all.two * reciprocal * (reciprocal / f32(rows));
}

#define FOR_TYPE(T) \
    COLUMNS(T, _wide, WIDE<T>) \
    COLUMNS(T, _single, 1) \
    extern "C" __global__ __launch_bounds__(1024) void batch_norm_columns_join_statistics_##T( \
        const T* src, const f32* parts, u32 count, f32* mean, f32* rstd, void* running_mean, u32 mean_type, \
        void* running_var, u32 var_type, f32 eps, f32 momentum, u32 rows, u32 channels) { \
        join_statistics<T>( \
            src, parts, count, mean, rstd, {running_mean, mean_type}, {running_var, var_type}, eps, momentum, \
            {rows, channels}); \
    }
FOR_FLOATS(FOR_TYPE)
