// bootstrap.cc: from an id, a job or a parent to a joined group.
//
// The ranks of a group know each other by a *key* of 32 bytes. The first group's key is a hash of what
// its ranks have in common: the id's random seed, or the job's meeting place. When the group is made,
// its coordinator draws a *secret*, which replaces the key in `CommunicatorOptions::key`. Keys of groups
// that are split or shrunk from it are hashes of that secret and of a text that says which group it is.
// So only members can compute them (docs/design/communicator.md, "Who takes part").
#include "libclient/group/bootstrap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/codec.h"
#include "base/contained.h"
#include "base/hmac.h"
#include "base/log.h"
#include "libclient/daemon_client/daemon_finder.h"
#include "libclient/launch/environment.h"
#include "libclient/launch/job_meeting.h"
#include "libclient/launch/pmix_exchange.h"

namespace hdt::client {

namespace {

// "JDTH" in memory: the first bytes of every id.
constexpr uint32_t kIdMagic = 0x4854444a;
// The random secret in an id, from which the group's key is made.
constexpr size_t kSeedBytes = 16;
// Room for a daemon's addresses with its node id in front, as hdtCommSplit passes them on, in bytes. A
// multiple of an element's size, as the addresses travel in an allgather of int32.
constexpr size_t kMaxAddress = ipc::kMaxAddressBytes + 36;

// The contents of an hdtUniqueId_t; `rendezvous`: the coordinator's addresses.
struct IdContents {
  uint32_t magic = kIdMagic;
  std::array<std::byte, kSeedBytes> seed{};
  std::string rendezvous;
};

void fields(auto& c, Is<IdContents> auto& id) {
  c.number(id.magic);
  c.bytes(id.seed);
  c.string(id.rendezvous, sizeof(hdtUniqueId_t::internal));
}

// A daemon on many NICs has more addresses than an id has room for: the last ones are left out.
// kInternal: not even the first one fits.
Result<hdtUniqueId_t> pack_id(IdContents contents) {
  hdtUniqueId_t id{};
  std::string& rendezvous = contents.rendezvous;
  constexpr size_t kRoom = sizeof id.internal - sizeof kIdMagic - kSeedBytes - sizeof(uint32_t);
  while (rendezvous.size() > kRoom && rendezvous.rfind(',') != std::string::npos)
    rendezvous.resize(rendezvous.rfind(','));
  if (rendezvous.size() > kRoom)
    return Status(Code::kInternal, "the daemon's address '" + rendezvous + "' is too long for an id");
  Writer writer;
  fields(writer, contents);
  std::memcpy(id.internal, writer.written().data(), writer.written().size());
  return id;
}

// The id comes from the user, so it may be any bytes. What follows the contents is zero and is not looked at.
Result<IdContents> unpack_id(const hdtUniqueId_t& id) {
  Reader reader(std::as_bytes(std::span(id.internal)));
  IdContents contents;
  fields(reader, contents);
  if (reader.failed() || contents.magic != kIdMagic || contents.rendezvous.empty()) {
    return Status(Code::kInvalidArgument, "the unique id was not made by hdtGetUniqueId");
  }
  return contents;
}

// The hash hides the seed: the key travels to daemons, the seed does not.
Result<ipc::GroupKey> key_of_id(const IdContents& contents) {
  return key_of("id " + std::string(reinterpret_cast<const char*>(contents.seed.data()), kSeedBytes));
}

// How the ranks of a group find each other, beside the key in their options.
struct Meeting {
  ipc::Meeting kind = ipc::Meeting::kSecret;
  ipc::Hosting host = ipc::Hosting::kNone;
  // The place in the user's words, for messages; "": the ranks do not meet at an address that the user
  // gave.
  std::string place;
};

// The common end of all ways to make a group:
// 1. Join through the daemon; this blocks until all ranks have come, or one cannot.
// 2. Keep the group's secret as the key from which later keys are made.
// 3. Wrap the group and take this rank's seat (Communicator::make()).
// 4. If reductions are to be deterministic between nodes: make a second group of the same ranks, over
//    which they go (deterministic_calls.h). It is made by a split, so it is collective like the first
//    one.
Result<std::shared_ptr<Communicator>> join(std::shared_ptr<Session> session, CommunicatorOptions options,
                                           const Meeting& meeting) {
  ipc::JoinRequest request;
  request.key = options.key;
  request.meeting = meeting.kind;
  request.host = meeting.host;
  request.rendezvous = options.rendezvous;
  request.place = meeting.place;
  request.process_age_ms = process_age_ms();
  request.ranks = options.ranks;
  request.rank = options.rank;
  request.group_class = options.group_class;
  request.timeout_ms = options.timeout_ms;
  auto joined = session->join(request);
  if (!joined.is_ok()) return joined.status();
  options.key = joined.value().secret;
  auto made = Communicator::make(std::move(session), joined.take(), options);
  // On one node reductions have the order of ranks in any case.
  if (!made.is_ok() || !options.deterministic || made.value()->access().one_node()) return made;
  auto channel = split(*made.value(), 0, 0, {options.group_class, options.socket, options.timeout_ms, false});
  if (!channel.is_ok()) return channel.status();
  HDT_RETURN_IF_ERROR(made.value()->make_deterministic(channel.take()));
  return made;
}

// A text in a fixed field, which need not have a closing zero.
std::string text_of(const char (&address)[kMaxAddress]) { return {address, ::strnlen(address, kMaxAddress)}; }

// A collective on buffers of the library. They go away with the caller, so the call has ended when this
// returns, even if there is no memory to wait for it.
Status complete(Communicator& parent, const ipc::Call& call, const void* send, void* recv) {
  Status ended;
  (void)contained(
      "a call of a split", [&] { ended = parent.run_collective(call, send, recv); },
      [&](const std::string& /*why*/) {
        ended = parent.abandon({Code::kSystem, "no memory"});
      });
  return ended;
}

// Joins a group of some of the parent's ranks, of which this is one, in the order of `members`. `what`
// says which of the parent's groups it is; it must be the same text on all of them, and must never name
// another group of this parent.
Result<std::shared_ptr<Communicator>> join_members(Communicator& parent, const std::vector<uint32_t>& members,
                                                   const std::string& what, const std::string& rendezvous,
                                                   const Wishes& wishes, ipc::Meeting kind) {
  const CommunicatorOptions& from = parent.options();
  const std::string parent_key(reinterpret_cast<const char*>(from.key.data()), from.key.size());
  auto key = key_of(parent_key + " " + what);
  if (!key.is_ok()) return key.status();
  const auto rank = std::find(members.begin(), members.end(), from.rank) - members.begin();
  const CommunicatorOptions options{key.value(),
                                    rendezvous,
                                    wishes.group_class,
                                    wishes.socket,
                                    wishes.timeout_ms,
                                    static_cast<uint32_t>(members.size()),
                                    static_cast<uint32_t>(rank),
                                    wishes.deterministic};
  return join(parent.session(), options, {kind, ipc::Hosting::kNone, ""});
}

// The number of this hdtCommInit in the process: the same on all ranks, as hdtCommInit is collective
// over the job.
uint64_t next_job_group() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
}

// The meeting through PMIx: rank 0 publishes an id under the group's name, and the other ranks fetch it.
// Fills in the job's size if the variables do not say it. Waits in fetch() until the deadline.
Result<CommunicatorOptions> by_pmix(Session& session, Job& job, CommunicatorOptions options) {
  auto pmix = PmixExchange::instance();
  if (!pmix.is_ok()) {
    return Status(
        pmix.status().code(),
        "this job (" + job.source + ") has no HDT_RENDEZVOUS=host:port, and " + pmix.status().message());
  }
  if (!job.size) {
    const auto size = pmix.value()->job_size();
    if (!size.is_ok()) return size.status();
    job.size = size.value();
  }
  const std::string name = "hdt.group." + std::to_string(next_job_group());
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  IdContents contents;
  if (job.rank == 0) {
    auto id = make_unique_id();
    if (!id.is_ok()) return id.status();
    auto address = session.rendezvous_address();
    if (!address.is_ok()) return address.status();
    auto unpacked = unpack_id(id.value());
    if (!unpacked.is_ok()) return unpacked.status();
    // make_unique_id() used the daemon that a config of NULL leads to. The ranks must meet at the daemon
    // of this session, so its address replaces that one.
    contents.seed = unpacked.value().seed;
    contents.rendezvous = address.take();
    const auto packed = pack_id(contents);
    if (!packed.is_ok()) return packed.status();
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.value().internal);
    HDT_RETURN_IF_ERROR(pmix.value()->publish(name, {bytes, sizeof packed.value().internal}));
  } else {
    const auto bytes = pmix.value()->fetch(0, name, deadline);
    if (!bytes.is_ok()) {
      return Status(bytes.status().code(),
                    "rank 0 did not publish the group's id: " + bytes.status().message());
    }
    hdtUniqueId_t id{};
    // The value may have any length; unpack_id() refuses one that is too short.
    std::memcpy(id.internal, bytes.value().data(), std::min(bytes.value().size(), sizeof id.internal));
    auto unpacked = unpack_id(id);
    if (!unpacked.is_ok()) return unpacked.status();
    contents = unpacked.take();
  }
  auto key = key_of_id(contents);
  if (!key.is_ok()) return key.status();
  options.key = key.value();
  options.rendezvous = contents.rendezvous;
  return options;
}

}  // namespace

Result<Wishes> default_wishes() {
  Wishes wishes;
  const char* text = std::getenv("HDT_TIMEOUT_MS");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return wishes;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, wishes.timeout_ms);
  if (error != std::errc() || rest != end || wishes.timeout_ms <= 0) {
    return Status(Code::kConfig,
                  std::string("HDT_TIMEOUT_MS='") + text + "': expected a positive number of milliseconds");
  }
  return wishes;
}

// Fields behind timeout_ms were added later. `size` says how many of them the caller's program knows.
Result<Wishes> read_config(const hdtCommConfig_t* config, const Wishes& defaults) {
  Wishes wishes = defaults;
  if (config == nullptr) return wishes;
  // A program that was built before `deterministic` existed has a smaller struct.
  if (config->size < offsetof(hdtCommConfig_t, deterministic)) {
    return Status(Code::kInvalidArgument, "hdtCommConfig_t: start from HDT_COMM_CONFIG_INIT");
  }
  if (config->group_class != nullptr) wishes.group_class = config->group_class;
  if (config->socket != nullptr) wishes.socket = config->socket;
  if (config->timeout_ms < 0) return Status(Code::kInvalidArgument, "hdtCommConfig_t.timeout_ms is negative");
  if (config->timeout_ms > 0) wishes.timeout_ms = config->timeout_ms;
  if (config->size >= sizeof(hdtCommConfig_t)) wishes.deterministic = config->deterministic != 0;
  if (wishes.group_class.empty() || wishes.group_class.size() > ipc::kMaxClassBytes) {
    return Status(Code::kInvalidArgument, "group class '" + wishes.group_class + "' must have 1 to " +
                                              std::to_string(ipc::kMaxClassBytes) + " bytes");
  }
  return wishes;
}

Result<hdtUniqueId_t> make_unique_id() {
  const auto wishes = default_wishes();
  if (!wishes.is_ok()) return wishes.status();
  auto session = find_daemon("", wishes.value().timeout_ms);
  if (!session.is_ok()) return session.status();
  auto address = session.value()->rendezvous_address();
  if (!address.is_ok()) return address.status();
  IdContents contents;
  HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(contents.seed.data()), contents.seed.size()}));
  contents.rendezvous = address.take();
  return pack_id(contents);
}

Result<std::shared_ptr<Communicator>> join_by_id(const hdtUniqueId_t& id, int ranks, int rank,
                                                 const Wishes& wishes) {
  auto contents = unpack_id(id);
  if (!contents.is_ok()) return contents.status();
  auto session = find_daemon(wishes.socket, wishes.timeout_ms);
  if (!session.is_ok()) return session.status();
  auto key = key_of_id(contents.value());
  if (!key.is_ok()) return key.status();
  const CommunicatorOptions options{
      key.value(),       contents.value().rendezvous,  wishes.group_class,          wishes.socket,
      wishes.timeout_ms, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank), wishes.deterministic};
  return join(session.take(), options, {});
}

// The steps:
// 1. Find out which rank this is (detect_job()).
// 2. Find the daemon.
// 3. Find out where the ranks meet, and compute the key by which they know each other.
// 4. Join.
// 5. Remember the group's secret, so that the job's later groups need no key that others could guess.
Result<std::shared_ptr<Communicator>> join_job(const Wishes& wishes) {
  auto detected =
      detect_job([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  if (!detected.is_ok()) return detected.status();
  Job job = detected.take();
  auto found = find_daemon(wishes.socket, wishes.timeout_ms);
  if (!found.is_ok()) return found.status();
  std::shared_ptr<Session> session = found.take();
  CommunicatorOptions options;
  options.group_class = wishes.group_class;
  options.socket = wishes.socket;
  options.timeout_ms = wishes.timeout_ms;
  options.deterministic = wishes.deterministic;
  Meeting meeting;
  switch (job.rendezvous.kind) {
    // A group of one: a random key that nobody else has, at this process's own daemon.
    case Rendezvous::Kind::kNone: {
      auto address = session->rendezvous_address();
      if (!address.is_ok()) return address.status();
      options.rendezvous = address.take();
      HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(options.key.data()), options.key.size()}));
      break;
    }
    case Rendezvous::Kind::kPmix: {
      auto made = by_pmix(*session, job, options);
      if (!made.is_ok()) return made.status();
      options = made.take();
      break;
    }
    case Rendezvous::Kind::kAddress:
    case Rendezvous::Kind::kFirstNode: {
      const auto addresses = addresses_of(job.rendezvous);
      if (!addresses.is_ok()) return addresses.status();
      options.rendezvous = addresses.value().list;
      // The key is made from the place as text, since the name resolves to different addresses on
      // different hosts.
      auto key = JobMeeting::instance().key(job.rendezvous, next_job_group(), meeting.kind);
      if (!key.is_ok()) return key.status();
      options.key = key.value();
      meeting.place = job.rendezvous.text();
      const std::string& name = job.rendezvous.host;
      // Rank 0's daemon listens at the place. If the name of the host leads to a loopback address here
      // (as Debian's /etc/hosts makes it), the other hosts reach the daemon at its NICs, so it listens
      // there as well.
      if (job.rank == 0) {
        meeting.host = addresses.value().loopback && names_a_host(name) ? ipc::Hosting::kListenOnNics
                                                                        : ipc::Hosting::kListen;
      }
      break;
    }
  }
  if (!job.size)
    return Status(Code::kConfig, job.source + " is set, but the number of ranks of the job is not");
  options.ranks = static_cast<uint32_t>(*job.size);
  options.rank = static_cast<uint32_t>(job.rank);
  auto made = join(std::move(session), options, meeting);
  if (made.is_ok() && !meeting.place.empty())
    JobMeeting::instance().remember(job.rendezvous, made.value()->options().key);
  return made;
}

// Every rank learns every rank's color and key by one allgather on the parent, and with it the address
// of every rank's daemon: the new group meets at that of its first rank. All then compute the same list
// of members.
Result<std::shared_ptr<Communicator>> split(Communicator& parent, int color, int key, const Wishes& wishes) {
  struct Choice {
    int32_t color, key;
  };
  const CommunicatorOptions& from = parent.options();
  // The number keeps the key apart from those of earlier splits.
  const uint64_t number = parent.next_split();
  auto address = parent.session()->rendezvous_address();
  if (!address.is_ok()) return address.status();
  if (address.value().size() >= kMaxAddress) return Status(Code::kInternal, "rendezvous address too long");
  // One rank's part of the allgather, as int32 elements.
  struct Entry {
    Choice choice;
    char address[kMaxAddress];
  };
  static_assert(sizeof(Entry) % sizeof(int32_t) == 0);
  Entry mine{{color, key}, {}};
  std::memcpy(mine.address, address.value().data(), address.value().size());
  std::vector<Entry> all(from.ranks);
  ipc::Call call;
  call.what = collectives::Collective::kAllGather;
  call.type = collectives::DataType::kInt32;
  call.count = sizeof(Entry) / sizeof(int32_t);
  HDT_RETURN_IF_ERROR(complete(parent, call, &mine, all.data()));
  if (color == HDT_SPLIT_NO_COLOR) return std::shared_ptr<Communicator>();
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < from.ranks; ++rank) {
    if (all[rank].choice.color == color) members.push_back(rank);
  }
  // Members are in the order of old ranks already, so a stable sort by key keeps that order among equal
  // keys.
  std::stable_sort(members.begin(), members.end(),
                   [&](uint32_t a, uint32_t b) { return all[a].choice.key < all[b].choice.key; });
  return join_members(parent, members, "split " + std::to_string(number) + " color " + std::to_string(color),
                      text_of(all[members.front()].address), wishes, ipc::Meeting::kSecret);
}

// The parent may have failed, so nothing is asked of its members. Who they are and where their daemons
// can be met has been known since it was made; the key is a hash of the parent's secret, the number of
// earlier shrinks, and the excluded ranks, in which all callers agree.
Result<std::shared_ptr<Communicator>> shrink(Communicator& parent, const std::vector<uint32_t>& excluded,
                                             const Wishes& wishes) {
  const CommunicatorOptions& from = parent.options();
  std::vector<bool> leaves(from.ranks, false);
  for (const uint32_t rank : excluded) leaves[rank] = true;
  std::vector<uint32_t> members;
  // The list is sorted and without duplicates, whatever the caller's order was.
  std::string text = "without";
  for (uint32_t rank = 0; rank < from.ranks; ++rank) {
    if (leaves[rank]) {
      text += " " + std::to_string(rank);
    } else {
      members.push_back(rank);
    }
  }
  const auto& access = parent.access();
  const uint32_t node = access.order.node_of_rank[members.front()];
  // The coordinator is the daemon of the new group's first rank.
  std::string rendezvous = access.segment.places()[node].get();
  // Our own daemon is asked, because one that was started again may be met elsewhere than its
  // predecessor.
  if (node == access.node) {
    auto address = parent.session()->rendezvous_address();
    if (!address.is_ok()) return address.status();
    rendezvous = address.take();
  }
  auto made = join_members(parent, members, "shrink " + std::to_string(parent.shrinks()) + " " + text,
                           rendezvous, wishes, ipc::Meeting::kAgain);
  // A failed attempt is not counted: ranks that repeat the call compute the same key as ranks that make
  // it for the first time. Meeting::kAgain allows a key to be used again.
  if (made.is_ok()) parent.shrunk();
  return made;
}

}  // namespace hdt::client
