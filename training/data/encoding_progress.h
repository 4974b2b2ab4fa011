// encoding_progress.h: the line that a person watches while a dataset is made:
//   1,204,000 documents | 31,520 documents/s | 84.2 MB/s | 45 % | 1m 12s left
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "training/data/dataset_maker.h"
#include "training/data/progress_line.h"

namespace hdt::training {

// Made when the work begins, by the thread that makes the dataset; not thread-safe. Rates are means since
// then.
class EncodingProgress {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  struct Options {
    uint64_t total_bytes = 0;  // of the input; 0: not known
    bool in_place = false;     // for a terminal: one line that is written over
    size_t columns = 0;        // of the terminal; 0: not known
    Clock clock;               // steady_clock if empty
  };

  // `out` must outlive the object.
  EncodingProgress(std::ostream& out, Options options);
  // Shows the line if the last one is old enough: a fifth of a second on a terminal, else five seconds. So
  // short work leaves no line in a log.
  void update(const MakeProgress& done);
  // Ends a line that was shown in place.
  void finish() { line_.finish(); }

 private:
  std::string text(const MakeProgress& done, std::chrono::steady_clock::time_point now) const;

  std::ostream& out_;
  Options options_;
  LineInPlace line_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace hdt::training
