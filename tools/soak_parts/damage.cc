// damage.cc: a library that is preloaded into a daemon and flips bits of what comes from the network,
// after TCP's checksum was checked, as a faulty NIC or memory would do. Links must find such damage by
// their own checksum.
//
// It takes the place of readv(). Only payload is damaged: the tcp backend reads payload straight to its
// final place and what follows into a buffer, so payload is the first of the two places of a readv().
// $HDT_SOAK_DAMAGE names a file of 8 bytes, which holds how many reads are still to be damaged.
// tools/soak writes it, and each damaged read counts it down.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

// Smaller reads may be the end of a header.
constexpr size_t kLeastPayload = 4096;

// The file's counter, shared with tools/soak; null if there is none.
std::atomic<int64_t>* map_count() {
  const char* path = std::getenv("HDT_SOAK_DAMAGE");
  if (path == nullptr) return nullptr;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<std::atomic<int64_t>*>(memory);
}

// Counts down by one if anything is left. Several engine threads may read at the same time.
bool take_one(std::atomic<int64_t>* count) {
  if (count == nullptr) return false;
  int64_t left = count->load(std::memory_order_relaxed);
  while (left > 0) {
    if (count->compare_exchange_weak(left, left - 1)) return true;
  }
  return false;
}

}  // namespace

extern "C" ssize_t readv(int fd, const iovec* vectors, int count) {
  using Readv = ssize_t (*)(int, const iovec*, int);
  // The real readv().
  static const auto next = reinterpret_cast<Readv>(dlsym(RTLD_NEXT, "readv"));
  // Mapped at the first read.
  static std::atomic<int64_t>* const left = map_count();
  const ssize_t got = next(fd, vectors, count);
  if (count != 2 || got <= 0) return got;
  const size_t payload = std::min(static_cast<size_t>(got), vectors[0].iov_len);
  if (payload >= kLeastPayload && take_one(left)) {
    auto* bytes = static_cast<unsigned char*>(vectors[0].iov_base);
    // One bit in the middle, far from both ends.
    bytes[payload / 2] ^= 0x10;
  }
  return got;
}
