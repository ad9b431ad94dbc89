// How a packed matrix lies in memory, and the structures that Python fills in (ctypes; `operations.py` has the same).
#pragma once

#include "vectors.h"

namespace {

constexpr int kGroup = 32;  // inputs that share a scale

// A matrix is blocks of 16 outputs; each block is these, from the first input to the last.
struct Float32Block { float weights[kWidth]; };                                        // of one input
struct Bfloat16Block { uint16_t weights[kWidth][2]; };                                 // of two inputs
struct Int8Block { Half scales[kWidth]; int8_t codes[kGroup / 4][kWidth][4]; };        // of a group
// The first half of a group is in the low four bits of each byte, the second half in the high ones.
struct Int4Block { Half scales[kWidth]; Half minimums[kWidth]; uint8_t codes[kGroup / 8][kWidth][4]; };

constexpr int count_inputs(const Float32Block*) { return 1; }
constexpr int count_inputs(const Bfloat16Block*) { return 2; }
constexpr int count_inputs(const Int8Block*) { return kGroup; }
constexpr int count_inputs(const Int4Block*) { return kGroup; }

enum OperationKind : int32_t { kLinear, kNorm, kAttention };
enum WeightKind : int32_t { kFloat32, kBfloat16, kInt8, kInt4 };
enum NormKind : int32_t { kNoNorm, kRmsNorm, kLayerNorm };
enum Activation : int32_t { kIdentity, kRelu, kGelu, kGeluTanh, kSilu, kTanh };

// γ and β are padded with zeros to a multiple of 16.
struct Norm {
    NormKind kind;
    float epsilon;
    const float* gain;
    const float* shift;
};

struct Operation {
    OperationKind kind;
    int32_t source, target;  // numbers of buffers
    int32_t adds;            // to the target, instead of replacing it

    // linear: target = activation(W · prepared(source) + bias); norm: target = norm(source), `inputs` wide
    WeightKind weights;
    int32_t gated;           // prepared(x) = activation(first half) · second half
    Activation activation;
    float factor;            // prepared(x) = factor · norm(x)
    int64_t outputs, inputs;
    const void* matrix;
    const float* bias;
    Norm norm;

    // attention
    int32_t heads, kv_heads, head_width;
    int32_t past;            // number of its keys and values in the frame
    int32_t writes;          // the source is [q k v], whose k and v are appended to the past; else it is q alone
    int32_t rotary, biased;
    int32_t from_source;     // which keys a row sees is said by `source_places`
    float score_scale;
    Norm query_norm, key_norm;
};

struct Buffer { float* data; int64_t stride; };  // rows of numbers, `stride` numbers from one to the next

struct Past {  // keys and values of one layer; distances in numbers
    float* keys;
    float* values;
    int64_t row_stride, head_stride, position_stride;
};

struct Place {  // of one row of the pass
    int32_t row;          // which past
    int32_t position;     // in its text: chooses the rotary angles
    int32_t slot;         // where its own key and value are written
    int32_t first, last;  // slots that it sees: first … last − 1
};

struct Piece { int32_t first, rows; };  // some rows of one text, whose keys are in this pass or in its past

struct Frame {  // what a pass works on
    const Buffer* buffers;
    const Past* pasts;
    const Place* places;
    const Place* source_places;
    const float* cosines;  // [positions, head width / 2]
    const float* sines;
    const float* bias;     // [heads, bias_length]; that of a key is at bias_center + its slot − the query's slot
    int64_t bias_length, bias_center;
    const Piece* pieces;   // where there are some they are all rows; of texts that are read as a whole, pasts are empty
    int64_t piece_count;
};

}  // namespace
