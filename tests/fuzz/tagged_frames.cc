// tagged_frames.cc: what comes over a data path with tagged messages (transports/tagged): messages, the hello
// and signals of the control socket, and frames and segments in whatever order the library delivers them.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "tests/fuzz/region.h"
#include "tests/fuzz/target.h"
#include "transports/tagged/control.h"
#include "transports/tagged/incoming.h"
#include "transports/tagged/operation.h"

namespace hdt::transport::tagged::fuzz_tagged_frames {

using fuzz::Bytes;
using fuzz::Choices;

constexpr size_t kWords = 64;

// Bytes that come over the control socket, in two parts.
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
  bool greeted = false, any = false, ended = false;
  Status reason;
  for (const auto& part : {input.bytes(first), input.bytes(32 << 10)}) {
    // A word is read at a time, so it goes on after all was sent.
    for (size_t at = 0, more = kWords; (at < part.size() || more-- > 0) && !ended;) {
      const ssize_t sent = ::send(far.get(), part.data() + at, part.size() - at, MSG_NOSIGNAL);
      HDT_HOLDS(sent >= 0 || errno == EAGAIN);
      if (sent > 0) at += static_cast<size_t>(sent);
      const Control::Input read = control.read();
      if (!read.message.empty()) {
        any = true;
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
      reason = read.reason;
      HDT_HOLDS(ended || reason.is_ok());
    }
  }
  return reason.is_ok() && (greeted || any);
}

// One end receives exactly what the other one sends: messages, the hello, and signals behind it.
bool take_conversation(Choices input) {
  int ends[2];
  HDT_HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  Control says, hears;
  says.attach(tcp::Fd(ends[0]));
  hears.attach(tcp::Fd(ends[1]));
  hears.admit();
  hears.expect_here();
  says.push_here();
  std::deque<Bytes> under_way;
  for (auto more = input.get<uint8_t>() % 4; more > 0; --more) {
    const auto message = input.bytes(std::clamp<size_t>(input.get<uint16_t>(), 1, kMaxMessageBytes));
    if (message.empty()) break;
    under_way.emplace_back(message.begin(), message.end());
    says.push_message(message);
  }
  Hello hello;
  hello.segment_bytes = std::clamp<size_t>(input.get<uint32_t>(), kMinSegmentBytes, kMaxSegmentBytes);
  hello.protocol = fuzz::to_text(input.bytes(input.get<uint8_t>() % kMaxProtocolBytes)) + "p";
  const auto address = input.bytes(input.get<uint16_t>() % kMaxAddressBytes);
  hello.address.assign(address.begin(), address.end());
  hello.address.push_back(std::byte{1});
  says.push_hello(hello);
  HDT_HOLDS(!says.flushed() && !says.signal(Signal::kRing));  // a signal overtakes nothing
  bool here = false, greeted = false;
  for (int i = 0; i < 1000 && !greeted; ++i) {
    HDT_HOLDS(says.flush());
    const Control::Input read = hears.read();
    HDT_HOLDS(!read.ended && !read.rung);
    here |= read.here;
    if (!read.message.empty()) {
      HDT_HOLDS(here && !under_way.empty() && read.message == under_way.front());
      under_way.pop_front();
    }
    if (!read.hello) continue;
    greeted = true;
    HDT_HOLDS(read.hello->segment_bytes == hello.segment_bytes && read.hello->protocol == hello.protocol &&
              read.hello->address == hello.address);
  }
  HDT_HOLDS(here && greeted && under_way.empty() && says.flushed());
  HDT_HOLDS(says.signal(Signal::kTick) && hears.read().rung);
  HDT_HOLDS(says.signal(Signal::kRing) && says.signal(Signal::kGoodbye));
  const Control::Input last = hears.read();
  HDT_HOLDS(last.rung && last.ended && last.reason.is_ok());
  says.drop();
  const Control::Input end = hears.read();
  HDT_HOLDS(end.ended && end.reason.code() == Code::kLink);
  return true;
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
    // Operations come in the order in which they were posted, but for choices.
    const size_t which = step % 8 == 6 ? input.get<uint8_t>() % library.posted.size() : 0;
    const Library::Posted posted = library.posted[which];
    library.posted.erase(library.posted.begin() + static_cast<ptrdiff_t>(which));
    const bool segment = operation_of(posted.id) == Operation::kSegmentReceived;
    if (segment) HDT_HOLDS(sink.region.holds({posted.place, posted.bytes}));
    const Bytes content = segment
                              ? Bytes((step & 0x40) != 0 ? input.get<uint16_t>() : posted.bytes, std::byte{9})
                              : a_frame(input);
    const size_t bytes = std::min(content.size(), posted.bytes);
    if (bytes > 0) std::memcpy(posted.place, content.data(), bytes);
    status = segment ? incoming.on_segment(number_of(posted.id), bytes, sink)
                     : incoming.on_frame(number_of(posted.id), bytes, sink);
    HDT_HOLDS(status.code() != Code::kInternal);  // the library delivers each receive once
    if (status.is_ok() && step % 8 == 4) status = incoming.post(library);
    incoming.inside_write_to(fuzz::Region::kKey);
  }
  sink.region.check();
  return status.is_ok() && sink.events > 0;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 3) {
    case 0:
      return take_control(choices);
    case 1:
      return take_frames(choices);
    default:
      return take_conversation(choices);
  }
}

const std::string kProtocol = "ofi tcp;ofi_rxm", kAddress = "address";

HelloHeader a_header() {
  HelloHeader header;
  header.protocol_bytes = static_cast<uint16_t>(kProtocol.size());
  header.address_bytes = static_cast<uint32_t>(kAddress.size());
  header.segment_bytes = kMinSegmentBytes;
  return header;
}

// The bytes of a peer that was admitted: a message, the hello, signals.
Bytes greeting(const HelloHeader& header, const std::string& signals) {
  Bytes all = {std::byte{0}, std::byte{20}, std::byte{0}};
  for (const int value : std::initializer_list<int>{'M', 2, 0, 'h', 'i', 'A'})
    all.push_back(static_cast<std::byte>(value));
  all = fuzz::changed(all, all.size(), header);
  for (const char c : kProtocol + kAddress + signals) all.push_back(static_cast<std::byte>(c));
  return all;
}

Bytes b(std::initializer_list<int> values) {
  Bytes all;
  for (const int value : values) all.push_back(static_cast<std::byte>(value));
  return all;
}

std::vector<Bytes> seeds() {
  // A probe; a message; a short write; a write of three segments and a bit; all its segments; the window
  // again.
  return {greeting(a_header(), "RTG"), b({0, 9, 0, 'M', 1, 0, 'x', 'M', 1, 0, 'y'}),
          b({2, 2, 2, 0, 'h', 'i', 1, 0, '!', 0, 16, 0, 0, 3, 't', 'c', 'p', 2, 0, 'a', 'd'}),
          b({1, 0, 1, 0, 0, 0, 0x87, 7}),  // the library takes no receive for a while
          b({1, 0, 1, 0, 0, 0}), b({1, 0, 1, 0, 0, 0, 0, 2, 0, 9, 0, 0, 3, 0, 9, 0, 8, 0}),
          b({1, 0, 1, 0, 0, 0, 4, 3, 0, 1, 0x30, 8, 0, 6, 16, 6, 16, 6, 16, 6, 16, 7, 0, 4, 0, 0, 0}),
          // Two writes to the same place: the receives of the second one are posted when the first one is
          // complete, and once the library takes them.
          b({1,    0, 1, 0, 0,  0, 0,  3, 0,  1,    0x20, 8, 0,  4, 3,  0, 1,
             0x20, 9, 0, 6, 16, 6, 16, 6, 16, 0x87, 7,    6, 16, 6, 16, 6, 16}),
          b({1, 0, 1, 0, 0, 0, 0, 4, 1, 0, 0})};
}

// A frame behind a probe; its length is part of `header`, or not.
Bytes behind_probe(const FrameHeader& header, size_t body) {
  Bytes all = b({1, 0, 1, 0, 0, 0, 0, 0xff, 0, 0});
  all = fuzz::changed(all, 8, static_cast<uint16_t>(sizeof header + body));
  all = fuzz::changed(all, all.size(), header);
  all.resize(all.size() + body);
  return all;
}

std::vector<Bytes> spoilt() {
  const auto hello = [](auto change) {
    HelloHeader header = a_header();
    change(header);
    return greeting(header, "");
  };
  const auto frame = [](FrameType type, size_t body, auto change) {
    FrameHeader header;
    header.type = type;
    if (type == FrameType::kMessage) header.payload_bytes = static_cast<uint32_t>(body);
    if (type == FrameType::kWrite) header.region = fuzz::Region::kKey;
    change(header);
    return behind_probe(header, body);
  };
  const auto as_it_is = [](FrameHeader&) {};
  using Type = FrameType;
  Bytes many = b({0, 1, 0});
  for (size_t i = 0; i <= kMaxStrangerMessages; ++i) {
    const Bytes one = b({'M', 1, 0, 'm'});
    many.insert(many.end(), one.begin(), one.end());
  }
  return {greeting(a_header(), "X"),  // no signal
          hello([](HelloHeader& h) { h.magic += 1; }), hello([](HelloHeader& h) { h.version += 1; }),
          hello([](HelloHeader& h) { h.segment_bytes = kMinSegmentBytes - 1; }),
          hello([](HelloHeader& h) { h.protocol_bytes = kMaxProtocolBytes + 1; }),
          hello([](HelloHeader& h) { h.address_bytes = 0; }), b({0, 0, 0, 'X'}),
          b({0, 0, 0, 'M', 0, 0}),               // an empty message
          b({0, 1, 0, 'A'}),                     // a stranger's hello
          b({0, 1, 0, 'M', 1, 0x10}),            // a stranger's message of 4097 bytes
          many, b({1, 0, 4, 0, 0, 0}),           // no probe at first
          b({1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0}),  // another one
          b({1, 0, 1, 0, 0, 0, 0, 0xff, 9, 0}),  // no whole header
          frame(Type::kMessage, 1, [](FrameHeader& h) { h.magic += 1; }),
          frame(Type::kMessage, 1, [](FrameHeader& h) { h.version += 1; }),
          frame(Type::kMessage, 1, [](FrameHeader& h) { h.reserved = 1; }),
          frame(Type::kMessage, 1, [](FrameHeader& h) { h.region = 1; }),
          frame(Type::kMessage, 1, [](FrameHeader& h) { h.payload_bytes = 2; }),
          frame(Type::kMessage, 0, as_it_is),
          frame(Type::kTaken, 0, [](FrameHeader& h) { h.payload_bytes = 1; }),
          frame(Type::kWrite, kImmediateBytes, [](FrameHeader& h) { h.payload_bytes = kMaxWriteBytes + 1; }),
          frame(Type::kWrite, kImmediateBytes + 1,
                [](FrameHeader& h) {
                  h.payload_bytes = 1;
                  h.offset = fuzz::Region::kBytes;
                }),
          frame(static_cast<Type>(5), 0, as_it_is),
          // A segment that is shorter than announced.
          b({1, 0, 1, 0, 0, 0, 4, 3, 0, 1, 0x30, 8, 0, 0x46, 16, 100, 0})};
}

HDT_FUZZ_TARGET(tagged_frames, take, seeds, spoilt)

}  // namespace hdt::transport::tagged::fuzz_tagged_frames
