// event_writer.cc: an event file is a sequence of TFRecords: uint64 length, masked CRC of the length,
// the bytes, masked CRC of the bytes. The bytes are a protocol buffer of TensorFlow's event.proto and
// summary.proto:
//   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//   Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }
//
// They are written by hand, which takes fewer lines than a dependency on protobuf. All numbers are
// little endian.
#include "training/data/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "base/host_name.h"

namespace hdt::training {
namespace {

constexpr size_t kEventBufferBytes = size_t{1} << 16;
constexpr int kPathAttempts = 100;
constexpr uint32_t kMaskDelta = 0xa282ead8;  // of TFRecord's masking

// Protocol buffers' encoding: each field is a key (field number << 3 | wire type), then the value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Seven bits a byte, lowest first; the highest bit says that more follow.
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, uint64_t field, WireType type) { append_varint(out, field << 3 | type); }

// A text or an embedded message: its length, then its bytes.
void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, kLengthDelimited);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_start(double wall_time) {
  std::string event;
  append_key(event, 1, kFixed64);
  append_raw(event, wall_time);
  return event;
}

// The first record of every file; TensorBoard reads the file's version from it.
std::string version_event(double wall_time) {
  std::string event = event_start(wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

// Inside out: an embedded message must be whole before its length is known.
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string entry;
  append_bytes(entry, 1, tag);
  append_key(entry, 2, kFixed32);
  append_raw(entry, value);
  std::string summary;
  append_bytes(summary, 1, entry);
  std::string event = event_start(wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

// Puts the TFRecord framing around an event.
void append_record(std::string& out, const std::string& event) {
  std::string length;
  append_raw(length, static_cast<uint64_t>(event.size()));
  out += length;
  append_raw(out, masked_crc32c(length));
  out += event;
  append_raw(out, masked_crc32c(event));
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t value = crc32c(bytes);
  return ((value >> 15) | (value << 17)) + kMaskDelta;
}

// TensorBoard finds the file by "tfevents" in its name. The version record is written at once, so that a
// folder without scalars is valid, too.
Result<std::unique_ptr<EventWriter>> EventWriter::open(const std::string& directory, WallClock clock) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Status::from_errno("cannot create the folder " + directory, error.value());
  auto writer = std::unique_ptr<EventWriter>(new EventWriter);
  writer->clock_ = clock ? std::move(clock) : wall_seconds;
  const double now = writer->clock_();
  const std::string name = directory + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) +
                           "." + host_name() + "." + std::to_string(::getpid());
  for (int attempt = 0; attempt < kPathAttempts; ++attempt) {
    // A second writer of this process in the same second gets a name of its own.
    writer->path_ = attempt == 0 ? name : name + "." + std::to_string(attempt);
    writer->descriptor_ =
        ::open(writer->path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (writer->descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (writer->descriptor_ < 0) return Status::from_errno("cannot create " + writer->path_, errno);
  append_record(writer->buffer_, version_event(now));
  HDT_RETURN_IF_ERROR(writer->flush());
  return writer;
}

EventWriter::~EventWriter() {
  if (descriptor_ < 0) return;
  (void)flush();  // a caller who needs to know calls flush()
  ::close(descriptor_);
}

Status EventWriter::add_scalar(std::string_view tag, int64_t step, double value) {
  append_record(buffer_, scalar_event(clock_(), step, tag, static_cast<float>(value)));
  return buffer_.size() >= kEventBufferBytes ? flush() : Status::ok();
}

Status EventWriter::flush() {
  size_t written = 0;
  Status status;
  while (written < buffer_.size()) {
    const ssize_t count = ::write(descriptor_, buffer_.data() + written, buffer_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      status = Status::from_errno("cannot write " + path_, errno);
      break;
    }
    written += static_cast<size_t>(count);
  }
  // The rest is written by the next flush, from the byte at which this one stopped.
  buffer_.erase(0, written);
  return status;
}

}  // namespace hdt::training
