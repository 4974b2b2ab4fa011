// client_messages.cc: what processes and their daemon say to each other (ipc/messages.h), as either may
// hear it.
#include <algorithm>

#include "ipc/messages.h"
#include "ipc/segment.h"
#include "ipc/wake_page.h"
#include "tests/fuzz/target.h"

namespace hdt::ipc::fuzz_client_messages {

using fuzz::Bytes;

template <typename Message>
bool same(const Result<Message>& read, std::span<const std::byte> input,
          Bytes (*write)(const Message&) = nullptr) {
  if (!read.is_ok()) {
    HDT_HOLDS(!read.status().message().empty());
    return false;
  }
  const Bytes written = write != nullptr ? write(read.value()) : Bytes(input.begin(), input.end());
  HDT_HOLDS(fuzz::is_written_as(input, written));
  return true;
}

template <typename Message>
Bytes plain(const Message& message) {
  return encode(message);
}

bool take(std::span<const std::byte> input) {
  const Result<Kind> kind = kind_of(input);
  if (!kind.is_ok()) return false;
  switch (kind.value()) {
    case Kind::kHello:
      return same<Hello>(decode_hello(input), input, plain);
    case Kind::kWelcome: {
      const auto read = decode_welcome(input);
      if (read.is_ok())
        HDT_HOLDS(read.value().engines >= 1 && read.value().engines <= kMaxEngines &&
                  read.value().restart_ms >= 0);
      return same<Welcome>(read, input, plain);
    }
    case Kind::kJoin: {
      const auto read = decode_join(input);
      if (read.is_ok()) {
        const JoinRequest& m = read.value();
        HDT_HOLDS(m.ranks >= 1 && m.ranks <= kMaxRanks && m.rank < m.ranks && m.timeout_ms > 0);
        HDT_HOLDS(m.group_class.size() <= kMaxClassBytes && m.rendezvous.size() <= kMaxPlaceBytes);
      }
      return same<JoinRequest>(read, input, plain);
    }
    case Kind::kJoined: {
      const auto read = decode_joined(input);
      if (read.is_ok()) HDT_HOLDS(read.value().engine < kMaxEngines);
      return same<Joined>(read, input, plain);
    }
    case Kind::kAdopt: {
      const auto read = decode_adopt(input);
      if (read.is_ok())
        HDT_HOLDS(read.value().engine < kMaxEngines && read.value().local_index < kMaxLocalRanks);
      return same<AdoptRequest>(read, input, plain);
    }
    case Kind::kLeave:
    case Kind::kFail:
    case Kind::kDeadline:
    case Kind::kNotAdopted: {
      const auto read = decode_notice(input);
      if (!same<GroupNotice>(read, input)) return false;
      HDT_HOLDS(is_code(read.value().code));
      HDT_HOLDS(fuzz::is_written_as(input, encode(kind.value(), read.value())));
      return true;
    }
    case Kind::kShare:
    case Kind::kUnshare:
    case Kind::kOpen: {
      const auto read = decode_memory_request(input);
      if (!same<MemoryRequest>(read, input)) return false;
      HDT_HOLDS(fuzz::is_written_as(input, encode(kind.value(), read.value())));
      return true;
    }
    case Kind::kMemory:
      return same<MemoryAnswer>(decode_memory_answer(input), input, plain);
    case Kind::kExplain:
      return same<ExplainRequest>(decode_explain(input), input, plain);
    case Kind::kAsk:
      return same<Question>(decode_question(input), input, plain);
    case Kind::kRefused:
    case Kind::kRendezvousAt:
    case Kind::kExplanationIs:
    case Kind::kAnswerIs: {
      const auto read = decode_text(input);
      if (!same<Text>(read, input)) return false;
      HDT_HOLDS(is_code(read.value().code));
      HDT_HOLDS(fuzz::is_written_as(input, encode_text(kind.value(), read.value().code, read.value().text)));
      return true;
    }
    default:  // nothing but its kind
      return true;
  }
}

JoinRequest a_join() {
  JoinRequest join;
  join.rendezvous = "127.0.0.1:18520";
  join.place = "MASTER_ADDR=localhost port 29501";
  join.ranks = 4;
  join.rank = 3;
  join.group_class = "dp";
  join.timeout_ms = 10'000;
  join.code = Code::kSystem;
  join.text = "no memory";
  return join;
}

Welcome a_welcome() {
  Welcome welcome;
  welcome.software = "hdtcommd 0.1.0";
  welcome.node = "n0";
  welcome.engines = 2;
  welcome.restart_ms = 30'000;
  return welcome;
}

std::vector<Bytes> seeds() {
  GroupNotice notice;
  notice.code = Code::kTimeout;
  notice.rank = 1;
  notice.text = "late";
  Joined joined;
  joined.text = "no";
  ExplainRequest explain;
  explain.group = "dp";
  explain.what = "allreduce";
  explain.type = "float32";
  explain.bytes = 4096;
  Hello hello;
  hello.software = "libhdt 0.1.0";
  Question question;
  question.what = "class";
  question.about = "dp\nweight=3";
  return {encode(hello),
          encode(a_welcome()),
          encode(a_join()),
          encode(joined),
          encode(AdoptRequest{}),
          encode(Kind::kLeave, notice),
          encode(Kind::kFail, notice),
          encode(Kind::kDeadline, notice),
          encode(Kind::kNotAdopted, notice),
          encode(Kind::kShare, MemoryRequest{}),
          encode(Kind::kUnshare, MemoryRequest{}),
          encode(Kind::kOpen, MemoryRequest{}),
          encode(MemoryAnswer{}),
          encode(explain),
          encode(question),
          encode_text(Kind::kRefused, Code::kVersion, "of another release"),
          encode_text(Kind::kAnswerIs, Code::kSuccess, ""),
          encode_empty(Kind::kRendezvous),
          encode_empty(Kind::kStatus)};
}

// Messages of a wrong length, of no kind, of another version, with names that are too long or not printable,
// and with numbers that nothing has.
std::vector<Bytes> spoilt() {
  std::vector<Bytes> all = fuzz::cut_and_extended(seeds());
  all.push_back({});
  all.push_back({std::byte{0xff}});
  constexpr size_t kVersionAt = 1 + sizeof kSessionMagic;
  for (const Bytes& message : {encode(Hello{}), encode(a_welcome())}) {
    all.push_back(fuzz::changed(message, 1, kSessionMagic + 1));
    all.push_back(fuzz::changed(message, kVersionAt, kSessionVersion + 1));
  }
  const auto add = [&all](auto message, auto change) {
    change(message);
    all.push_back(encode(message));
  };
  add(a_welcome(), [](Welcome& m) { m.engines = kMaxEngines + 1; });
  add(a_join(), [](JoinRequest& m) { m.rank = m.ranks; });
  add(a_join(), [](JoinRequest& m) { m.group_class = "d\np"; });
  add(a_join(), [](JoinRequest& m) { m.code = static_cast<Code>(kCodeCount); });
  add(a_join(), [](JoinRequest& m) { m.rendezvous = std::string(kMaxPlaceBytes + 1, 'r'); });
  add(Joined{}, [](Joined& m) { m.engine = kMaxEngines; });
  add(AdoptRequest{}, [](AdoptRequest& m) { m.local_index = kMaxLocalRanks; });
  GroupNotice notice;
  notice.code = static_cast<Code>(kCodeCount);
  all.push_back(encode(Kind::kFail, notice));
  return all;
}

HDT_FUZZ_TARGET(client_messages, take, seeds, spoilt)

}  // namespace hdt::ipc::fuzz_client_messages
