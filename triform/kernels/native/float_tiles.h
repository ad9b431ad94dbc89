// Tiles of a product with float32 or bfloat16 weights: R rows × P blocks of 16 outputs over one chain of inputs.
//
// The products of a chain are added up one by one, the chains' sums likewise: an output is added up in one order,
// whatever the number of rows, blocks and threads. A single long chain would lose digits.
#pragma once

#include "rows.h"

namespace {

constexpr int kChain = 128;  // inputs

// sums[row][block · 16 + output] += Σ over `count` inputs; blocks lie `apart` structures from each other
template <int R, int P>
NOT_INLINED void add_tile(const Float32Block* blocks, int64_t apart, const Rows& rows, int64_t first, int64_t count, float* sums, int64_t sums_stride, bool once) {
    Floats chain[R][P * kParts] = {};
    const float* x = rows.numbers + first;
    const Float32Block* at = blocks + first;
    for (int64_t k = 0; k < count; k++, at++)
        UNROLL for (int p = 0; p < P * kParts; p++) {
            const float* from = at[p / kParts * apart].weights + p % kParts * kLanes;
            Floats weights = load(from);
            if (once && R > 1 && p % kParts == 0) prefetch((const char*)from + kFetchAhead);
            UNROLL for (int r = 0; r < R; r++) chain[r][p] = fma(weights, spread(x[r * rows.stride + k]), chain[r][p]);
        }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int p = 0; p < P * kParts; p++) {
            float* sum = sums + r * sums_stride + p * kLanes;
            store(sum, load(sum) + chain[r][p]);
        }
}

template <int R, int P>
NOT_INLINED void add_tile(const Bfloat16Block* blocks, int64_t apart, const Rows& rows, int64_t first, int64_t count, float* sums, int64_t sums_stride, bool once) {
    Floats chain[R][P * kParts] = {};
    const float* x = rows.numbers + first;
    const Bfloat16Block* at = blocks + first / 2;
    for (int64_t k = 0; k < count; k += 2, at++)
        UNROLL for (int p = 0; p < P * kParts; p++) {
            const uint16_t* from = at[p / kParts * apart].weights[p % kParts * kLanes];
            Words pair = *(const Words*)from;
            if (once && R > 1 && p % kParts == 0) prefetch((const char*)from + kFetchAhead);
            Floats even = (Floats)(pair << 16), odd = (Floats)(pair & 0xffff0000u);
            UNROLL for (int r = 0; r < R; r++) chain[r][p] = fma(even, spread(x[r * rows.stride + k]), chain[r][p]);
            UNROLL for (int r = 0; r < R; r++) chain[r][p] = fma(odd, spread(x[r * rows.stride + k + 1]), chain[r][p]);
        }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int p = 0; p < P * kParts; p++) {
            float* sum = sums + r * sums_stride + p * kLanes;
            store(sum, load(sum) + chain[r][p]);
        }
}

}  // namespace
