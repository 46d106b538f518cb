// Batch normalisation, the sum with a residual and ReLU (or its leaky form) in one pass, and the way back. Channels are
// gone through as in batch_norm.cu, whose statistics of parts serve here too.

// What of `x` passes by the sign of `y`.
__device__ __forceinline__ f32 gated(f32 x, f32 y, f32 slope) {
    // An infinity is cut off too.
    return y <= 0.f ? (slope == 0.f ? 0.f : slope * x) : x;
}

// An affine function of each channel.
struct Line {
    f32 mean, scale, shift;

    __device__ f32 of_centred(f32 x) const { return x * scale + shift; }
};

template <class T, int N> struct Two {
    Pack<T, N> src, residual;
};

// Stores what becomes of normalised elements; there may be no residual.
template <class T, int N>
__device__ void apply(const T* src, const T* residual, T* dst, const Part& part, const Line& line, f32 slope) {
    const auto read = [&](u64 at) {
        Two<T, N> two;
        two.src = load<T, N>(src + at);
        if (residual) two.residual = load<T, N>(residual + at);
        return two;
    };
    part.each<N, 3>(read, [&](u64 at, Two<T, N> two) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            f32 y = line.of_centred(to_f32(two.src.at[i]) - line.mean);
            if (residual) y += to_f32(two.residual.at[i]);
            two.src.at[i] = from_f32<T>(gated(y, y, slope));
        }
        store(dst + at, two.src);
    });
}

// Normalises a channel by one block.
template <class T, int N>
__device__ void forward_whole(
    const T* src, const T* residual, T* dst, Values weight, Values bias, const Kept& kept, f32 slope, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, 0, 1);
    const Moments all = moments_of<T, N>(src, part);
    const f32 rstd = kept.keep(all, part.channel, threadIdx.x == 0);
    const Line line = {all.mean, weight.get(part.channel) * rstd, bias.get(part.channel)};
    apply<T, N>(src, residual, dst, part, line, slope);
}

// Normalises a part of a channel.
template <class T, int N>
__device__ void forward_joined(
    const T* src, const T* residual, T* dst, Values weight, Values bias, const Kept& kept, f32 slope,
    const Moments* parts, Shape shape) {
    const u32 place = gridDim.y - 1 - blockIdx.y;
    const Part part(shape.channels, shape.batch, shape.area, N, place, gridDim.y);
    Moments all = {0.f, 0.f, 0.f};
    for (u32 i = threadIdx.x; i < gridDim.y; i += blockDim.x) {
        all = join(all, parts[u64(part.channel) * gridDim.y + i]);
    }
    all = join_block(all);
    const f32 rstd = kept.keep(all, part.channel, threadIdx.x == 0 && place == 0);
    const Line line = {all.mean, weight.get(part.channel) * rstd, bias.get(part.channel)};
    apply<T, N>(src, residual, dst, part, line, slope);
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

template <class T, int N>
__device__ Sums sums_of(const Gate<T>& gate, const Part& part, const Line& line) {
    Sums own = {0.f, 0.f};
    const auto read = [&](u64 at) {
        Three<T, N> three;
        three.grad = load<T, N>(gate.grad + at);
        three.src = load<T, N>(gate.src + at);
        if (gate.output) three.output = load<T, N>(gate.output + at);
        return three;
    };
    part.each<N, 2>(read, [&](u64 at, Three<T, N> three) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 centred = to_f32(three.src.at[i]) - line.mean;
            const f32 y = gate.output ? to_f32(three.output.at[i]) : line.of_centred(centred);
            const f32 g = gated(to_f32(three.grad.at[i]), y, gate.slope);
            three.grad.at[i] = from_f32<T>(g);
            own.of_grad += g;
            own.of_both += g * centred;
        }
        if (gate.output) store(gate.dresidual + at, three.grad);
    });
    return {block_reduce<Sum>(own.of_grad), block_reduce<Sum>(own.of_both)};
}

// The values of channels on the way back.
struct Gradients {
    Values mean, rstd, weight, bias, dweight, dbias;

    __device__ Line line(u32 channel) const {
        return {mean.get(channel), weight.get(channel) * rstd.get(channel), bias.get(channel)};
    }
};

// As in batch_norm.cu, of what passes the gate.
template <class T, int N>
__device__ void apply_gradient(
    const Gate<T>& gate, T* dsrc, const Part& part, const Gradients& gradients, const Line& line, Sums all, f32 count,
    bool writes) {
    const f32 rstd = gradients.rstd.get(part.channel);
    if (writes) {
        gradients.dweight.set(part.channel, all.of_both * rstd);
        gradients.dbias.set(part.channel, all.of_grad);
    }
    const f32 level = all.of_grad / count, slope = all.of_both * rstd * (rstd / count);
    const T* grad = gate.output ? gate.dresidual : gate.grad;
    const auto read = [&](u64 at) { return Two<T, N>{load<T, N>(gate.src + at), load<T, N>(grad + at)}; };
    part.each<N, 2>(read, [&](u64 at, Two<T, N> two) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 centred = to_f32(two.src.at[i]) - line.mean;
            f32 g = to_f32(two.residual.at[i]);
            if (!gate.output) g = gated(g, line.of_centred(centred), gate.slope);
            two.src.at[i] = from_f32<T>((g - level - centred * slope) * line.scale);
        }
        store(dsrc + at, two.src);
    });
}

// The gradients of a channel by one block.
template <class T, int N>
__device__ void backward_whole(const Gate<T>& gate, T* dsrc, const Gradients& gradients, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, 0, 1);
    const Line line = gradients.line(part.channel);
    const Sums all = sums_of<T, N>(gate, part, line);
    const f32 count = f32(shape.batch) * f32(shape.area);
    apply_gradient<T, N>(gate, dsrc, part, gradients, line, all, count, threadIdx.x == 0);
}

// The sums of a part of a channel.
template <class T, int N>
__device__ void backward_part(const Gate<T>& gate, const Gradients& gradients, Sums* parts, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, blockIdx.y, gridDim.y);
    const Sums own = sums_of<T, N>(gate, part, gradients.line(part.channel));
    if (threadIdx.x == 0) parts[u64(part.channel) * gridDim.y + blockIdx.y] = own;
}

// The gradients of a part of a channel.
template <class T, int N>
__device__ void backward_joined(
    const Gate<T>& gate, T* dsrc, const Gradients& gradients, const Sums* parts, Shape shape) {
    const u32 place = gridDim.y - 1 - blockIdx.y;
    const Part part(shape.channels, shape.batch, shape.area, N, place, gridDim.y);
    Sums all = {0.f, 0.f};
    for (u32 i = threadIdx.x; i < gridDim.y; i += blockDim.x) {
        const Sums other = parts[u64(part.channel) * gridDim.y + i];
        all.of_grad += other.of_grad;
        all.of_both += other.of_both;
    }
    all = {block_reduce<Sum>(all.of_grad), block_reduce<Sum>(all.of_both)};
    const Line line = gradients.line(part.channel);
    const f32 count = f32(shape.batch) * f32(shape.area);
    apply_gradient<T, N>(gate, dsrc, part, gradients, line, all, count, threadIdx.x == 0 && place == 0);
}

#define KERNEL(T, SUFFIX, NAME) \
    extern "C" __global__ __launch_bounds__(1024) void batch_norm_activation_##NAME##SUFFIX##_##T
#define FORWARD(T) \
    const T *src, const T *residual, T *dst, void *weight, u32 weight_type, void *bias, u32 bias_type, f32 *mean, \
        f32 *rstd, void *running_mean, u32 mean_type, void *running_var, u32 var_type, f32 eps, f32 momentum, \
        f32 slope, u32 batch, u32 channels, u32 area
#define KEPT {mean, rstd, {running_mean, mean_type}, {running_var, var_type}, eps, momentum}
#define BACKWARD(T) \
    const T *grad, const T *src, const T *output, T *dresidual, T *dsrc, void *mean, u32 mean_type, void *rstd, \
        u32 rstd_type, void *weight, u32 weight_type, void *bias, u32 bias_type, void *dweight, u32 dweight_type, \
        void *dbias, u32 dbias_type, f32 slope, u32 batch, u32 channels, u32 area
#define GATE {grad, src, output, dresidual, slope}
#define GRADIENTS \
    {{mean, mean_type},  {rstd, rstd_type},       {weight, weight_type}, \
     {bias, bias_type}, {dweight, dweight_type}, {dbias, dbias_type}}
// With vectors of N elements. Types of values follow their pointers.
#define BATCH_NORM(T, SUFFIX, N) \
    KERNEL(T, SUFFIX, whole)(FORWARD(T)) { \
        forward_whole<T, N>( \
            src, residual, dst, {weight, weight_type}, {bias, bias_type}, KEPT, slope, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, joined)(FORWARD(T), const Moments* parts) { \
        forward_joined<T, N>( \
            src, residual, dst, {weight, weight_type}, {bias, bias_type}, KEPT, slope, parts, \
            {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_whole)(BACKWARD(T)) { \
        backward_whole<T, N>(GATE, dsrc, GRADIENTS, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_part)(BACKWARD(T), Sums* parts) { \
        backward_part<T, N>(GATE, GRADIENTS, parts, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_joined)(BACKWARD(T), const Sums* parts) { \
        backward_joined<T, N>(GATE, dsrc, GRADIENTS, parts, {batch, channels, area}); \
    }
#define FOR_TYPE(T) \
    BATCH_NORM(T, _wide, WIDE<T>) \
    BATCH_NORM(T, _single, 1)
FOR_FLOATS(FOR_TYPE)
