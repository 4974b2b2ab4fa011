// wiped_page.h: a page of private memory that is all zeros in every process that a fork makes of this one,
// whoever forks and by which call (the kernel sees to it, MADV_WIPEONFORK). What is written there belongs to
// one process alone.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace hdt {

class WipedPage {
 public:
  static constexpr size_t kBytes = 4096;

  static Result<WipedPage> make();
  WipedPage() = default;
  WipedPage(WipedPage&& other) noexcept;
  WipedPage& operator=(WipedPage&& other) noexcept;
  ~WipedPage();

  void* data() const { return data_; }
  // The page stays mapped until the process ends.
  void* release() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
};

}  // namespace hdt
