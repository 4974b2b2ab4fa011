// wiped_page.cc: mmap and MADV_WIPEONFORK behind wiped_page.h.
#include "base/wiped_page.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace hdt {

Result<WipedPage> WipedPage::make() {
  void* data = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Status::from_errno("mapping a page", errno);
  WipedPage page;
  page.data_ = data;
  if (::madvise(data, kBytes, MADV_WIPEONFORK) != 0) return Status::from_errno("MADV_WIPEONFORK", errno);
  return page;
}

WipedPage::WipedPage(WipedPage&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

WipedPage& WipedPage::operator=(WipedPage&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

WipedPage::~WipedPage() {
  if (data_ != nullptr) ::munmap(data_, kBytes);
}

}  // namespace hdt
