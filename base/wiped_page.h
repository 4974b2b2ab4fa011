// wiped_page.h: a page of private memory that is all zeros in every process that a fork makes of this
// one, whoever forks and by which call; the kernel wipes it (MADV_WIPEONFORK). Data written there thus
// belongs to one process alone.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace hdt {

// Owns one such page and unmaps it when it is destroyed. It can be moved, not copied.
class WipedPage {
 public:
  static constexpr size_t kBytes = 4096;

  // A page of zeros. kSystem: the kernel refuses (MADV_WIPEONFORK needs Linux 4.14).
  static Result<WipedPage> make();
  // No page: data() is null.
  WipedPage() = default;
  WipedPage(WipedPage&& other) noexcept;
  WipedPage& operator=(WipedPage&& other) noexcept;
  ~WipedPage();

  void* data() const { return data_; }
  // Gives the page up without unmapping it: it stays mapped until the process ends.
  void* release() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
};

}  // namespace hdt
