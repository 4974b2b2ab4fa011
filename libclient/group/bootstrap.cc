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
#include <functional>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/contained.h"
#include "base/hmac.h"
#include "base/log.h"
#include "libclient/common/out_of_memory.h"
#include "libclient/daemon_client/daemon_finder.h"
#include "libclient/group/pmix_meeting.h"
#include "libclient/group/unique_id.h"
#include "libclient/launch/environment.h"
#include "libclient/launch/job_meeting.h"

namespace hdt::client {

namespace {

// Room for a daemon's addresses with its node id in front, as hdtCommSplit passes them on, in bytes. A
// multiple of an element's size, as the addresses travel in an allgather of int32.
constexpr size_t kMaxAddress = ipc::kMaxAddressBytes + 36;

// How the ranks of a group find each other, beside the key in their options.
struct Meeting {
  ipc::Meeting kind = ipc::Meeting::kSecret;
  ipc::Hosting host = ipc::Hosting::kNone;
  // The place in the user's words, for messages; "": the ranks do not meet at an address that the user
  // gave.
  std::string place;
};

// Reads the settings of a group that has no parent, and finds the daemon that they name.
Result<std::shared_ptr<Session>> read_and_find(const hdtCommConfig_t* config, Wishes& wishes) {
  const auto defaults = default_wishes();
  if (!defaults.is_ok()) return defaults.status();
  auto read = read_config(config, defaults.value());
  if (!read.is_ok()) return read.status();
  wishes = read.take();
  return find_daemon(wishes.socket, wishes.timeout_ms);
}

// All that a rank must know to join a group.
struct Ready {
  CommunicatorOptions options;
  Meeting meeting;
};

ipc::JoinRequest request_of(const Ready& ready) {
  const CommunicatorOptions& options = ready.options;
  ipc::JoinRequest request;
  request.key = options.key;
  request.meeting = ready.meeting.kind;
  request.host = ready.meeting.host;
  request.rendezvous = options.rendezvous;
  request.place = ready.meeting.place;
  request.process_age_ms = process_age_ms();
  request.ranks = options.ranks;
  request.rank = options.rank;
  request.group_class = options.group_class;
  request.timeout_ms = options.timeout_ms;
  return request;
}

// A second group of the same ranks, over which reductions go (deterministic_calls.h). It is made by a split,
// so it is collective like the first one. Without it the first one fails on all ranks.
Status add_channel(Communicator& made, const Wishes& wishes) {
  Status added;
  (void)contained(
      "the group of deterministic calls",
      [&] {
        auto channel = split(made, 0, 0, wishes);
        if (channel.is_ok()) {
          added = made.make_deterministic(channel.take());
        } else {
          // Another rank may have the channel, and go on with both groups.
          (void)made.give_up(channel.status());
          added = channel.status();
        }
      },
      [&](const std::string& /*why*/) { added = made.abandon(out_of_memory()); });
  return added;
}

// The common end of all ways to make a group:
// 1. Join through the daemon; this blocks until all ranks have come, or one cannot.
// 2. Keep the group's secret as the key from which later keys are made.
// 3. Wrap the group and take this rank's seat (Communicator::make()).
// 4. If reductions are to be deterministic between nodes: add_channel().
// It throws only before the group has been joined: what the steps after that need is copied first. So the
// caller knows whether the others still wait for this rank to join.
//
// `parent`, if there is one, is the group of which all members of this one have just learnt that they are. A
// rank that has not learnt it, as the parent failed, never joins. So the parent's failure is this group's,
// too.
Result<std::shared_ptr<Communicator>> join(const std::shared_ptr<Session>& session, const Ready& ready,
                                           const Communicator* parent) {
  CommunicatorOptions options = ready.options;
  const Wishes channel{options.group_class, options.socket, options.timeout_ms, false};
  std::function<Status()> why_not;
  if (parent != nullptr) why_not = [parent] { return parent->failure(); };
  auto joined = session->join(request_of(ready), why_not);
  if (!joined.is_ok()) return joined.status();
  options.key = joined.value().secret;
  auto made = Communicator::make(session, joined.take(), std::move(options));
  // On one node reductions have the order of ranks in any case.
  if (made.is_ok() && ready.options.deterministic && !made.value()->access().one_node()) {
    Status added = add_channel(*made.value(), channel);
    if (!added.is_ok()) return added;
  }
  return made;
}

// `body` is a Status, or what its exception means.
template <typename Body>
Status without_exception(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::system_error& error) {  // a lock, a file: the system has refused it
    return {Code::kSystem, error.what()};
  }
}

// Finds the daemon by find(), learns by prepare(session) which group this is, and joins it. The other ranks
// wait for this one from the beginning. If it cannot even join, it does both once more, and sends the reason
// to the others through the daemon: memory that was missing may be there again, and the message needs little
// of it. prepare() may be called twice, then. `parent`: see join().
template <typename Find, typename Prepare>
Result<std::shared_ptr<Communicator>> meet(Find find, Prepare prepare, const Communicator* parent = nullptr) {
  std::shared_ptr<Session> session;
  Result<Ready> ready = Status();
  Result<std::shared_ptr<Communicator>> made = Status();
  bool asked = false;
  const auto get_ready = [&]() -> Status {
    if (session == nullptr) {
      auto found = find();
      if (!found.is_ok()) return found.status();
      session = found.take();
    }
    if (!ready.is_ok()) ready = prepare(*session);
    return ready.is_ok() ? Status::ok() : ready.status();
  };
  const Status why = without_exception([&]() -> Status {
    HDT_RETURN_IF_ERROR(get_ready());
    made = join(session, ready.value(), parent);
    asked = true;
    return Status::ok();
  });
  if (asked) return made;
  // Only a lack of memory or descriptors may have passed.
  if (ready.is_ok() || why.code() == Code::kSystem) {
    (void)contained("the refusal of a rank that cannot take part", [&] {
      if (get_ready().is_ok()) session->decline(request_of(ready.value()), why);
    });
  }
  return why;
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

// How to join a group of some of the parent's ranks, of which this is one, in the order of `members`. `what`
// says which of the parent's groups it is; it must be the same text on all of them, and must never name
// another group of this parent.
Result<Ready> ready_for(Communicator& parent, const std::vector<uint32_t>& members, const std::string& what,
                        const std::string& rendezvous, const Wishes& wishes, ipc::Meeting kind) {
  const CommunicatorOptions& from = parent.options();
  const std::string parent_key(reinterpret_cast<const char*>(from.key.data()), from.key.size());
  auto key = key_of(parent_key + " " + what);
  if (!key.is_ok()) return key.status();
  const auto rank = std::find(members.begin(), members.end(), from.rank) - members.begin();
  return Ready{{key.value(), rendezvous, wishes.group_class, wishes.socket, wishes.timeout_ms,
                static_cast<uint32_t>(members.size()), static_cast<uint32_t>(rank), wishes.deterministic},
               {kind, ipc::Hosting::kNone, ""}};
}

// The number of this hdtCommInit in the process: the same on all ranks, as hdtCommInit is collective
// over the job.
uint64_t next_job_group() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
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

Result<Wishes> wishes_of_child(const Communicator& parent, const hdtCommConfig_t* config) {
  const CommunicatorOptions& from = parent.options();
  return read_config(config, {from.group_class, from.socket, parent.timeout_ms(), from.deterministic});
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
                                                 const hdtCommConfig_t* config) {
  Wishes wishes;
  return meet([&] { return read_and_find(config, wishes); },
              [&](Session&) -> Result<Ready> {
                auto contents = unpack_id(id);
                if (!contents.is_ok()) return contents.status();
                auto key = key_of_id(contents.value());
                if (!key.is_ok()) return key.status();
                return Ready{{key.value(), contents.value().rendezvous, wishes.group_class, wishes.socket,
                              wishes.timeout_ms, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank),
                              wishes.deterministic},
                             {}};
              });
}

namespace {

// Where the ranks of a job meet, and the key by which they know each other. `number`: of the job's group.
// `place` is set to the name under which JobMeeting has the place, if it is an address.
Result<Ready> ready_for_job(Session& session, Job& job, PmixMeeting& pmix, uint64_t number,
                            const Wishes& wishes, std::string& place) {
  CommunicatorOptions options;
  options.group_class = wishes.group_class;
  options.socket = wishes.socket;
  options.timeout_ms = wishes.timeout_ms;
  options.deterministic = wishes.deterministic;
  Meeting meeting;
  switch (job.rendezvous.kind) {
    // A group of one: a random key that nobody else has, at this process's own daemon.
    case Rendezvous::Kind::kNone: {
      auto address = session.rendezvous_address();
      if (!address.is_ok()) return address.status();
      options.rendezvous = address.take();
      HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(options.key.data()), options.key.size()}));
      break;
    }
    case Rendezvous::Kind::kPmix: {
      const auto contents = pmix.id(session, job);
      if (!contents.is_ok()) return contents.status();
      auto key = key_of_id(contents.value());
      if (!key.is_ok()) return key.status();
      options.key = key.value();
      options.rendezvous = contents.value().rendezvous;
      break;
    }
    case Rendezvous::Kind::kAddress:
    case Rendezvous::Kind::kFirstNode: {
      const auto addresses = addresses_of(job.rendezvous);
      if (!addresses.is_ok()) return addresses.status();
      options.rendezvous = addresses.value().list;
      // The key is made from the place as text, since the name resolves to different addresses on
      // different hosts.
      place = JobMeeting::name_of(job.rendezvous);
      auto key = JobMeeting::instance().key(place, number, meeting.kind);
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
  return Ready{std::move(options), std::move(meeting)};
}

}  // namespace

// The steps:
// 1. Find out which rank this is (detect_job()).
// 2. Find the daemon.
// 3. Find out where the ranks meet, and compute the key by which they know each other.
// 4. Join.
// 5. Remember the group's secret, so that the job's later groups need no key that others could guess.
// The group is counted before anything can fail: ranks that repeat the call must count alike.
Result<std::shared_ptr<Communicator>> join_job(const hdtCommConfig_t* config) {
  const uint64_t number = next_job_group();
  Wishes wishes;
  std::optional<PmixMeeting> pmix;
  std::optional<Job> job;
  std::string place;
  auto made = meet(
      [&]() -> Result<std::shared_ptr<Session>> {
        if (!job) {
          auto detected = detect_job(
              [](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
          if (!detected.is_ok()) return detected.status();
          job = detected.take();
        }
        return read_and_find(config, wishes);
      },
      [&](Session& session) {
        if (!pmix) pmix.emplace(number, wishes.timeout_ms);
        return ready_for_job(session, *job, *pmix, number, wishes, place);
      });
  if (!made.is_ok()) {
    if (job && job->rank == 0 && job->rendezvous.kind == Rendezvous::Kind::kPmix) {
      if (!pmix) pmix.emplace(number, wishes.timeout_ms);
      pmix->give_up(made.status());
    }
  } else if (!place.empty()) {
    JobMeeting::instance().remember(place, made.value()->options().key);
  }
  return made;
}

// Every rank learns every rank's color and key by one allgather on the parent, and with it the address
// of every rank's daemon: the new group meets at that of its first rank. All then compute the same list
// of members. A rank that cannot take part in the allgather fails the parent, as the others wait for it
// there; a rank without memory does so as well, in the caller (guarded_for()).
Result<std::shared_ptr<Communicator>> split(Communicator& parent, int color, int key, const Wishes& wishes) {
  struct Choice {
    int32_t color, key;
  };
  const CommunicatorOptions& from = parent.options();
  // The number keeps the key apart from those of earlier splits.
  const uint64_t number = parent.next_split();
  auto address = parent.session()->rendezvous_address();
  if (!address.is_ok()) return parent.give_up(address.status());
  if (address.value().size() >= kMaxAddress)
    return parent.give_up(Status(Code::kInternal, "rendezvous address too long"));
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
  return meet([&]() -> Result<std::shared_ptr<Session>> { return parent.session(); },
              [&](Session&) {
                std::vector<uint32_t> members;
                for (uint32_t rank = 0; rank < from.ranks; ++rank) {
                  if (all[rank].choice.color == color) members.push_back(rank);
                }
                // Members are in the order of old ranks already, so a stable sort by key keeps that order
                // among equal keys.
                std::stable_sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) {
                  return all[a].choice.key < all[b].choice.key;
                });
                return ready_for(parent, members,
                                 "split " + std::to_string(number) + " color " + std::to_string(color),
                                 text_of(all[members.front()].address), wishes, ipc::Meeting::kSecret);
              },
              &parent);
}

// The parent may have failed, so nothing is asked of its members. It has been known since it was made
// who they are and where their daemons can be met; the key is a hash of the parent's secret, the excluded
// ranks, in which all callers agree, and the number of earlier shrinks without the same ones.
Result<std::shared_ptr<Communicator>> shrink(Communicator& parent, std::span<const int> excluded,
                                             const hdtCommConfig_t* config) {
  std::atomic<uint64_t>* shrinks = nullptr;
  const auto prepare = [&](Session& session) -> Result<Ready> {
    const auto wishes = wishes_of_child(parent, config);
    if (!wishes.is_ok()) return wishes.status();
    const CommunicatorOptions& from = parent.options();
    std::vector<bool> leaves(from.ranks, false);
    for (const int rank : excluded) leaves[static_cast<size_t>(rank)] = true;
    std::vector<uint32_t> members;
    // The list is sorted and without duplicates, whatever the caller's order was.
    std::string without = "without";
    for (uint32_t rank = 0; rank < from.ranks; ++rank) {
      if (leaves[rank]) {
        without += " " + std::to_string(rank);
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
      auto address = session.rendezvous_address();
      if (!address.is_ok()) return address.status();
      rendezvous = address.take();
    }
    shrinks = &parent.shrinks(without);
    return ready_for(parent, members, "shrink " + std::to_string(*shrinks) + " " + without, rendezvous,
                     wishes.value(), ipc::Meeting::kAgain);
  };
  auto made = meet([&]() -> Result<std::shared_ptr<Session>> { return parent.session(); }, prepare);
  // A failed attempt is not counted: ranks that repeat the call compute the same key as ranks that make
  // it for the first time. Meeting::kAgain allows a key to be used again.
  if (made.is_ok()) ++*shrinks;
  return made;
}

}  // namespace hdt::client
