// Runs products of every kind, norms, attention and look-ups on numbers from a fixed generator, and prints all results as bytes:
// builds for other processors, and with sanitizers, must print the same. Compiled by test_library.py with the library.
#include "kernels.cpp"

#include <cstdio>

namespace {

uint32_t state = 12345;
uint32_t draw() { return state = state * 1664525u + 1013904223u; }
float draw_float() { return (float)(int32_t)draw() * 0x1p-31f; }

std::vector<float> floats(size_t count) {
    std::vector<float> x(count);
    for (float& each : x) each = draw_float();
    return x;
}

void print(const std::vector<float>& x) { fwrite(x.data(), sizeof(float), x.size(), stdout); }

// A matrix whose bytes are drawn, with finite float16 scales.
std::vector<uint8_t> matrix_of(WeightKind kind, int64_t outputs, int64_t inputs) {
    int64_t blocks = (outputs + kWidth - 1) / kWidth, groups = (inputs + kGroup - 1) / kGroup;
    if (kind == kFloat32) {
        auto numbers = floats(blocks * inputs * kWidth);
        return {(uint8_t*)numbers.data(), (uint8_t*)(numbers.data() + numbers.size())};
    }
    size_t bytes = kind == kBfloat16 ? blocks * ((inputs + 1) / 2) * sizeof(Bfloat16Block)
                   : blocks * groups * (kind == kInt8 ? sizeof(Int8Block) : sizeof(Int4Block));
    std::vector<uint8_t> data(bytes);
    if (kind == kBfloat16) {
        uint16_t* numbers = (uint16_t*)data.data();
        for (size_t at = 0; at < bytes / 2; at++) numbers[at] = 0x3c00 | (draw() >> 16 & 0x83ff);
        if (inputs % 2)
            for (int64_t b = 0; b < blocks; b++)
                for (auto& pair : ((Bfloat16Block*)data.data())[(b + 1) * ((inputs + 1) / 2) - 1].weights) pair[1] = 0;
        return data;
    }
    for (auto& each : data) each = draw() >> 24;
    size_t size = kind == kInt8 ? sizeof(Int8Block) : sizeof(Int4Block), halves = kind == kInt8 ? kWidth : 2 * kWidth;
    for (size_t at = 0; at < bytes; at += size)
        for (size_t i = 0; i < halves; i++) ((Half*)(data.data() + at))[i] = 0x2000 | (draw() >> 16 & 0x83ff);
    return data;
}

void run_product(WeightKind kind, int64_t outputs, int64_t inputs, int64_t rows, bool gated, Activation activation, int threads) {
    auto matrix = matrix_of(kind, outputs, inputs);
    int64_t padded = round_up(inputs, kWidth), read = gated ? 2 * inputs : inputs;
    auto x = floats(rows * read), bias = floats(round_up(outputs, kWidth)), gain = floats(padded), shift = floats(padded);
    std::vector<float> y(rows * outputs);
    Operation op = {};
    op.kind = kLinear, op.source = 0, op.target = 1, op.adds = 1, op.weights = kind, op.gated = gated;
    op.activation = activation, op.factor = 1.0f, op.outputs = outputs, op.inputs = inputs;
    op.matrix = matrix.data(), op.bias = bias.data();
    if (!gated) op.norm = {rows % 2 ? kRmsNorm : kLayerNorm, 1e-5f, gain.data(), shift.data()};
    Buffer buffers[] = {{x.data(), read}, {y.data(), outputs}};
    Frame frame = {};
    frame.buffers = buffers;
    triform_run(&op, 1, &frame, rows, threads);
    print(y);
}

// A token of each of `rows` texts; or, `together`, the next tokens of one text in pieces.
void run_heads(int heads, int kv_heads, int width, int rows, int past, int threads, bool together) {
    int64_t step = (heads + 2 * kv_heads) * width, capacity = past + rows;
    auto x = floats(rows * step), keys = floats(rows * kv_heads * capacity * width), values = keys;
    auto cosines = floats(capacity * (width / 2)), sines = floats(capacity * (width / 2)), bias = floats(heads * capacity);
    auto gain = floats(round_up(width, kWidth));
    std::vector<float> y(rows * heads * width);
    std::vector<Place> places;
    for (int r = 0; r < rows; r++) {
        int at = together ? past + r : past;
        places.push_back({together ? 0 : r, at, at, r % 3 * !together, at + 1});
    }
    std::vector<Piece> pieces;
    for (int r = 0; together && r < rows; r += 50) pieces.push_back({r, rows - r < 50 ? rows - r : 50});
    Operation op = {};
    op.kind = kAttention, op.source = 0, op.target = 1, op.heads = heads, op.kv_heads = kv_heads, op.head_width = width;
    op.writes = 1, op.rotary = width % 2 == 0, op.biased = 1, op.score_scale = 0.3f;
    op.query_norm = op.key_norm = {kRmsNorm, 1e-6f, gain.data(), nullptr};
    Buffer buffers[] = {{x.data(), step}, {y.data(), heads * width}};
    Past pasts[] = {{keys.data(), values.data(), kv_heads * capacity * width, capacity * width, width}};
    Frame frame = {buffers, pasts, places.data(), nullptr, cosines.data(), sines.data(), bias.data(), capacity, together ? capacity - 1 : past, pieces.data(), (int64_t)pieces.size()};
    triform_run(&op, 1, &frame, rows, threads);
    print(y), print(keys), print(values);
}

// Texts that are read as a whole, in pieces of at most `most` queries; causal ones see a window.
void run_texts(int heads, int kv_heads, int width, const std::vector<int>& lengths, int most, bool causal, int threads) {
    int64_t step = (heads + 2 * kv_heads) * width, rows = 0, longest = 0;
    std::vector<Place> places;
    std::vector<Piece> pieces;
    for (int length : lengths) {
        for (int at = 0; at < length; at += most) pieces.push_back({(int32_t)rows + at, length - at < most ? length - at : most});
        for (int at = 0; at < length; at++) {
            int start = (int)rows, first = causal && at > 20 ? at - 20 : 0, last = causal ? at + 1 : length;
            places.push_back({0, at, start + at, start + first, start + last});
        }
        rows += length, longest = length > longest ? length : longest;
    }
    auto x = floats(rows * step), cosines = floats(longest * (width / 2)), sines = floats(longest * (width / 2));
    auto bias = floats(heads * 2 * longest), gain = floats(round_up(width, kWidth));
    std::vector<float> y(rows * heads * width);
    Operation op = {};
    op.kind = kAttention, op.source = 0, op.target = 1, op.heads = heads, op.kv_heads = kv_heads, op.head_width = width;
    op.writes = 1, op.rotary = width % 2 == 0, op.biased = 1, op.score_scale = 0.3f;
    op.query_norm = op.key_norm = {kRmsNorm, 1e-6f, gain.data(), nullptr};
    Buffer buffers[] = {{x.data(), step}, {y.data(), heads * width}};
    Past pasts[] = {{}};  // their keys are in the pass
    Frame frame = {buffers, pasts, places.data(), nullptr, cosines.data(), sines.data(), bias.data(), 2 * longest, longest};
    frame.pieces = pieces.data(), frame.piece_count = (int64_t)pieces.size();
    triform_run(&op, 1, &frame, rows, threads);
    print(y);
}

void run_look_up(WeightKind kind, int64_t outputs, int64_t inputs) {
    auto matrix = matrix_of(kind, outputs, inputs);
    std::vector<int64_t> ids = {outputs - 1, 0, outputs / 2};
    std::vector<float> found(ids.size() * inputs);
    triform_look_up(kind, matrix.data(), inputs, ids.data(), (int64_t)ids.size(), found.data());
    print(found);
}

void run_summary(int64_t count) {
    auto x = floats(3 * count);
    std::vector<double> found(3 * 4);
    triform_summarize(x.data(), 3, count, found.data());
    int64_t wanted = count < 7 ? count : 7;
    std::vector<float> top(3 * wanted);
    std::vector<int64_t> places(3 * wanted);
    triform_find_top(x.data(), 3, count, wanted, top.data(), places.data());
    print({found.begin(), found.end()}), print(top), print({places.begin(), places.end()});
}

}  // namespace

int main() {
    for (int kind = kFloat32; kind <= kInt4; kind++)
        for (int64_t rows : {1, 2, 3, 7, 13, 33}) {
            run_product((WeightKind)kind, 37, 77, rows, false, kIdentity, 1 + rows % 3);
            run_product((WeightKind)kind, 160, 300, rows, true, (Activation)(1 + rows % 5), 2);
        }
    for (int width : {4, 5, 16, 20, 80})
        for (bool together : {false, true}) run_heads(6, width % 3 ? 2 : 3, width, together ? 105 : 5, 21, 2, together);
    for (int64_t count : {1, 15, 16, 5000}) run_summary(count);
    for (int width : {4, 5, 16, 20, 80}) {
        run_texts(6, width % 3 ? 2 : 3, width, {1, 17, 33, 150, 5}, 64, false, 2);
        run_texts(6, width % 3 ? 2 : 3, width, {40, 3, 131}, 50, true, 3);
    }
    for (int kind = kFloat32; kind <= kInt4; kind++) run_look_up((WeightKind)kind, 37, 77);
    return 0;
}
