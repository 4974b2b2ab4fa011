// shared_memory.cc: memfd, seals and mmap behind shared_memory.h. The order in create() matters: set the
// size, seal it, then map. A peer that receives the descriptor can thus never see the file unsealed.
#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace hdt {

namespace {
// F_SEAL_SEAL: nobody can add F_SEAL_WRITE later, which would stop the other side from mapping the file.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Statistics for in_use(); they order nothing, hence relaxed.
std::atomic<uint64_t> memories_in_use{0};
std::atomic<uint64_t> bytes_in_use{0};
}  // namespace

SharedMemory::Use SharedMemory::in_use() {
  return {memories_in_use.load(std::memory_order_relaxed), bytes_in_use.load(std::memory_order_relaxed)};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

// A swap: the old contents go with `other`.
SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

// The descriptor closes itself (UniqueFd). The kernel frees the pages when the last mapping and the last
// descriptor of any process are gone.
SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  ::munmap(data_, size_);
  memories_in_use.fetch_sub(1, std::memory_order_relaxed);
  bytes_in_use.fetch_sub(size_, std::memory_order_relaxed);
}

Result<SharedMemory> SharedMemory::create(const std::string& name, size_t bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::from_errno("memfd_create", errno);
  // Beyond RLIMIT_FSIZE ftruncate() does not only fail: SIGXFSZ comes with it and ends the process.
  rlimit file_size{};
  if (::getrlimit(RLIMIT_FSIZE, &file_size) == 0 && bytes > file_size.rlim_cur) {
    return Status::from_errno("shared memory of " + std::to_string(bytes) + " bytes", EFBIG);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno("shared memory of " + std::to_string(bytes) + " bytes", errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::from_errno("sealing a memfd", errno);
  return map_sealed(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::map(UniqueFd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  // Shrinking is what makes an access fault (SIGBUS). Growing does no harm to a mapping, so that seal is
  // not asked for.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(Code::kInvalidArgument, "shared memory is not sealed against shrinking");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno("fstat of shared memory", errno);
  return map_sealed(std::move(fd), static_cast<size_t>(info.st_size));
}

void SharedMemory::close_fd() { fd_.reset(); }

Result<SharedMemory> SharedMemory::map_sealed(UniqueFd fd, size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Status::from_errno("mapping " + std::to_string(bytes) + " bytes of shared memory", errno);
  }
  // A forked child is no rank and must not keep the memory alive.
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) {
    const int error = errno;
    ::munmap(data, bytes);
    return Status::from_errno("MADV_DONTFORK", error);
  }
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  memories_in_use.fetch_add(1, std::memory_order_relaxed);
  bytes_in_use.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

}  // namespace hdt
