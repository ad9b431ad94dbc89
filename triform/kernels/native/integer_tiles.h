// Tiles of a product with 8- or 4-bit weights: R rows × one block of 16 outputs over groups of 32 inputs.
//
// Within a group, codes of weights and activations are multiplied and added as whole numbers, exactly; the groups' sums
// are scaled and added up in the order of the groups. Instructions that multiply unsigned by signed bytes get weights
// that are 128 too large; the sum of the activations' codes takes that back.
#pragma once

#include "rows.h"

namespace {

// --- the exact sum of a group, for each instruction set -------------------------------------------------------------

#if TRIFORM_AVX512

constexpr int kShift = 128;

inline __m512i spread_four(const int8_t* codes) {
    int32_t four;
    memcpy(&four, codes, 4);
    return _mm512_set1_epi32(four);
}

template <int R>
inline void add_group(const Int8Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][1]) {
    UNROLL for (int j = 0; j < kGroup / 4; j++) {
        __m512i weights = _mm512_xor_si512(_mm512_loadu_si512(block.codes[j]), _mm512_set1_epi8(-128));
        UNROLL for (int r = 0; r < R; r++)
            sums[r][0] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[r][0], weights, spread_four(codes + r * stride + 4 * j));
    }
}

template <int R>
inline void add_group(const Int4Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][1]) {
    UNROLL for (int j = 0; j < kGroup / 8; j++) {
        __m512i both = _mm512_loadu_si512(block.codes[j]), low = _mm512_set1_epi8(15);
        __m512i first = _mm512_and_si512(both, low), second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        UNROLL for (int r = 0; r < R; r++)
            sums[r][0] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[r][0], first, spread_four(codes + r * stride + 4 * j));
        UNROLL for (int r = 0; r < R; r++)
            sums[r][0] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[r][0], second, spread_four(codes + r * stride + 4 * j + kGroup / 2));
    }
}

#elif TRIFORM_AVX2

inline __m256i spread_four(const int8_t* codes) {
    int32_t four;
    memcpy(&four, codes, 4);
    return _mm256_set1_epi32(four);
}
inline __m256i load_bytes(const void* from) { return _mm256_loadu_si256((const __m256i*)from); }

#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))

constexpr int kShift = 128;

inline __m256i add_four_products(__m256i sum, __m256i weights, __m256i codes) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, weights, codes);
#else
    return _mm256_dpbusd_epi32(sum, weights, codes);
#endif
}

template <int R>
inline void add_group(const Int8Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][2]) {
    UNROLL for (int j = 0; j < kGroup / 4; j++)
        UNROLL for (int half = 0; half < 2; half++) {
            __m256i weights = _mm256_xor_si256(load_bytes(block.codes[j][8 * half]), _mm256_set1_epi8(-128));
            UNROLL for (int r = 0; r < R; r++)
                sums[r][half] = (Ints)add_four_products((__m256i)sums[r][half], weights, spread_four(codes + r * stride + 4 * j));
        }
}

template <int R>
inline void add_group(const Int4Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][2]) {
    UNROLL for (int j = 0; j < kGroup / 8; j++)
        UNROLL for (int half = 0; half < 2; half++) {
            __m256i both = load_bytes(block.codes[j][8 * half]), low = _mm256_set1_epi8(15);
            __m256i first = _mm256_and_si256(both, low), second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            UNROLL for (int r = 0; r < R; r++) {
                const int8_t* at = codes + r * stride + 4 * j;
                sums[r][half] = (Ints)add_four_products((__m256i)sums[r][half], first, spread_four(at));
                sums[r][half] = (Ints)add_four_products((__m256i)sums[r][half], second, spread_four(at + kGroup / 2));
            }
        }
}

#else

constexpr int kShift = 0;

// GCC would make all products before it adds the first two, and run out of registers.
#define KEEP_ORDER(x, y) __asm__("" : "+x"(x), "+x"(y))

// maddubs adds two products in 16 bits: |weight| · ±activation is at most 128 · 127, so that two fit.
template <int R>
inline void add_group(const Int8Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int j = 0; j < kGroup / 4; j++) {
        __m256i low = load_bytes(block.codes[j][0]), high = load_bytes(block.codes[j][8]);
        __m256i low_size = _mm256_abs_epi8(low), high_size = _mm256_abs_epi8(high);
        UNROLL for (int r = 0; r < R; r++) {
            __m256i four = spread_four(codes + r * stride + 4 * j);
            __m256i low_pairs = _mm256_maddubs_epi16(low_size, _mm256_sign_epi8(four, low));
            __m256i high_pairs = _mm256_maddubs_epi16(high_size, _mm256_sign_epi8(four, high));
            sums[r][0] += (Ints)_mm256_madd_epi16(low_pairs, ones);
            sums[r][1] += (Ints)_mm256_madd_epi16(high_pairs, ones);
            if (R > 1) KEEP_ORDER(sums[r][0], sums[r][1]);
        }
    }
}

// Of 0 … 15 times −127 … 127, eight pairs fit into 16 bits: 8 · 2 · 15 · 127 = 30,480.
template <int R>
inline void add_group(const Int4Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][2]) {
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i pairs[R][2] = {};
    UNROLL for (int j = 0; j < kGroup / 8; j++)
        UNROLL for (int second = 0; second < 2; second++) {
            __m256i low = load_bytes(block.codes[j][0]), high = load_bytes(block.codes[j][8]);
            low = _mm256_and_si256(second ? _mm256_srli_epi16(low, 4) : low, mask);
            high = _mm256_and_si256(second ? _mm256_srli_epi16(high, 4) : high, mask);
            UNROLL for (int r = 0; r < R; r++) {
                __m256i four = spread_four(codes + r * stride + 4 * j + kGroup / 2 * second);
                pairs[r][0] = _mm256_add_epi16(pairs[r][0], _mm256_maddubs_epi16(low, four));
                pairs[r][1] = _mm256_add_epi16(pairs[r][1], _mm256_maddubs_epi16(high, four));
                if (R > 1) KEEP_ORDER(pairs[r][0], pairs[r][1]);
            }
        }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int half = 0; half < 2; half++) sums[r][half] += (Ints)_mm256_madd_epi16(pairs[r][half], ones);
}

#endif

#elif TRIFORM_NEON

constexpr int kShift = 0;

inline int8x16_t spread_four(const int8_t* codes) {
    int32_t four;
    memcpy(&four, codes, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

template <int R>
inline void add_group(const Int8Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][kParts]) {
    UNROLL for (int j = 0; j < kGroup / 4; j++)
        UNROLL for (int p = 0; p < kParts; p++) {
            int8x16_t weights = vld1q_s8(&block.codes[j][4 * p][0]);
            UNROLL for (int r = 0; r < R; r++)
                sums[r][p] = (Ints)vdotq_s32((int32x4_t)sums[r][p], weights, spread_four(codes + r * stride + 4 * j));
        }
}

template <int R>
inline void add_group(const Int4Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][kParts]) {
    UNROLL for (int j = 0; j < kGroup / 8; j++)
        UNROLL for (int p = 0; p < kParts; p++) {
            uint8x16_t both = vld1q_u8(&block.codes[j][4 * p][0]);
            int8x16_t first = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
            int8x16_t second = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
            UNROLL for (int r = 0; r < R; r++) {
                const int8_t* at = codes + r * stride + 4 * j;
                sums[r][p] = (Ints)vdotq_s32((int32x4_t)sums[r][p], first, spread_four(at));
                sums[r][p] = (Ints)vdotq_s32((int32x4_t)sums[r][p], second, spread_four(at + kGroup / 2));
            }
        }
}

#else

constexpr int kShift = 0;

inline int code_of(const Int8Block& block, int output, int k) { return block.codes[k / 4][output][k % 4]; }
inline int code_of(const Int4Block& block, int output, int k) {
    return block.codes[k % (kGroup / 2) / 4][output][k % 4] >> (k < kGroup / 2 ? 0 : 4) & 15;
}

template <int R, class Block>
inline void add_group(const Block& block, const int8_t* codes, int64_t stride, Ints (&sums)[R][kParts]) {
    for (int r = 0; r < R; r++)
        for (int output = 0; output < kWidth; output++) {
            int32_t sum = 0;
            for (int k = 0; k < kGroup; k++) sum += code_of(block, output, k) * codes[r * stride + k];
            sums[r][output / kLanes][output % kLanes] += sum;
        }
}

#endif

// The same of P blocks, which lie `apart` structures from each other.
template <int R, int P, class Block>
inline void add_groups(const Block* blocks, int64_t apart, const int8_t* codes, int64_t stride, Ints (&sums)[P][R][kParts]) {
    UNROLL for (int p = 0; p < P; p++) add_group<R>(blocks[p * apart], codes, stride, sums[p]);
}

#if TRIFORM_AVX512

// Four codes of a row are spread once for both blocks: loading them, not multiplying, is what takes time.
template <int R, int P>
inline void add_groups(const Int8Block* blocks, int64_t apart, const int8_t* codes, int64_t stride, Ints (&sums)[P][R][1]) {
    UNROLL for (int j = 0; j < kGroup / 4; j++) {
        __m512i weights[P];
        UNROLL for (int p = 0; p < P; p++)
            weights[p] = _mm512_xor_si512(_mm512_loadu_si512(blocks[p * apart].codes[j]), _mm512_set1_epi8(-128));
        UNROLL for (int r = 0; r < R; r++) {
            __m512i four = spread_four(codes + r * stride + 4 * j);
            UNROLL for (int p = 0; p < P; p++) sums[p][r][0] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[p][r][0], weights[p], four);
        }
    }
}

#endif

// --- the tile ---------------------------------------------------------------------------------------------------------

constexpr int find_shift(const Int8Block*) { return kShift; }
constexpr int find_shift(const Int4Block*) { return 0; }
inline const Half* find_minimums(const Int8Block&) { return nullptr; }
inline const Half* find_minimums(const Int4Block& block) { return block.minimums; }

// totals[row][output] += Σ over groups of scale · (scale of the activations) · (exact sum) [+ minimum · Σ activations]
template <int R, int P, class Block>
NOT_INLINED void add_tile(const Block* blocks, int64_t apart, const Rows& rows, int64_t first, int64_t count, float* totals, int64_t totals_stride, bool once) {
    Floats total[R][P * kParts];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int p = 0; p < P * kParts; p++) total[r][p] = load(totals + r * totals_stride + p * kLanes);
    for (int64_t g = first / kGroup; g * kGroup < first + count; g++) {
        if (once)
            UNROLL for (int p = 0; p < P; p++)
                UNROLL for (int at = 0; at < (int)sizeof(Block); at += 64) prefetch((const char*)&blocks[g + p * apart] + at + kFetchAhead);
        Ints sums[P][R][kParts];
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int p = 0; p < P * kParts; p++)
                sums[p / kParts][r][p % kParts] = spread_int(-find_shift(blocks) * rows.sums[r * rows.group_stride + g]);
        add_groups<R, P>(blocks + g, apart, rows.codes + g * kGroup, rows.code_stride, sums);
        UNROLL for (int p = 0; p < P * kParts; p++) {
            const Block& block = blocks[g + p / kParts * apart];
            Floats scales = load_halves(block.scales + p % kParts * kLanes);
            UNROLL for (int r = 0; r < R; r++) {
                float scale = rows.scales[r * rows.group_stride + g];
                total[r][p] = fma(to_floats(sums[p / kParts][r][p % kParts]), scales * scale, total[r][p]);
                if (const Half* minimums = find_minimums(block)) {
                    float of_codes = scale * (float)rows.sums[r * rows.group_stride + g];
                    total[r][p] = fma(load_halves(minimums + p % kParts * kLanes), spread(of_codes), total[r][p]);
                }
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int p = 0; p < P * kParts; p++) store(totals + r * totals_stride + p * kLanes, total[r][p]);
}

}  // namespace
