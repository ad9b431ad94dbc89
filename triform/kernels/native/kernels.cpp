// The library of one instruction set, called through ctypes. Needs no header of torch or Python.
//
//     c++ -std=c++17 -O3 -ffp-contract=off -fPIC -shared -pthread -march=… -o kernels-….so kernels.cpp
#include "summary.h"
#include "look_up.h"
#include "text_attention.h"

namespace {

// Scratch memory of a team lives as long as the team, so that calls need not ask for memory.
struct Workers {
    std::unique_ptr<Team> team;
    std::vector<Scratch> own;
    Scratch common;
    explicit Workers(std::unique_ptr<Team> from) : team(std::move(from)), own(team->count()) {}
};

class FreeWorkers {
  public:
    std::unique_ptr<Workers> take(int count) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (auto each = free_.begin(); each != free_.end(); each++)
                if ((*each)->team->count() == count && (*each)->team->belongs_here()) {
                    std::unique_ptr<Workers> found = std::move(*each);
                    free_.erase(each);
                    return found;
                }
        }
        return std::make_unique<Workers>(make_team(count));
    }
    void give_back(std::unique_ptr<Workers> workers) {
        std::unique_ptr<Workers> oldest;
        std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(std::move(workers));
        if (free_.size() > kMostFree) {
            oldest = std::move(free_.front());
            free_.erase(free_.begin());
            if (!oldest->team->belongs_here()) oldest.release();  // its threads are in the parent process
        }
    }

  private:
    static std::unique_ptr<Team> make_team(int count) {
        try {
            return std::make_unique<Team>(count);
        } catch (const std::system_error&) {  // no more threads allowed here: one thread gives the same answers
            return std::make_unique<Team>(1);
        }
    }
    static constexpr size_t kMostFree = 4;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Workers>> free_;
};

FreeWorkers& free_workers() {
    static FreeWorkers* workers = new FreeWorkers;  // never freed: threads may be asleep in it when the process ends
    return *workers;
}

size_t count_common_bytes(const Operation* operations, int64_t count, int64_t rows) {
    size_t most = 0;
    for (int64_t at = 0; at < count; at++)
        if (operations[at].kind == kLinear && rows > kOwnRows) {
            size_t bytes = Prepared::count_bytes(rows, operations[at].inputs);
            most = bytes > most ? bytes : most;
        }
    return most;
}

}  // namespace

extern "C" {

int64_t triform_operation_bytes() { return sizeof(Operation); }
int64_t triform_frame_bytes() { return sizeof(Frame); }

// All operations in order on `rows` rows, by `threads` threads.
void triform_run(const Operation* operations, int64_t count, const Frame* frame, int64_t rows, int threads) {
    if (rows <= 0) return;
    std::unique_ptr<Workers> workers = free_workers().take(threads < 1 ? 1 : threads);
    workers->common.reserve(count_common_bytes(operations, count, rows));
    workers->team->run([&](int number) {
        Member me = {number, workers->team.get(), &workers->own[number], &workers->common};
        for (int64_t at = 0; at < count; at++) {
            const Operation& op = operations[at];
            if (op.kind == kLinear) run_linear(op, *frame, rows, me);
            else if (op.kind == kNorm) run_norm(op, *frame, rows, me);
            else if (frame->piece_count && !op.from_source) run_text_attention(op, *frame, rows, me);
            else run_attention(op, *frame, rows, me);
        }
    });
    free_workers().give_back(std::move(workers));
}

// Of each row of scores [rows, count]: largest, its place, smallest, log Σ exp.
void triform_summarize(const float* x, int64_t rows, int64_t count, double* to) {
    for (int64_t r = 0; r < rows; r++) {
        RowSummary found = summarize(x + r * count, count);
        memcpy(to + 4 * r, &found, sizeof found);
    }
}

// Of each row of scores [rows, count]: the `wanted` largest, the largest first, and their places.
void triform_find_top(const float* x, int64_t rows, int64_t count, int64_t wanted, float* scores, int64_t* places) {
    for (int64_t r = 0; r < rows; r++) find_top(x + r * count, count, wanted, scores + r * wanted, places + r * wanted);
}

// Rows `ids` of a packed matrix in float32, each `inputs` wide: what an embedding looks up.
void triform_look_up(int kind, const void* matrix, int64_t inputs, const int64_t* ids, int64_t count, float* to) {
    for (int64_t at = 0; at < count; at++) look_up((WeightKind)kind, matrix, inputs, ids[at], to + at * inputs);
}

// In every store [outer, rows, inner blocks of `block` bytes], the first `used` bytes of each block: row targets[i] becomes
// what row origins[i] was.
void triform_move_rows(char* const* stores, int64_t store_count, int64_t outer, int64_t rows, int64_t inner, int64_t block,
                       int64_t used, const int64_t* targets, const int64_t* origins, int64_t moved) {
    std::vector<char> kept((size_t)(moved * inner * used));
    for (int64_t at = 0; at < store_count * outer; at++) {
        char* base = stores[at / outer] + at % outer * rows * inner * block;
        for (int64_t i = 0; i < moved * inner; i++)
            memcpy(kept.data() + i * used, base + (origins[i / inner] * inner + i % inner) * block, used);
        for (int64_t i = 0; i < moved * inner; i++)
            memcpy(base + (targets[i / inner] * inner + i % inner) * block, kept.data() + i * used, used);
    }
}

// 8-bit codes of rows [rows, inputs], inputs a multiple of 32: for tests.
void triform_quantize(const float* x, int64_t rows, int64_t inputs, int8_t* codes, float* scales, int32_t* sums) {
    for (int64_t r = 0; r < rows; r++)
        quantize_row(x + r * inputs, inputs / kGroup, codes + r * inputs, scales + r * inputs / kGroup, sums + r * inputs / kGroup);
}

// activation(x), in place; `count` is a multiple of 16: for tests.
void triform_activate(int activation, float* x, int64_t count) {
    for (int64_t at = 0; at < count; at += kLanes) store(x + at, activate((Activation)activation, load(x + at)));
}
}
