// unique_fd.h: a file descriptor with one owner, and the list of all descriptors that have one: what a
// process that was made by fork() has to close, or it keeps its parent's connections open when the parent has
// ended.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

namespace hdt {

// A bit for each descriptor that a UniqueFd owns. Set and cleared by any thread; read in a forked child,
// which has one thread and may call nothing but async-signal-safe functions. A descriptor beyond the table is
// closed by its owner as any other, but not in a child.
class OwnedFds {
 public:
  static void add(int fd) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMost) return;
    word(fd).fetch_or(bit(fd), std::memory_order_relaxed);
  }
  // False where it must not be closed: a forked child has closed its copy, and the number may be somebody
  // else's by now. (One that another library's copy of this list has is closed as ever.)
  static bool remove(int fd) {
    if (static_cast<size_t>(fd) >= kMost) return true;
    const uint64_t before = word(fd).fetch_and(~bit(fd), std::memory_order_relaxed);
    return (before & bit(fd)) != 0 || !closed_.load(std::memory_order_relaxed);
  }
  // Closes every descriptor on the list, and empties it. For forked children only: the owners live on, and
  // close nothing.
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
  static constexpr size_t kMost = size_t{1} << 20;  // Linux's default for fs.nr_open
  static constexpr size_t kWordBits = 64;
  static std::atomic<uint64_t>& word(int fd) { return words_[static_cast<size_t>(fd) / kWordBits]; }
  static uint64_t bit(int fd) { return uint64_t{1} << static_cast<size_t>(fd) % kWordBits; }
  static inline std::array<std::atomic<uint64_t>, kMost / kWordBits> words_{};
  static inline std::atomic<bool> closed_{false};  // this process is a child, whose copies have been closed
};

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) { OwnedFds::add(fd); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    if (fd_ >= 0) (void)OwnedFds::remove(fd_);
    return std::exchange(fd_, -1);
  }
  void reset(int fd = -1) {
    if (fd_ >= 0 && OwnedFds::remove(fd_)) ::close(fd_);
    fd_ = fd;
    OwnedFds::add(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace hdt
