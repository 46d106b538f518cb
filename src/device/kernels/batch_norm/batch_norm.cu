// Batch normalisation of (batch, channels, area). Where one block is enough for a channel it does everything; else a
// first kernel takes the statistics of parts of channels, and a second joins them, each block for itself, and goes
// through the parts backwards: what was read last may still be in the cache.

// Stores (src − mean) · scale + shift.
template <class T, int N>
__device__ void apply(const T* src, T* dst, const Part& part, f32 mean, f32 scale, f32 shift) {
    part.each<N, 4>([&](u64 at) { return load<T, N>(src + at); }, [&](u64 at, Pack<T, N> pack) {
#pragma unroll
        for (int i = 0; i < N; i++) pack.at[i] = from_f32<T>((to_f32(pack.at[i]) - mean) * scale + shift);
        store(dst + at, pack);
    });
}

// Normalises a channel by one block.
template <class T, int N>
__device__ void forward_whole(const T* src, T* dst, Values weight, Values bias, const Kept& kept, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, 0, 1);
    const Moments all = moments_of<T, N>(src, part);
    const f32 rstd = kept.keep(all, part.channel, threadIdx.x == 0);
    apply<T, N>(src, dst, part, all.mean, weight.get(part.channel) * rstd, bias.get(part.channel));
}

// The moments of a part of a channel.
template <class T, int N> __device__ void forward_part(const T* src, Moments* parts, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, blockIdx.y, gridDim.y);
    const Moments own = moments_of<T, N>(src, part);
    if (threadIdx.x == 0) parts[u64(part.channel) * gridDim.y + blockIdx.y] = own;
}

// Normalises a part of a channel.
template <class T, int N>
__device__ void forward_joined(
    const T* src, T* dst, Values weight, Values bias, const Kept& kept, const Moments* parts, Shape shape) {
    const u32 place = gridDim.y - 1 - blockIdx.y;
    const Part part(shape.channels, shape.batch, shape.area, N, place, gridDim.y);
    Moments all = {0.f, 0.f, 0.f};
    for (u32 i = threadIdx.x; i < gridDim.y; i += blockDim.x) {
        all = join(all, parts[u64(part.channel) * gridDim.y + i]);
    }
    all = join_block(all);
    const f32 rstd = kept.keep(all, part.channel, threadIdx.x == 0 && place == 0);
    apply<T, N>(src, dst, part, all.mean, weight.get(part.channel) * rstd, bias.get(part.channel));
}

// Normalises a part of a channel by running statistics.
template <class T, int N>
__device__ void inference(
    const T* src, T* dst, Values weight, Values bias, Values running_mean, Values running_var, f32 eps, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, blockIdx.y, gridDim.y);
    const u32 channel = part.channel;
    const f32 scale = weight.get(channel) / sqrtf(running_var.get(channel) + eps);
    apply<T, N>(src, dst, part, running_mean.get(channel), scale, bias.get(channel));
}

template <class T, int N> struct Both {
    Pack<T, N> grad, src;
};

template <class T, int N>
__device__ Sums sums_of(const T* grad, const T* src, const Part& part, f32 mean) {
    Sums own = {0.f, 0.f};
    const auto read = [&](u64 at) { return Both<T, N>{load<T, N>(grad + at), load<T, N>(src + at)}; };
    part.each<N, 2>(read, [&](u64, const Both<T, N>& both) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 g = to_f32(both.grad.at[i]);
            own.of_grad += g;
            own.of_both += g * (to_f32(both.src.at[i]) - mean);
        }
    });
    return {block_reduce<Sum>(own.of_grad), block_reduce<Sum>(own.of_both)};
}

// What the forward pass normalised by: the statistics of the batch, as `mean` and `deviation` = 1/√(variance + eps), or
// running ones, as `mean` and `deviation` = variance.
struct Statistics {
    Values mean, deviation;
    u32 running;
    f32 eps;

    __device__ f32 rstd(u32 channel) const {
        const f32 x = deviation.get(channel);
        return running ? 1.f / sqrtf(x + eps) : x;
    }
};

struct Gradients {
    Values weight, dweight, dbias;
};

// With x̂ = (x − mean) · rstd: dbias = Σ g, dweight = Σ g·x̂, dx = weight · rstd · (g − dbias / n − x̂ · dweight /
// n); of running statistics dx = weight · rstd · g.
template <class T, int N>
__device__ void apply_gradient(
    const T* grad, const T* src, T* dsrc, const Part& part, const Statistics& statistics, const Gradients& gradients,
    Sums all, f32 count, bool writes) {
    const u32 channel = part.channel;
    const f32 mean = statistics.mean.get(channel), rstd = statistics.rstd(channel);
    const f32 scale = gradients.weight.get(channel) * rstd;
    if (writes) {
        gradients.dweight.set(channel, all.of_both * rstd);
        gradients.dbias.set(channel, all.of_grad);
    }
    const f32 level = statistics.running ? 0.f : all.of_grad / count;
    const f32 slope = statistics.running ? 0.f : all.of_both * rstd * (rstd / count);
    const auto read = [&](u64 at) { return Both<T, N>{load<T, N>(grad + at), load<T, N>(src + at)}; };
    part.each<N, 2>(read, [&](u64 at, Both<T, N> both) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 centred = to_f32(both.src.at[i]) - mean;
            both.grad.at[i] = from_f32<T>((to_f32(both.grad.at[i]) - level - centred * slope) * scale);
        }
        store(dsrc + at, both.grad);
    });
}

// The gradients of a channel by one block.
template <class T, int N>
__device__ void backward_whole(
    const T* grad, const T* src, T* dsrc, const Statistics& statistics, const Gradients& gradients, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, 0, 1);
    const Sums all = sums_of<T, N>(grad, src, part, statistics.mean.get(part.channel));
    const f32 count = f32(shape.batch) * f32(shape.area);
    apply_gradient<T, N>(grad, src, dsrc, part, statistics, gradients, all, count, threadIdx.x == 0);
}

// The sums of a part of a channel.
template <class T, int N>
__device__ void backward_part(const T* grad, const T* src, Values mean, Sums* parts, Shape shape) {
    const Part part(shape.channels, shape.batch, shape.area, N, blockIdx.y, gridDim.y);
    const Sums own = sums_of<T, N>(grad, src, part, mean.get(part.channel));
    if (threadIdx.x == 0) parts[u64(part.channel) * gridDim.y + blockIdx.y] = own;
}

// The gradients of a part of a channel.
template <class T, int N>
__device__ void backward_joined(
    const T* grad, const T* src, T* dsrc, const Statistics& statistics, const Gradients& gradients, const Sums* parts,
    Shape shape) {
    const u32 place = gridDim.y - 1 - blockIdx.y;
    const Part part(shape.channels, shape.batch, shape.area, N, place, gridDim.y);
    Sums all = {0.f, 0.f};
    for (u32 i = threadIdx.x; i < gridDim.y; i += blockDim.x) {
        const Sums other = parts[u64(part.channel) * gridDim.y + i];
        all.of_grad += other.of_grad;
        all.of_both += other.of_both;
    }
    all = {block_reduce<Sum>(all.of_grad), block_reduce<Sum>(all.of_both)};
    const f32 count = f32(shape.batch) * f32(shape.area);
    apply_gradient<T, N>(
        grad, src, dsrc, part, statistics, gradients, all, count, threadIdx.x == 0 && place == 0);
}

#define KERNEL(T, SUFFIX, NAME) extern "C" __global__ __launch_bounds__(1024) void batch_norm_##NAME##SUFFIX##_##T
// With vectors of N elements. Types of values follow their pointers.
#define BATCH_NORM(T, SUFFIX, N) \
    KERNEL(T, SUFFIX, whole)( \
        const T* src, T* dst, void* weight, u32 weight_type, void* bias, u32 bias_type, f32* mean, f32* rstd, \
        void* running_mean, u32 mean_type, void* running_var, u32 var_type, f32 eps, f32 momentum, \
        u32 batch, u32 channels, u32 area) { \
        const Kept kept = {mean, rstd, {running_mean, mean_type}, {running_var, var_type}, eps, momentum}; \
        forward_whole<T, N>( \
            src, dst, {weight, weight_type}, {bias, bias_type}, kept, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, part)(const T* src, Moments* parts, u32 batch, u32 channels, u32 area) { \
        forward_part<T, N>(src, parts, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, joined)( \
        const T* src, T* dst, void* weight, u32 weight_type, void* bias, u32 bias_type, f32* mean, f32* rstd, \
        void* running_mean, u32 mean_type, void* running_var, u32 var_type, f32 eps, f32 momentum, \
        u32 batch, u32 channels, u32 area, const Moments* parts) { \
        const Kept kept = {mean, rstd, {running_mean, mean_type}, {running_var, var_type}, eps, momentum}; \
        forward_joined<T, N>( \
            src, dst, {weight, weight_type}, {bias, bias_type}, kept, parts, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, inference)( \
        const T* src, T* dst, void* weight, u32 weight_type, void* bias, u32 bias_type, void* running_mean, \
        u32 mean_type, void* running_var, u32 var_type, f32 eps, u32 batch, u32 channels, u32 area) { \
        inference<T, N>( \
            src, dst, {weight, weight_type}, {bias, bias_type}, {running_mean, mean_type}, {running_var, var_type}, \
            eps, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_whole)( \
        const T* grad, const T* src, T* dsrc, void* mean, u32 mean_type, void* deviation, u32 deviation_type, \
        u32 running, f32 eps, void* weight, u32 weight_type, void* dweight, u32 dweight_type, void* dbias, \
        u32 dbias_type, u32 batch, u32 channels, u32 area) { \
        const Statistics statistics = {{mean, mean_type}, {deviation, deviation_type}, running, eps}; \
        const Gradients gradients = {{weight, weight_type}, {dweight, dweight_type}, {dbias, dbias_type}}; \
        backward_whole<T, N>(grad, src, dsrc, statistics, gradients, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_part)( \
        const T* grad, const T* src, void* mean, u32 mean_type, Sums* parts, u32 batch, u32 channels, u32 area) { \
        backward_part<T, N>(grad, src, {mean, mean_type}, parts, {batch, channels, area}); \
    } \
    KERNEL(T, SUFFIX, backward_joined)( \
        const T* grad, const T* src, T* dsrc, void* mean, u32 mean_type, void* deviation, u32 deviation_type, \
        u32 running, f32 eps, void* weight, u32 weight_type, void* dweight, u32 dweight_type, void* dbias, \
        u32 dbias_type, u32 batch, u32 channels, u32 area, const Sums* parts) { \
        const Statistics statistics = {{mean, mean_type}, {deviation, deviation_type}, running, eps}; \
        const Gradients gradients = {{weight, weight_type}, {dweight, dweight_type}, {dbias, dbias_type}}; \
        backward_joined<T, N>(grad, src, dsrc, statistics, gradients, parts, {batch, channels, area}); \
    }
#define FOR_TYPE(T) \
    BATCH_NORM(T, _wide, WIDE<T>) \
    BATCH_NORM(T, _single, 1)
FOR_FLOATS(FOR_TYPE)
