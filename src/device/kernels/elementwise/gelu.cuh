// GELU's gate and slopes.

constexpr f32 SQRT_2_OVER_PI = 0.797884560802865f;
constexpr f32 SQRT_HALF = 0.707106781186548f;
constexpr f32 CUBE = 0.044715f;

// ½(1 + tanh(√(2/π)(x + CUBE·x³))), as the logistic function that this is: it does not cancel.
__device__ __forceinline__ f32 gelu_gate(f32 x) {
    const f32 inner = SQRT_2_OVER_PI * (x + CUBE * x * x * x);
    return __fdividef(1.f, 1.f + expf(-2.f * inner));
}

__device__ __forceinline__ f32 gelu_tanh_slope(f32 x) {
    const f32 gate = gelu_gate(x);
    return gate + 2.f * x * gate * (1.f - gate) * (SQRT_2_OVER_PI * (1.f + 3.f * CUBE * x * x));
}

__device__ __forceinline__ f32 gelu_erf_slope(f32 x) {
    const f32 density = 0.5f * SQRT_2_OVER_PI * __expf(-0.5f * x * x);
    return 0.5f * (1.f + erff(x * SQRT_HALF)) + x * density;
}

