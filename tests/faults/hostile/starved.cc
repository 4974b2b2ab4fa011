// starved.cc: hdtcommd, with one allocation that fails: the n-th from now on of its control thread, or of an
// engine thread, where n is the test's. STARVE_FILE names a file of two 32-bit numbers that both have mapped:
// whose allocation (0: of the control thread, 1: of an engine's), and n; n is counted down, and at 0 nothing
// fails.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

struct Order {
  std::atomic<uint32_t> of;
  std::atomic<int32_t> count;
};

Order* order() {
  static Order* const mapped = [] {
    static Order none{};
    const char* const path = std::getenv("STARVE_FILE");
    const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return &none;
    void* const memory = ::mmap(nullptr, sizeof(Order), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return memory == MAP_FAILED ? &none : static_cast<Order*>(memory);
  }();
  return mapped;
}

// Asked while something is to fail only: the thread has its name by then.
bool is_meant() {
  thread_local int kind = -2;
  if (kind == -2) {
    char name[16] = {};
    ::prctl(PR_GET_NAME, name);
    kind = std::strcmp(name, "hdt-control") == 0 ? 0 : std::strncmp(name, "hdt-engine-", 11) == 0 ? 1 : -1;
  }
  return kind == static_cast<int>(order()->of.load(std::memory_order_relaxed));
}

bool fails() {
  return order()->count.load(std::memory_order_acquire) > 0 && is_meant() && order()->count.fetch_sub(1) == 1;
}

}  // namespace

void* operator new(size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
