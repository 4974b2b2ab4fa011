// tagged_frames.cc: what comes over a data path with tagged messages (transports/tagged): messages, the hello
// and signals of the control socket, and frames and segments in whatever order the library delivers them.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "tests/fuzz/region.h"
#include "tests/fuzz/target.h"
#include "transports/tagged/control.h"
#include "transports/tagged/incoming.h"
#include "transports/tagged/operation.h"

namespace hdt::transport::tagged::fuzz_tagged_frames {

using fuzz::Bytes;
using fuzz::Choices;

constexpr size_t kWords = 64;

// What comes over the control socket, in two parts.
bool take_control(Choices input) {
  const size_t first = input.get<uint16_t>();
  int ends[2];
  HDT_HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  UniqueFd far(ends[1]);
  Control control;
  control.attach(tcp::Fd(ends[0]));
  const bool admitted = first % 2 == 0;
  if (admitted) control.admit();
  size_t messages = 0;
  bool greeted = false, ended = false;
  for (const auto& part : {input.bytes(first), input.bytes(32 << 10)}) {
    // A word is read at a time, so it goes on after all was sent.
    for (size_t at = 0, more = kWords; (at < part.size() || more-- > 0) && !ended;) {
      const ssize_t sent = ::send(far.get(), part.data() + at, part.size() - at, MSG_NOSIGNAL);
      HDT_HOLDS(sent >= 0 || errno == EAGAIN);
      if (sent > 0) at += static_cast<size_t>(sent);
      const Control::Input read = control.read();
      if (!read.message.empty()) {
        HDT_HOLDS(!greeted && (admitted || ++messages <= kMaxStrangerMessages));
        HDT_HOLDS(read.message.size() <= (admitted ? kMaxMessageBytes : kMaxStrangerMessageBytes));
      }
      if (read.hello) {
        HDT_HOLDS(!greeted && admitted);
        greeted = true;
        const Hello& hello = *read.hello;
        HDT_HOLDS(hello.segment_bytes >= kMinSegmentBytes && hello.segment_bytes <= kMaxSegmentBytes);
        HDT_HOLDS(!hello.protocol.empty() && hello.protocol.size() <= kMaxProtocolBytes);
        HDT_HOLDS(!hello.address.empty() && hello.address.size() <= kMaxAddressBytes);
      }
      HDT_HOLDS(!read.rung || greeted);
      ended = read.ended;
    }
  }
  return greeted || messages > 0;
}

// Keeps what is to be received where.
class Library final : public DataPath {
 public:
  struct Posted {
    uint64_t tag, id;
    std::byte* place;
    size_t bytes;
  };
  std::vector<std::byte> address() const override { return {std::byte{1}}; }
  Status connect(std::span<const std::byte>) override { return Status::ok(); }
  Result<bool> send(uint64_t, const void*, size_t, uint64_t) override { return true; }
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override {
    if (full) return false;
    posted.push_back({tag, id, static_cast<std::byte*>(place), bytes});
    return true;
  }
  Status poll(std::vector<Finished>&) override { return Status::ok(); }
  int fd() const override { return -1; }
  bool arm() override { return true; }

  std::vector<Posted> posted;
  bool full = false;
};

class Sink final : public FrameSink {
 public:
  std::byte* locate(uint64_t key, uint64_t offset, size_t bytes) override {
    return region.locate(key, offset, bytes);
  }
  void on_probe() override {
    HDT_HOLDS(events == 0);
    ++events;
  }
  Status on_taken(uint64_t) override { return Status::ok(); }
  void on_message(std::span<const std::byte> message) override {
    HDT_HOLDS(events > 0 && !message.empty() && message.size() <= kMaxMessageBytes);
    ++events;
  }
  void on_written(const Immediate&, std::span<const std::byte> placed) override {
    HDT_HOLDS(events > 0 && region.holds(placed));
    ++events;
  }
  fuzz::Region region;
  size_t events = 0;
};

Bytes a_frame(Choices& input) {
  FrameHeader header;
  const auto type = input.get<uint8_t>();
  if (type >= 0xf0) {  // any bytes
    const auto raw = input.bytes(input.get<uint16_t>() % (kMaxFrameBytes + 1));
    return {raw.begin(), raw.end()};
  }
  header.type = static_cast<FrameType>(type % 6);
  header.taken = input.get<uint8_t>();
  header.payload_bytes = input.get<uint16_t>();
  size_t body = 0;
  if (header.type == FrameType::kMessage) body = header.payload_bytes;
  if (header.type == FrameType::kWrite) {
    header.region = fuzz::Region::kKey;
    header.offset = input.get<uint16_t>();
    body = kImmediateBytes + (header.payload_bytes <= kInlineBytes ? header.payload_bytes : 0);
  }
  body = std::min(body, kMaxFrameBytes - sizeof header);
  Bytes frame(sizeof header + body, std::byte{5});
  std::memcpy(frame.data(), &header, sizeof header);
  return frame;
}

bool take_frames(Choices input) {
  Library library;
  Sink sink;
  Incoming incoming;
  incoming.set_segment_bytes(kMinSegmentBytes);
  Status status = incoming.post(library);
  for (int i = 0; i < 256 && status.is_ok() && !input.empty(); ++i) {
    const auto step = input.get<uint8_t>();
    if (step % 8 == 7 || library.posted.empty()) {
      library.full = (step & 0x80) != 0;
      status = incoming.post(library);
      HDT_HOLDS(!incoming.starved() || library.full);
      continue;
    }
    // What was posted first comes first, but for choices.
    const size_t which = step % 8 == 6 ? input.get<uint8_t>() % library.posted.size() : 0;
    const Library::Posted posted = library.posted[which];
    library.posted.erase(library.posted.begin() + static_cast<ptrdiff_t>(which));
    const bool segment = operation_of(posted.id) == Operation::kSegmentReceived;
    if (segment) HDT_HOLDS(sink.region.holds({posted.place, posted.bytes}));
    const Bytes content =
        segment ? Bytes(step % 8 == 5 ? input.get<uint16_t>() : posted.bytes, std::byte{9}) : a_frame(input);
    const size_t bytes = std::min(content.size(), posted.bytes);
    if (bytes > 0) std::memcpy(posted.place, content.data(), bytes);
    status = segment ? incoming.on_segment(number_of(posted.id), bytes, sink)
                     : incoming.on_frame(number_of(posted.id), bytes, sink);
    HDT_HOLDS(status.code() != Code::kInternal);  // the library delivers each receive once
    if (status.is_ok() && step % 8 == 4) status = incoming.post(library);
    incoming.inside_write_to(fuzz::Region::kKey);
  }
  sink.region.check();
  return sink.events > 0;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  return choices.get<uint8_t>() % 2 == 0 ? take_control(choices) : take_frames(choices);
}

std::vector<Bytes> seeds() {
  HelloHeader header;
  const std::string protocol = "ofi tcp;ofi_rxm", address = "address";
  header.protocol_bytes = static_cast<uint16_t>(protocol.size());
  header.address_bytes = static_cast<uint32_t>(address.size());
  header.segment_bytes = kMinSegmentBytes;
  // Of a peer that was admitted: a message, the hello, signals.
  Bytes hello = {std::byte{0}, std::byte{20}, std::byte{0}};
  for (const int value : std::initializer_list<int>{'M', 2, 0, 'h', 'i', 'A'})
    hello.push_back(static_cast<std::byte>(value));
  const auto bytes = std::as_bytes(std::span(&header, 1));
  hello.insert(hello.end(), bytes.begin(), bytes.end());
  for (const char c : protocol + address + "RTG") hello.push_back(static_cast<std::byte>(c));
  // A probe; a message; a short write; a write of three segments and a bit; all its segments; the window
  // again.
  const auto b = [](std::initializer_list<int> values) {
    Bytes all;
    for (const int value : values) all.push_back(static_cast<std::byte>(value));
    return all;
  };
  return {hello,
          b({0, 9, 0, 'M', 1, 0, 'x', 'M', 1, 0, 'y', 'A', 0}),
          b({1, 0, 1, 0, 0, 0}),
          b({1, 0, 1, 0, 0, 0, 0, 2, 0, 9, 0, 0, 3, 0, 9, 0, 8, 0}),
          b({1, 0, 1, 0, 0, 0, 4, 3, 0, 1, 0x30, 8, 0, 6, 15, 6, 15, 6, 15, 6, 15, 7, 0, 4, 0, 0, 0}),
          b({1, 0, 1, 0, 0, 0, 0, 4, 1, 0, 0})};
}

HDT_FUZZ_TARGET(tagged_frames, take, seeds)

}  // namespace hdt::transport::tagged::fuzz_tagged_frames
