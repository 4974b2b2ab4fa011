// liar.cc: a whole daemon that lies to others. It is hdtcommd, with all its handshakes and keys, but for
// three functions that the linker puts this file's in the place of (--wrap, CMakeLists.txt): what it says
// about groups (ControlNetwork::send), what its engines say on a link (Link::send), and what they write
// there (Link::write). Most of it is true, so that groups are made and get far; from time to time a field
// has another value, or a message comes twice, not at all, or is another one.
//
// LIAR_SEED says how it lies, as far as what it is asked to say comes in the same order.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/codec.h"
#include "daemon/control/control_network.h"
#include "daemon/protocol/wire.h"
#include "transports/link/link.h"

namespace hdt::testing {
namespace {

using Bytes = std::vector<std::byte>;
constexpr uint64_t kHostile[] = {0,
                                 1,
                                 2,
                                 15,
                                 16,
                                 31,
                                 64,
                                 127,
                                 128,
                                 255,
                                 1U << 16,
                                 INT32_MAX,
                                 1U << 31,
                                 UINT32_MAX,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 56,
                                 INT64_MAX,
                                 uint64_t{1} << 63,
                                 UINT64_MAX - 16,
                                 UINT64_MAX};

uint64_t seed() {
  const char* const text = std::getenv("LIAR_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// Each thread has its own: engines and control thread do not wait for each other here.
class Dice {
 public:
  uint64_t below(uint64_t limit) { return random_() % limit; }
  uint64_t value() { return below(6) == 0 ? random_() : kHostile[below(std::size(kHostile))]; }
  std::byte byte() { return static_cast<std::byte>(random_()); }
  // By turns of half a second it says the truth, lies rarely, and lies often.
  bool lies() {
    constexpr uint64_t kOneIn[] = {0, 200, 40, 6};
    const uint64_t one_in = kOneIn[static_cast<uint64_t>(now_ns() / 500'000'000) % std::size(kOneIn)];
    return one_in != 0 && below(one_in) == 0;
  }

 private:
  inline static std::atomic<uint64_t> threads_{0};
  std::mt19937_64 random_{seed() * 1000 + threads_++};
};

Dice& dice() {
  thread_local Dice own;
  return own;
}

// Another value somewhere behind the first `kept` bytes; what is of fixed length stays of that length.
void change(Bytes& bytes, size_t kept) {
  if (bytes.size() <= kept) return;
  const size_t at = kept + dice().below(bytes.size() - kept);
  const uint64_t value = dice().value();
  const size_t widths[] = {1, 4, 8};
  const size_t width = std::min(widths[dice().below(3)], bytes.size() - at);
  std::memcpy(bytes.data() + at, &value, width);
}

// JSON and other texts: a digit, a bracket or a letter becomes another one.
void change_text(Bytes& bytes) {
  static constexpr char kOthers[] = "0123456789-.eE[]{}\",:nulltrue\\\x01\xff";
  for (uint64_t i = 1 + dice().below(4); i > 0 && !bytes.empty(); --i)
    bytes[dice().below(bytes.size())] = static_cast<std::byte>(kOthers[dice().below(sizeof kOthers - 1)]);
}

void spoil(Bytes& bytes, size_t kept, size_t most) {
  switch (dice().below(10)) {
    case 0:
      bytes.resize(dice().below(bytes.size() + 1));
      break;
    case 1:
      for (uint64_t i = dice().below(40); i > 0 && bytes.size() < most; --i) bytes.push_back(dice().byte());
      break;
    case 2:
      change_text(bytes);
      break;
    default:
      for (uint64_t i = 1 + dice().below(3); i > 0; --i) change(bytes, kept);
      break;
  }
  if (bytes.empty()) bytes.push_back(dice().byte());
}

// A note of any kind about a group that there is.
Bytes other_note(uint64_t group) {
  const uint64_t kinds = std::variant_size_v<daemon::EngineMessage>;
  Writer writer;
  writer.number(static_cast<uint8_t>(1 + dice().below(kinds - 1)), group);
  static constexpr size_t kLengths[] = {0, 1, 4, 8, 12, 16, 20, 27, 33, 36, 40, 44, 68, 88};
  for (size_t left = kLengths[dice().below(std::size(kLengths))]; left > 0;) {
    const uint64_t value = dice().value();
    const size_t width = std::min<size_t>(left, dice().below(2) == 0 ? 4 : 8);
    writer.bytes(std::as_bytes(std::span(&value, 1)).first(width));
    left -= width;
  }
  return writer.take();
}

}  // namespace

// By the linker's names of the three functions, with what --wrap puts before them.
#define HDT_SEND "_ZN3hdt9transport4Link4sendESt4spanIKSt4byteLm18446744073709551615EE"
#define HDT_WRITE "_ZN3hdt9transport4Link5writeERKNS0_12WriteRequestE"
#define HDT_CONTROL "_ZN3hdt6daemon14ControlNetwork4sendEmSt4spanIKSt4byteLm18446744073709551615EE"
using Message = std::span<const std::byte>;
using transport::Link;
using transport::WriteRequest;
Status true_send(Link* link, Message message) __asm__("__real_" HDT_SEND);
Status told_send(Link* link, Message message) __asm__("__wrap_" HDT_SEND);
Status true_write(Link* link, const WriteRequest& request) __asm__("__real_" HDT_WRITE);
Status told_write(Link* link, const WriteRequest& request) __asm__("__wrap_" HDT_WRITE);
void true_control(daemon::ControlNetwork* network, daemon::ChannelId channel,
                  Message message) __asm__("__real_" HDT_CONTROL);
void told_control(daemon::ControlNetwork* network, daemon::ChannelId channel,
                  Message message) __asm__("__wrap_" HDT_CONTROL);

Status told_send(Link* link, Message message) {
  if (!dice().lies()) return true_send(link, message);
  Bytes lie(message.begin(), message.end());
  const uint64_t group = daemon::group_of(daemon::decode_engine_message(message));
  switch (dice().below(8)) {
    case 0:
      return Status::ok();  // it is never said
    case 1:
      (void)true_send(link, message);
      return true_send(link, message);
    case 2:
    case 3:
      (void)true_send(link, message);
      lie = other_note(group);
      break;
    default:
      // Kind and group stay, mostly: a note about nothing is not read far.
      spoil(lie, dice().below(8) == 0 ? 0 : 1 + sizeof group, transport::kMaxLinkMessageBytes);
      break;
  }
  return true_send(link, lie);
}

Status told_write(Link* link, const WriteRequest& request) {
  if (!dice().lies()) return true_write(link, request);
  WriteRequest lie = request;
  // The region is the peer's own matter, and ends the link at once.
  const uint64_t what = dice().below(32);
  if (what == 0) {
    lie.region.bytes[dice().below(8)] ^= std::byte{1};
  } else if (what == 1) {
    lie.offset = dice().value();
  } else if (what < 6) {
    lie.offset += dice().below(2) == 0 ? 4096 : 64;
  } else if (what < 12) {
    lie.bytes = dice().below(lie.bytes + 1);
  } else {
    // Group, chunk, sender, tag: kind and group stay, mostly.
    Bytes header(lie.header.begin(), lie.header.end());
    change(header, dice().below(8) == 0 ? 0 : 1 + sizeof(uint64_t));
    std::copy(header.begin(), header.end(), lie.header.begin());
  }
  return true_write(link, lie);
}

void told_control(daemon::ControlNetwork* network, daemon::ChannelId channel, Message message) {
  if (!dice().lies()) return true_control(network, channel, message);
  Bytes lie(message.begin(), message.end());
  switch (dice().below(8)) {
    case 0:
      return;
    case 1:
      true_control(network, channel, message);
      break;
    case 2:
      change_text(lie);
      break;
    default:
      spoil(lie, dice().below(4) == 0 ? 0 : 33, daemon::kMaxControlBytes);
      break;
  }
  true_control(network, channel, lie);
}

}  // namespace hdt::testing
