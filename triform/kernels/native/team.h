// Threads that work on one call together: they meet between operations, and sleep between calls.
//
// At a meeting a thread spins for a moment, then offers its core to others, then sleeps: on a busy machine the thread
// it waits for has no core, and spinning would take the time that it needs. How many threads work changes no result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace {

constexpr int kSpins = 2000, kYields = 200;

inline void rest() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waits until `ready()`; whoever makes it so calls `wake` afterwards.
class Waiting {
  public:
    template <class Ready>
    void wait(Ready ready, int spins) {
        for (int tries = 0; tries < spins; tries++) {
            if (ready()) return;
            rest();
        }
        for (int tries = 0; tries < kYields; tries++) {
            if (ready()) return;
            sched_yield();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        while (!ready()) wakes_.wait(lock);
        sleepers_.fetch_sub(1);
    }
    void wake() {
        if (sleepers_.load() == 0) return;
        std::lock_guard<std::mutex> lock(mutex_);
        wakes_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable wakes_;
    std::atomic<int> sleepers_{0};
};

class Team {
  public:
    explicit Team(int count) : count_(count), process_(getpid()) {
        for (int number = 1; number < count; number++) threads_.emplace_back([this, number] { serve(number); });
    }
    ~Team() {
        ended_.store(true);
        call_.fetch_add(1);
        called_.wake();
        for (auto& thread : threads_) thread.join();
    }
    int count() const { return count_; }
    bool belongs_here() const { return process_ == getpid(); }  // threads do not outlive a fork

    // Runs `work(number)` on every member; the caller is number 0.
    void run(const std::function<void(int)>& work) {
        work_ = &work;
        finished_.store(0);
        call_.fetch_add(1);
        called_.wake();
        work(0);
        done_.wait([this] { return finished_.load() == count_ - 1; }, kSpins);
    }

    // All members meet. The last one to come sets the counter of `take_next` back to 0.
    void meet() {
        if (count_ == 1) {
            next_.store(0, std::memory_order_relaxed);
            return;
        }
        int phase = phase_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1) == count_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            next_.store(0, std::memory_order_relaxed);
            phase_.store(phase + 1);
            met_.wake();
        } else {
            met_.wait([&] { return phase_.load() != phase; }, kSpins);
        }
    }

    int64_t take_next(int64_t items = 1) { return next_.fetch_add(items, std::memory_order_relaxed); }

  private:
    void serve(int number) {
        for (int seen = 0;;) {
            called_.wait([&] { return call_.load() != seen; }, kSpins);
            seen++;
            if (ended_.load()) return;
            (*work_)(number);
            finished_.fetch_add(1);
            done_.wake();
        }
    }

    const int count_;
    const pid_t process_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* work_ = nullptr;
    std::atomic<bool> ended_{false};
    alignas(64) std::atomic<int> call_{0};
    alignas(64) std::atomic<int> finished_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> phase_{0};
    alignas(64) std::atomic<int64_t> next_{0};
    Waiting called_, done_, met_;
};

// Memory that grows and is used again by the next call.
class Scratch {
  public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    ~Scratch() { free(bytes_); }
    char* reserve(size_t count) {
        if (count > capacity_) {
            free(bytes_);
            capacity_ = (count + count / 4 + 4095) / 4096 * 4096;
            bytes_ = (char*)aligned_alloc(4096, capacity_);
            if (!bytes_) abort();
        }
        return bytes_;
    }

  private:
    char* bytes_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace
