// event_writer.h: scalars for TensorBoard, as event files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

// The CRC-32C of the bytes, rotated by 15 bits and with a constant added, as TFRecord files store it. A CRC
// over data that holds CRCs is then no special case.
uint32_t masked_crc32c(std::string_view bytes);

// One event file. Not thread-safe; rank 0 of a run has one.
class EventWriter {
 public:
  // Seconds since 1970.
  using WallClock = std::function<double()>;

  // Creates `directory` if it is missing, and a new file events.out.tfevents.<time>.<host>.<pid> in it.
  // An empty `clock` means the system's. kSystem: the folder or the file cannot be made.
  static Result<std::unique_ptr<EventWriter>> open(const std::string& directory, WallClock clock = {});
  // Flushes what is left, without reporting whether that worked.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Appends a value to the curve `tag`. It is stored as fp32. Buffered: written out by flush() and when
  // the buffer is full.
  Status add_scalar(std::string_view tag, int64_t step, double value);
  // Hands everything to the kernel, so that a reader finds it, also after a crash of this process. Not
  // synced to the disk.
  Status flush();

  const std::string& path() const { return path_; }

 private:
  EventWriter() = default;

  std::string path_;
  std::string buffer_;  // whole records that are not written yet
  WallClock clock_;
  int descriptor_ = -1;
};

}  // namespace hdt::training
