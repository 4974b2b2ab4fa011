// tcp_frames.cc: the stream of a TCP connection (transports/tcp/frame_reader.h). The input is the stream
// twice: once as a whole, once in parts of the lengths that its first bytes say. Both must mean the same.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.h"
#include "tests/fuzz/region.h"
#include "tests/fuzz/target.h"
#include "transports/tcp/frame_reader.h"

namespace hdt::transport::tcp::fuzz_tcp_frames {

using fuzz::Bytes;
using fuzz::Choices;

// A pipe takes so much at once.
constexpr size_t kMostBytes = 60 << 10;

class Sink final : public FrameSink {
 public:
  std::byte* locate(uint64_t key, uint64_t offset, size_t bytes) override {
    HDT_HOLDS(bytes > 0 && bytes <= kMaxWriteBytes);
    return region.locate(key, offset, bytes);
  }
  void on_message(std::span<const std::byte> message) override {
    HDT_HOLDS(!message.empty() && message.size() <= kMaxMessageBytes);
    log += "message " + fuzz::to_text(message) + "\n";
  }
  void on_written(const Immediate& immediate, std::span<const std::byte> placed) override {
    HDT_HOLDS(region.holds(placed));
    ++writes;
    log += "written " + fuzz::to_text(immediate) + fuzz::to_text(placed) + "\n";
  }
  void on_path(const FrameHeader& header) override {
    HDT_HOLDS(header.payload_bytes <= kMaxPathBytes && header.region >= kPathHere &&
              header.region <= kPathSeen);
    log += "path " + std::to_string(header.region) + " " + std::to_string(header.offset) + "\n";
  }
  // By turns it wants more, or the stream is another reader's from here on.
  bool on_secure(const FrameHeader& header, std::span<const std::byte> content) override {
    HDT_HOLDS(content.size() == header.payload_bytes && content.size() <= FrameReader::kBufferBytes);
    log += "secure " + std::to_string(header.region) + " " + fuzz::to_text(content) + "\n";
    return ++secure % 2 != 0;
  }

  fuzz::Region region;
  int secure = 0, writes = 0;
  std::string log;
};

struct Meaning {
  std::string log;
  int writes = 0;
  bool ended = false;
  Status reason;
};

// `lengths` says how long the parts are; empty: one. `admitted`: the peer is no stranger.
Meaning read(std::span<const std::byte> stream, std::span<const std::byte> lengths, bool admitted) {
  int ends[2];
  HDT_HOLDS(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  UniqueFd out(ends[0]), in(ends[1]);
  Sink sink;
  FrameReader reader;
  if (admitted) reader.admit();
  Meaning meaning;
  size_t part = 0;
  while (!meaning.ended) {
    size_t length = stream.size();
    if (!lengths.empty() && part < lengths.size()) {
      const size_t wanted = 1 + std::to_integer<size_t>(lengths[part]) * (part % 2 == 0 ? 1 : 16);
      length = std::min(length, wanted);
    }
    ++part;
    if (length == 0) {
      in.reset();  // the peer's end
    } else {
      HDT_HOLDS(::write(in.get(), stream.data(), length) == static_cast<ssize_t>(length));
      stream = stream.subspan(length);
    }
    for (;;) {
      const FrameReader::Outcome outcome = reader.read(out.get(), part % 3 == 0 ? 64 : 1 << 20, sink);
      if (outcome.state == FrameReader::State::kBudget) continue;
      if (outcome.state != FrameReader::State::kDrained) {
        meaning.ended = true;
        meaning.reason = outcome.reason;
      }
      if (outcome.state == FrameReader::State::kStopped)
        HDT_HOLDS(reader.take_rest().size() <= FrameReader::kBufferBytes);
      break;
    }
  }
  sink.region.check();
  meaning.log = sink.log;
  meaning.writes = sink.writes;
  return meaning;
}

// Whatever the reason is, the refused end hears that much of it as fits, and nothing that a terminal obeys.
void check_refusal(const std::string& why, uint64_t kind) {
  const std::string heard = plain_words(why.data(), std::min(why.size(), kMaxRefusalBytes));
  HDT_HOLDS(std::ranges::all_of(heard, [](char c) { return c >= ' ' && c <= '~'; }));
  for (const bool admitted : {false, true}) {
    const Meaning meaning = read(refusal(why, kind), {}, admitted);
    HDT_HOLDS(meaning.log.empty() && meaning.reason.message().ends_with(heard));
    HDT_HOLDS(meaning.reason.code() == (kind == kRefusalConfig ? Code::kConfig : Code::kSystem));
  }
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  const auto parts = choices.bytes(choices.get<uint8_t>() % 16);
  const auto stream = choices.rest().first(std::min(choices.rest().size(), kMostBytes));
  for (const bool admitted : {false, true}) {
    const Meaning whole = read(stream, {}, admitted);
    const Meaning cut = read(stream, parts, admitted);
    HDT_HOLDS(whole.log == cut.log);
    HDT_HOLDS(whole.reason.code() == cut.reason.code() && whole.reason.message() == cut.reason.message());
    HDT_HOLDS(admitted || whole.writes == 0);
  }
  check_refusal(fuzz::to_text(stream.first(std::min(stream.size(), 2 * kMaxRefusalBytes))), kRefusalLimit);
  check_refusal(fuzz::to_text(parts), kRefusalConfig);
  const Meaning whole = read(stream, {}, true);
  return !whole.log.empty() || whole.reason.is_ok() || whole.reason.code() == Code::kSystem;
}

Bytes frame(FrameHeader header, const std::string& text) {
  const std::string immediate(header.type == FrameType::kWrite ? kImmediateBytes : 0, 'i');
  header.payload_bytes = static_cast<uint32_t>(text.size());
  Bytes all(sizeof header);
  std::memcpy(all.data(), &header, sizeof header);
  for (const char c : immediate + text) all.push_back(static_cast<std::byte>(c));
  return all;
}

std::vector<Bytes> seeds() {
  FrameHeader message, write, goodbye, path;
  write.type = FrameType::kWrite;
  write.region = fuzz::Region::kKey;
  write.offset = 100;
  goodbye.type = FrameType::kGoodbye;
  path.type = FrameType::kPath;
  path.region = kPathSize;
  FrameHeader secure;
  secure.type = FrameType::kSecure;
  secure.region = kSecureOpening;
  FrameHeader nothing = write;
  nothing.region = nothing.offset = 0;
  const std::vector<Bytes> frames = {frame(message, "hello"), frame(write, std::string(9000, 'w')),
                                     frame(nothing, ""),      frame(path, std::string(40, 'p')),
                                     frame(secure, "n0"),     frame(write, "short"),
                                     refusal("at its limit"), frame(goodbye, "")};
  std::vector<Bytes> all;
  const Bytes parts = {std::byte{4}, std::byte{3}, std::byte{2}, std::byte{70}, std::byte{9}};
  Bytes row = parts;
  for (const Bytes& each : frames) {
    Bytes one = {std::byte{0}};
    one.insert(one.end(), each.begin(), each.end());
    all.push_back(one);
    row.insert(row.end(), each.begin(), each.end());
  }
  all.push_back(row);
  const auto add = [](Bytes& stream, const Bytes& one) {
    stream.insert(stream.end(), one.begin(), one.end());
  };
  // The second frame of the key exchange is the last one that the reader takes; more follows.
  Bytes stopped = {std::byte{0}};
  for (const Bytes& one : {frame(secure, "n0"), frame(secure, "n0"), frame(message, "hello")})
    add(stopped, one);
  all.push_back(stopped);
  // The first part ends within the head of the second frame.
  Bytes inside = {std::byte{1}, std::byte{40}};
  for (int i = 0; i < 2; ++i) add(inside, frame(message, "hello"));
  all.push_back(inside);
  // A stranger may send neither so long a message nor so many; a peer may.
  Bytes letter = {std::byte{0}};
  add(letter, frame(message, std::string(kMaxStrangerMessageBytes + 1, 'm')));
  all.push_back(letter);
  Bytes many = {std::byte{0}};
  for (size_t i = 0; i <= kMaxStrangerMessages; ++i) add(many, frame(message, "m"));
  all.push_back(many);
  return all;
}

// Each a stream of one frame.
std::vector<Bytes> spoilt() {
  const auto with = [](FrameType type, const std::string& text, auto change) {
    FrameHeader header;
    header.type = type;
    if (type == FrameType::kWrite) header.region = fuzz::Region::kKey;
    if (type == FrameType::kPath) header.region = kPathSize;
    if (type == FrameType::kSecure) header.region = kSecureOpening;
    Bytes stream = frame(header, text);
    std::memcpy(&header, stream.data(), sizeof header);  // with its length
    change(header);
    std::memcpy(stream.data(), &header, sizeof header);
    stream.insert(stream.begin(), std::byte{0});
    return stream;
  };
  const auto as_it_is = [](FrameHeader&) {};
  using Type = FrameType;
  return {{},
          with(Type::kMessage, "hello", [](FrameHeader& h) { h.magic += 1; }),
          with(Type::kMessage, "hello", [](FrameHeader& h) { h.version += 1; }),
          with(Type::kMessage, "hello", [](FrameHeader& h) { h.reserved2 = 1; }),
          with(Type::kMessage, "hello", [](FrameHeader& h) { h.region = 1; }),
          with(Type::kMessage, "hello", [](FrameHeader& h) { h.payload_bytes += 1; }),
          with(Type::kMessage, "", as_it_is),
          with(Type::kMessage, "", [](FrameHeader& h) { h.payload_bytes = kMaxMessageBytes + 1; }),
          with(Type::kWrite, "w", [](FrameHeader& h) { h.payload_bytes = kMaxWriteBytes + 1; }),
          with(Type::kWrite, "w", [](FrameHeader& h) { h.offset = fuzz::Region::kBytes; }),
          with(Type::kRefused, "no", [](FrameHeader& h) { h.offset = kRefusalConfig + 1; }),
          with(Type::kGoodbye, "", [](FrameHeader& h) { h.offset = 1; }),
          with(Type::kPath, "p", [](FrameHeader& h) { h.region = kPathSeen + 1; }),
          with(Type::kSecure, "s", [](FrameHeader& h) { h.region = kSecureExchange + 1; }),
          with(static_cast<Type>(7), "", as_it_is)};
}

HDT_FUZZ_TARGET(tcp_frames, take, seeds, spoilt)

}  // namespace hdt::transport::tcp::fuzz_tcp_frames
