// handshake.cc: what daemons say first on every connection (daemon/protocol/handshake.h). Either a stranger
// who says anything to one end, or two honest ends with somebody between them who changes, drops, repeats and
// invents messages.
#include "daemon/protocol/handshake.h"

#include <algorithm>
#include <deque>

#include "tests/fuzz/target.h"

namespace hdt::daemon::fuzz_handshake {

using fuzz::Bytes;
using fuzz::Choices;

const std::string kKey = "a key that no stranger knows";

Handshake end(Handshake::Role role, const std::string& key) {
  PeerHello own;
  own.purpose = Purpose::kRail;
  own.name = role == Handshake::Role::kDialer ? "dialer" : "acceptor";
  own.rail = 2;
  own.group_class = "dp";
  // A daemon has one for all its connections.
  static const std::shared_ptr<Trust> trusts[2][2] = {
      {Trust::open({"", "", ""}).take(), Trust::open({"", "", ""}).take()},
      {Trust::open({kKey, "", ""}).take(), Trust::open({kKey, "", ""}).take()}};
  return {role, own, trusts[key.empty() ? 0 : 1][role == Handshake::Role::kDialer ? 0 : 1]};
}

void check(const Handshake& handshake) {
  const PeerHello& peer = handshake.peer();
  HDT_HOLDS(peer.name.size() <= kMaxName && peer.group_class.size() <= kMaxName);
}

// The stranger's messages, each behind its length.
bool take_stranger(bool dials, bool keyed, Choices input) {
  const std::string key = keyed ? kKey : "";
  Handshake handshake = end(dials ? Handshake::Role::kDialer : Handshake::Role::kAcceptor, key);
  handshake.start();
  bool heard = false;
  for (int i = 0; i < 8 && !input.empty(); ++i) {
    const auto length = input.get<uint16_t>();
    const auto answer = handshake.on_message(input.bytes(length));
    if (!answer.is_ok()) {
      HDT_HOLDS(!answer.status().message().empty());
      return heard;
    }
    heard = true;
    check(handshake);
    HDT_HOLDS(!keyed || !handshake.done());  // he has no key
  }
  return heard;
}

// Messages on their way between two honest ends, as the input wants them. True: both ends are done.
bool take_between(bool keyed, Choices input) {
  const std::string key = keyed ? kKey : "";
  Handshake ends[2] = {end(Handshake::Role::kDialer, key), end(Handshake::Role::kAcceptor, key)};
  struct Message {
    int to;
    Bytes bytes;
  };
  std::deque<Message> under_way;
  bool changed = false;
  const auto say = [&](int from, const std::vector<Bytes>& messages) {
    for (const Bytes& message : messages) under_way.push_back({1 - from, message});
  };
  say(0, ends[0].start());
  say(1, ends[1].start());
  for (int i = 0; i < 32 && !under_way.empty(); ++i) {
    Message message = under_way.front();
    under_way.pop_front();
    switch (input.get<uint8_t>() % 8) {
      case 1: {  // other bytes in it
        const size_t at = input.get<uint16_t>() % message.bytes.size();
        const auto by = input.get<uint8_t>();
        message.bytes[at] ^= std::byte{by};
        changed |= by != 0;
        break;
      }
      case 2:  // shorter
        changed = true;
        message.bytes.resize(input.get<uint16_t>() % message.bytes.size());
        break;
      case 3:  // dropped
        changed = true;
        continue;
      case 4:  // once more
        changed = true;
        under_way.push_back(message);
        break;
      case 5:  // back to who said it
        changed = true;
        message.to = 1 - message.to;
        break;
      case 6: {  // another message in its place
        changed = true;
        const auto other = input.bytes(input.get<uint8_t>());
        message.bytes.assign(other.begin(), other.end());
        break;
      }
      default:
        break;
    }
    const auto answer = ends[message.to].on_message(message.bytes);
    if (!answer.is_ok()) return false;
    check(ends[message.to]);
    say(message.to, answer.value());
  }
  const bool both = ends[0].done() && ends[1].done();
  if (!changed) HDT_HOLDS(both);
  // A key proves what both have said: who is done believes what the other end says of itself, word for word.
  if (keyed && ends[0].done()) HDT_HOLDS(ends[0].peer().name == "acceptor" && ends[0].peer().rail == 2);
  if (keyed && ends[1].done()) HDT_HOLDS(ends[1].peer().name == "dialer" && ends[1].peer().rail == 2);
  return both;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  const auto how = choices.get<uint8_t>();
  const bool keyed = (how & 1) != 0;
  if ((how & 2) != 0) return take_between(keyed, choices);
  return take_stranger((how & 4) != 0, keyed, choices);
}

// A hello and an empty proof.
Bytes stranger(uint8_t how, Handshake::Role role) {
  Bytes all = {std::byte{how}};
  Bytes hello = role == Handshake::Role::kDialer ? end(role, "").start().front() : Bytes();
  if (role == Handshake::Role::kAcceptor) {
    Handshake acceptor = end(role, "");
    hello = acceptor.on_message(end(Handshake::Role::kDialer, "").start().front()).value().front();
  }
  const auto add = [&](const Bytes& message) {
    all.push_back(static_cast<std::byte>(message.size() & 0xff));
    all.push_back(static_cast<std::byte>(message.size() >> 8));
    all.insert(all.end(), message.begin(), message.end());
  };
  add(hello);
  add({std::byte{2}});
  return all;
}

std::vector<Bytes> seeds() {
  return {stranger(0, Handshake::Role::kDialer),
          stranger(4, Handshake::Role::kAcceptor),
          stranger(1, Handshake::Role::kDialer),  // who has no key, and is told so
          {std::byte{2}},
          {std::byte{3}}};
}

// To take_between(), with a key: what happens to each message.
Bytes between(std::initializer_list<int> steps) {
  Bytes all = {std::byte{3}};
  for (const int step : steps) all.push_back(static_cast<std::byte>(step));
  return all;
}

// To take_stranger(): hellos of somebody who is no daemon, of another release, that are malformed, or whose
// node id is another's; and a proof before a hello.
std::vector<Bytes> spoilt() {
  constexpr size_t kHeadAt = 1 + sizeof(uint16_t);  // behind `how` and the length
  constexpr size_t kMagicAt = kHeadAt + 1, kVersionAt = kMagicAt + sizeof kPeerMagic,
                   kPurposeAt = kVersionAt + sizeof kPeerVersion, kIdAt = kPurposeAt + sizeof(Purpose);
  const Bytes good = stranger(0, Handshake::Role::kDialer);
  constexpr size_t kNameAt = kIdAt + sizeof NodeId{}.bytes + sizeof(uint32_t);
  return {fuzz::changed(good, kHeadAt, uint8_t{2}), fuzz::changed(good, kMagicAt, kPeerMagic + 1),
          fuzz::changed(good, kVersionAt, kPeerVersion + 1), fuzz::changed(good, kPurposeAt, uint8_t{0xff}),
          fuzz::changed(good, kIdAt, uint8_t(std::to_integer<uint8_t>(good[kIdAt]) ^ 1)),
          fuzz::changed(good, kNameAt, '\n'),
          // Between two ends with a key: nothing of the hello is changed, and the proof of the dialer is; its
          // second half is the signature.
          between({0, 0, 1, 1, 0, 0xff}), between({0, 0, 1, 40, 0, 0xff})};
}

HDT_FUZZ_TARGET(handshake, take, seeds, spoilt)

}  // namespace hdt::daemon::fuzz_handshake
