// encoding_progress.cc: when the line is shown, and what is in it.
#include "training/data/encoding_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hdt::training {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::seconds kInLog{5};

}  // namespace

EncodingProgress::EncodingProgress(std::ostream& out, Options options)
    : out_(out), options_(std::move(options)), line_(out, options_.columns) {
  if (!options_.clock) options_.clock = std::chrono::steady_clock::now;
  start_ = last_ = options_.clock();
}

// Time left needs a share that is done, and bytes say more than documents, whose sizes differ.
std::string EncodingProgress::text(const MakeProgress& done,
                                   std::chrono::steady_clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto documents = static_cast<int64_t>(done.documents);
  const auto bytes = static_cast<double>(done.bytes);
  std::string line = fmt::format("{} documents", format_grouped(documents));
  if (seconds > 0) {
    line += fmt::format(" | {} documents/s | {:.1f} MB/s",
                        format_grouped(std::llround(static_cast<double>(documents) / seconds)),
                        bytes / seconds / 1e6);
  }
  if (options_.total_bytes == 0) return line;
  // A file that grows meanwhile makes more than all of it.
  const double share = std::min(bytes / static_cast<double>(options_.total_bytes), 1.0);
  line += fmt::format(" | {} %", static_cast<int>(share * 100));
  if (share > 0)
    line += " | " + format_duration(std::chrono::duration<double>(seconds * (1 / share - 1))) + " left";
  return line;
}

void EncodingProgress::update(const MakeProgress& done) {
  const auto now = options_.clock();
  if (now - last_ < (options_.in_place ? std::chrono::milliseconds(kOnTerminal) : kInLog)) return;
  last_ = now;
  if (options_.in_place)
    line_.show(text(done, now));
  else
    out_ << text(done, now) << std::endl;
}

}  // namespace hdt::training
