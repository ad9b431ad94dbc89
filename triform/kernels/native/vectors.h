// Registers of floats, in the width of the instruction set that this library is compiled for.
//
// Sums over many numbers use 16 lanes whatever the width (two registers with AVX2, four with NEON), and are folded in
// one order, so that every instruction set gives the same bits. The compiler must not contract a * b + c by itself
// (-ffp-contract=off): where one rounding is meant, `fma` says so.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(TRIFORM_PORTABLE)
#define TRIFORM_LANES 4
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__) && !defined(TRIFORM_NARROW)
#define TRIFORM_AVX512 1
#define TRIFORM_LANES 16
#include <immintrin.h>
#elif defined(__AVX2__)
#define TRIFORM_AVX2 1
#define TRIFORM_LANES 8
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#define TRIFORM_NEON 1
#define TRIFORM_LANES 4
#include <arm_neon.h>
#else
#define TRIFORM_PORTABLE 1
#define TRIFORM_LANES 4
#endif

#define UNROLL _Pragma("GCC unroll 32")
// A tile keeps its sums in registers only where the compiler sees nothing else beside it.
#define NOT_INLINED __attribute__((noinline))

namespace {

constexpr int kLanes = TRIFORM_LANES;
constexpr int kWidth = 16;                 // outputs of a block, lanes of a sum
constexpr int kParts = kWidth / kLanes;    // registers that hold them
constexpr int kRegisterBytes = 4 * kLanes;

typedef float Floats __attribute__((vector_size(kRegisterBytes), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(kRegisterBytes), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(kRegisterBytes), aligned(4), may_alias));

inline Floats load(const float* from) { return *(const Floats*)from; }
inline void store(float* to, Floats x) { *(Floats*)to = x; }
inline Floats spread(float x) { return x - Floats{}; }
inline Ints spread_int(int32_t x) { return x - Ints{}; }
inline Floats choose(Ints condition, Floats yes, Floats no) { return (Floats)((condition & (Ints)yes) | (~condition & (Ints)no)); }
inline Floats larger(Floats x, Floats y) { return choose(x > y, x, y); }
inline Floats magnitude(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }

// a · b + c, rounded once
inline Floats fma(Floats a, Floats b, Floats c) {
#if TRIFORM_AVX512
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif TRIFORM_AVX2
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif TRIFORM_NEON
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    Floats sum;
    for (int lane = 0; lane < kLanes; lane++) sum[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return sum;
#endif
}

inline Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }

// The nearest whole number, halves to even, for magnitudes below 2²².
constexpr float kRounder = 0x1.8p23f;
inline Ints to_whole(Floats x) { return (Ints)(x + kRounder) - 0x4b400000; }

// --- over the 16 lanes of a sum -----------------------------------------------------------------------------------

// ((lane 0 + lane 8) + (lane 4 + lane 12)) + …: lane i + 8, then + 4, + 2, + 1
inline float fold(const Floats (&sums)[kParts]) {
#if TRIFORM_AVX512
    __m512 whole = (__m512)sums[0];
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(whole), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(whole), 1)));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#elif TRIFORM_AVX2
    __m256 eight = (__m256)(sums[0] + sums[1]);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    Floats four = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
#endif
}

// The largest of the 16 lanes, by halves.
inline float fold_largest(const Floats (&parts)[kParts]) {
    alignas(64) float lanes[kWidth];
    memcpy(lanes, parts, sizeof lanes);
    for (int half = kWidth / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return lanes[0];
}

// --- 16 bits --------------------------------------------------------------------------------------------------------

using Half = uint16_t;

inline float widen_half(Half half) {
    uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu, bits;
    if (rest < 0x0400u) return copysignf((float)rest * 0x1p-24f, half & 0x8000u ? -1.0f : 1.0f);
    bits = sign | ((rest << 13) + (rest < 0x7c00u ? 112u << 23 : 224u << 23));
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

inline Floats load_halves(const Half* from) {
#if TRIFORM_AVX512
    return (Floats)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i*)from));
#elif TRIFORM_AVX2
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#elif TRIFORM_NEON
    return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    Floats x;
    for (int lane = 0; lane < kLanes; lane++) x[lane] = widen_half(from[lane]);
    return x;
#endif
}

inline void prefetch(const void* from) { __builtin_prefetch(from, 0, 3); }

}  // namespace
