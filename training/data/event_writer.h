// event_writer.h: scalars for TensorBoard, as event files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

class EventWriter {
 public:
  // Seconds since 1970.
  using WallClock = std::function<double()>;

  // Creates `directory` when missing and a new file events.out.tfevents.<time>.<host>.<pid> in it.
  static Result<std::unique_ptr<EventWriter>> open(const std::string& directory, WallClock clock = {});
  // Flushes what is left.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Buffered; written out when the buffer is full and by flush().
  Status add_scalar(std::string_view tag, int64_t step, double value);
  // Hands everything to the kernel, so that a reader (and a crash of this process) finds it.
  Status flush();

  const std::string& path() const { return path_; }

 private:
  EventWriter() = default;

  std::string path_;
  std::string buffer_;
  WallClock clock_;
  int descriptor_ = -1;
};

}  // namespace hdt::training
