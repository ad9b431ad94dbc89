// The product of rows with a packed matrix, with what is before and after it.
#pragma once

#include "float_tiles.h"
#include "integer_tiles.h"
#include "team.h"

namespace {

constexpr int kItemBlocks = 4;       // blocks of 16 outputs that one member of the team takes at a time
constexpr int64_t kSlab = 256;       // rows whose sums are held at once
constexpr int64_t kManyRows = 9;     // from here on, weights of a few inputs stay in the cache for all rows
constexpr int64_t kOwnRows = 4;      // up to here, each member prepares all rows for itself, without a meeting
constexpr int64_t kGroupsAtOnce = 8; // groups of a matrix that stay in the cache for many rows

// What one thread needs of its own.
struct Member {
    int number;
    Team* team;
    Scratch* own;     // of this member
    Scratch* common;  // of the team
};

// How many rows and blocks a tile has, so that its sums fit into the registers beside the broadcast numbers of the rows.
template <class Block>
struct TileShape {
#if TRIFORM_AVX512
    static constexpr int rows = 8, blocks = 2;
#elif TRIFORM_AVX2
    static constexpr int rows = 4, blocks = 1;
#elif TRIFORM_NEON
    static constexpr int rows = 4, blocks = 1;
#else
    static constexpr int rows = 2, blocks = 1;
#endif
    static constexpr int64_t inputs_at_once = kChain;
    static constexpr int64_t chain = kChain;
    static constexpr int blocks_of_one_row = 4;
};
struct IntegerShape {
#if TRIFORM_AVX512
    static constexpr int rows = 8;
#elif TRIFORM_AVX2
    static constexpr int rows = 4;
#elif TRIFORM_NEON
    static constexpr int rows = 4;
#else
    static constexpr int rows = 2;
#endif
    static constexpr int blocks = 1;
    static constexpr int64_t inputs_at_once = kGroupsAtOnce * kGroup;
    static constexpr int64_t chain = INT64_MAX;
    static constexpr int blocks_of_one_row = 1;
};
template <> struct TileShape<Int8Block> : IntegerShape {
#if TRIFORM_AVX512
    static constexpr int blocks = 2;
#endif
};
template <> struct TileShape<Int4Block> : IntegerShape {};

// --- before ---------------------------------------------------------------------------------------------------------

inline bool reads_codes(const Operation& op) { return op.weights == kInt8 || op.weights == kInt4; }

// The inputs that a kind of weights reads: whole groups, or pairs.
inline int64_t count_padded_inputs(const Operation& op) {
    return reads_codes(op) ? round_up(op.inputs, kGroup) : op.weights == kBfloat16 ? round_up(op.inputs, 2) : op.inputs;
}

inline bool is_prepared(const Operation& op) {
    return !reads_codes(op) && !op.gated && op.norm.kind == kNoNorm && op.factor == 1.0f && count_padded_inputs(op) == op.inputs;
}

struct Prepared {  // where prepared rows lie in scratch memory
    float* numbers;
    int64_t stride;
    float* scales;
    int32_t* sums;
    int64_t groups;
    int8_t* codes;

    static size_t count_bytes(int64_t rows, int64_t inputs) {
        int64_t stride = round_up(inputs, kGroup) + kWidth, groups = stride / kGroup + 1;
        return rows * (stride * 4 + groups * 8 + groups * kGroup) + 256;
    }
    static Prepared lie_in(char* at, int64_t rows, int64_t inputs) {
        Prepared to;
        to.stride = round_up(inputs, kGroup) + kWidth, to.groups = to.stride / kGroup + 1;
        to.numbers = (float*)at;
        to.scales = to.numbers + rows * to.stride;
        to.sums = (int32_t*)(to.scales + rows * to.groups);
        to.codes = (int8_t*)(to.sums + rows * to.groups);
        return to;
    }
    Rows rows() const { return {numbers, stride, codes, groups * kGroup, scales, sums, groups}; }
};

inline void prepare_row(const Operation& op, const float* x, const Prepared& to, int64_t row) {
    float* y = to.numbers + row * to.stride;
    if (op.gated) gate(op.activation, x, y, op.inputs);
    else normalize(op.norm, x, y, op.inputs, op.factor);
    for (int64_t at = op.inputs; at < to.stride; at++) y[at] = 0;
    if (reads_codes(op))
        quantize_row(y, round_up(op.inputs, kGroup) / kGroup, to.codes + row * to.groups * kGroup, to.scales + row * to.groups, to.sums + row * to.groups);
}

// --- after ----------------------------------------------------------------------------------------------------------

// 16 outputs of one row: + bias, activation, stored or added
inline void finish(const Operation& op, const Buffer& target, int64_t row, int64_t block, const float* sums) {
    int64_t output = block * kWidth, count = op.outputs - output < kWidth ? op.outputs - output : kWidth;
    float* to = target.data + row * target.stride + output;
    alignas(64) float part[kWidth];
    for (int p = 0; p < kWidth; p += kLanes) {
        Floats x = load(sums + p);
        if (op.bias) x += load(op.bias + output + p);
        store(part + p, op.gated ? x : activate(op.activation, x));
    }
    if (count == kWidth) {
        for (int p = 0; p < kWidth; p += kLanes) store(to + p, op.adds ? load(to + p) + load(part + p) : load(part + p));
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = op.adds ? to[i] + part[i] : part[i];
    }
}

// --- the product ----------------------------------------------------------------------------------------------------

template <int R, int P, class Block>
inline void add_tiles(const Block* matrix, int64_t apart, int blocks, const Rows& rows, int64_t first, int64_t count, float* sums, int64_t stride, bool once) {
    int b = 0;
    for (; b + P <= blocks; b += P) add_tile<R, P>(matrix + b * apart, apart, rows, first, count, sums + b * kWidth, stride, once);
    if constexpr (P > 1)
        for (; b < blocks; b++) add_tile<R, 1>(matrix + b * apart, apart, rows, first, count, sums + b * kWidth, stride, once);
}

// sums[row][output] for up to kItemBlocks blocks and kSlab rows, over inputs first … first + count; `once`: the weights come
// from memory, and are not read again
template <class Block>
inline void add_inputs(const Block* matrix, int64_t apart, int blocks, const Rows& rows, int64_t row_count, int64_t first, int64_t count, float* sums, int64_t stride, bool once = false) {
    using Shape = TileShape<Block>;
    constexpr int R = Shape::rows, P = Shape::blocks;
    int64_t row = 0;
    for (; row + R <= row_count; row += R) add_tiles<R, P>(matrix, apart, blocks, rows.from(row), first, count, sums + row * stride, stride, once);
    if constexpr (R > 8)
        for (; row + 8 <= row_count; row += 8) add_tiles<8, P>(matrix, apart, blocks, rows.from(row), first, count, sums + row * stride, stride, once);
    if constexpr (R > 4)
        for (; row + 4 <= row_count; row += 4) add_tiles<4, P>(matrix, apart, blocks, rows.from(row), first, count, sums + row * stride, stride, once);
    if constexpr (R > 2)
        for (; row + 2 <= row_count; row += 2) add_tiles<2, P>(matrix, apart, blocks, rows.from(row), first, count, sums + row * stride, stride, once);
    for (; row < row_count; row++)
        add_tiles<1, Shape::blocks_of_one_row>(matrix, apart, blocks, rows.from(row), first, count, sums + row * stride, stride, once);
}

// Some blocks of outputs for all rows. Chains of inputs begin at the same places, however many rows there are.
template <class Block>
inline void multiply_blocks(const Operation& op, const Buffer& target, const Rows& rows, int64_t row_count, int64_t block, int blocks, float* sums) {
    using Shape = TileShape<Block>;
    const int64_t inputs = count_padded_inputs(op), apart = inputs / count_inputs((Block*)nullptr), stride = blocks * kWidth;
    const Block* matrix = (const Block*)op.matrix + block * apart;
    int64_t step = row_count < kManyRows ? Shape::chain : Shape::inputs_at_once;
    if (step > inputs) step = inputs;
    for (int64_t slab = 0; slab < row_count; slab += kSlab) {
        int64_t in_slab = row_count - slab < kSlab ? row_count - slab : kSlab;
        memset(sums, 0, in_slab * stride * sizeof(float));
        for (int64_t first = 0; first < inputs; first += step) {
            int64_t count = inputs - first < step ? inputs - first : step;
            add_inputs(matrix, apart, blocks, rows.from(slab), in_slab, first, count, sums, stride, row_count < kManyRows);
        }
        for (int64_t r = 0; r < in_slab; r++)
            for (int b = 0; b < blocks; b++) finish(op, target, slab + r, block + b, sums + r * stride + b * kWidth);
    }
}

template <class Block>
inline void multiply(const Operation& op, const Buffer& target, const Rows& rows, int64_t row_count, Member& me, float* sums) {
    int64_t blocks = (op.outputs + kWidth - 1) / kWidth, members = me.team->count();
    int64_t step = blocks >= 2 * kItemBlocks * members ? kItemBlocks : blocks >= 4 * members ? 2 : 1;
    for (int64_t block; (block = me.team->take_next(step)) < blocks;)
        multiply_blocks<Block>(op, target, rows, row_count, block, (int)(blocks - block < step ? blocks - block : step), sums);
}

inline void run_linear(const Operation& op, const Frame& frame, int64_t row_count, Member& me) {
    const Buffer &source = frame.buffers[op.source], &target = frame.buffers[op.target];
    bool alone = row_count <= kOwnRows, direct = is_prepared(op);
    size_t sums_bytes = (row_count < kSlab ? row_count : kSlab) * kItemBlocks * kWidth * sizeof(float);
    size_t prepared_bytes = direct ? 0 : Prepared::count_bytes(row_count, op.inputs);
    char* own = me.own->reserve(sums_bytes + (alone ? prepared_bytes : 0));
    Rows rows = {source.data, source.stride, nullptr, 0, nullptr, nullptr, 0};
    if (!direct) {
        Prepared to = Prepared::lie_in(alone ? own + sums_bytes : me.common->reserve(0), row_count, op.inputs);
        int64_t first = alone ? 0 : row_count * me.number / me.team->count();
        int64_t last = alone ? row_count : row_count * (me.number + 1) / me.team->count();
        for (int64_t row = first; row < last; row++) prepare_row(op, source.data + row * source.stride, to, row);
        rows = to.rows();
        if (!alone) me.team->meet();
    }
    switch (op.weights) {
        case kFloat32: multiply<Float32Block>(op, target, rows, row_count, me, (float*)own); break;
        case kBfloat16: multiply<Bfloat16Block>(op, target, rows, row_count, me, (float*)own); break;
        case kInt8: multiply<Int8Block>(op, target, rows, row_count, me, (float*)own); break;
        case kInt4: multiply<Int4Block>(op, target, rows, row_count, me, (float*)own); break;
    }
    me.team->meet();
}

inline void run_norm(const Operation& op, const Frame& frame, int64_t row_count, Member& me) {
    const Buffer &source = frame.buffers[op.source], &target = frame.buffers[op.target];
    float* room = (float*)me.own->reserve(round_up(op.inputs, kWidth) * sizeof(float));
    int64_t first = row_count * me.number / me.team->count(), last = row_count * (me.number + 1) / me.team->count();
    for (int64_t row = first; row < last; row++) {
        normalize(op.norm, source.data + row * source.stride, room, op.inputs, op.factor);
        float* to = target.data + row * target.stride;
        for (int64_t at = 0; at < op.inputs; at++) to[at] = op.adds ? to[at] + room[at] : room[at];
    }
    me.team->meet();
}

}  // namespace
