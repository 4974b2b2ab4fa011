// mapped_file.cc: open, check, map, close. The mapping outlives the descriptor.
#include "training/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hdt::training {

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer is refused below instead of waited for; files do not know it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Status::from_errno("cannot open " + path, errno);
  MappedFile file;
  Status status;
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    status = Status::from_errno("cannot stat " + path, errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = {Code::kInvalidArgument, path + " is not a regular file"};
  } else if (info.st_size > 0) {  // an empty mapping does not exist
    const auto size = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      status = Status::from_errno("cannot map " + path, errno);
    } else {
      file.data_ = static_cast<const std::byte*>(address);
      file.size_ = size;
    }
  }
  ::close(descriptor);
  if (!status.is_ok()) return status;
  return file;
}

}  // namespace hdt::training
