// unique_fd.h: a file descriptor with one owner, and the list of all descriptors that have one. A
// process that was made by fork() has to close these, or it keeps its parent's connections open when the
// parent has ended.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

namespace hdt {

// A bit for each descriptor that a UniqueFd owns. Bits are set and cleared by any thread. They are read
// in a forked child, which has one thread and may call only async-signal-safe functions; atomics without
// locks are. Relaxed order is enough: fork() copies the memory as it is, and each bit belongs to one
// owner. A descriptor beyond the table is closed by its owner as any other, but not in a child.
class OwnedFds {
 public:
  // Registers a descriptor; a negative one is ignored.
  static void add(int fd) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMost) return;
    word(fd).fetch_or(bit(fd), std::memory_order_relaxed);
  }
  // Takes a descriptor off the list and returns whether its owner may close it. The answer is false if
  // this process is a forked child that has closed its copy: the number may belong to another file by
  // now. Each library that includes this header has a list of its own; a list whose child handler has
  // not run closes as ever.
  static bool remove(int fd) {
    if (static_cast<size_t>(fd) >= kMost) return true;
    const uint64_t before = word(fd).fetch_and(~bit(fd), std::memory_order_relaxed);
    return (before & bit(fd)) != 0 || !closed_.load(std::memory_order_relaxed);
  }
  // Closes every descriptor on the list and empties it. For forked children only. The owners still exist
  // there, but close nothing, as remove() refuses them.
  static void close_all() {
    closed_.store(true, std::memory_order_relaxed);
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t bits = words_[i].load(std::memory_order_relaxed);
      if (bits == 0) continue;
      words_[i].store(0, std::memory_order_relaxed);
      for (; bits != 0; bits &= bits - 1) {
        ::close(static_cast<int>(i * kWordBits) + __builtin_ctzll(bits));
      }
    }
  }

 private:
  // Linux's default for fs.nr_open. The table takes 128 KiB of zeroed memory, of which only touched
  // pages count.
  static constexpr size_t kMost = size_t{1} << 20;
  static constexpr size_t kWordBits = 64;
  static std::atomic<uint64_t>& word(int fd) { return words_[static_cast<size_t>(fd) / kWordBits]; }
  static uint64_t bit(int fd) { return uint64_t{1} << static_cast<size_t>(fd) % kWordBits; }
  static inline std::array<std::atomic<uint64_t>, kMost / kWordBits> words_{};
  static inline std::atomic<bool> closed_{false};  // this process is a child, whose copies have been closed
};

// Owns one descriptor, or none (-1), and closes it when it is destroyed. It can be moved, not copied.
// Not thread-safe.
class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes over `fd`; a negative one means none.
  explicit UniqueFd(int fd) : fd_(fd) { OwnedFds::add(fd); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~UniqueFd() { reset(); }

  // The descriptor, -1 for none. It stays owned.
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it. A forked child then keeps its copy.
  int release() {
    if (fd_ >= 0) (void)OwnedFds::remove(fd_);
    return std::exchange(fd_, -1);
  }
  // Closes the descriptor and takes over `fd`.
  void reset(int fd = -1) {
    if (fd_ >= 0 && OwnedFds::remove(fd_)) ::close(fd_);
    fd_ = fd;
    OwnedFds::add(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace hdt
