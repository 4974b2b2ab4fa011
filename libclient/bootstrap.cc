#include "libclient/bootstrap.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "base/codec.h"
#include "base/hmac.h"
#include "base/log.h"
#include "libclient/daemon_finder.h"
#include "libclient/environment.h"
#include "libclient/pmix_exchange.h"

namespace hdt::client {

namespace {

constexpr uint32_t kIdMagic = 0x4854444a;  // "JDTH"
constexpr size_t kSeedBytes = 16;          // the id's secret, from which the group's key is made
// Of a daemon's address with its node id in front, as hdtCommSplit passes it on; a multiple of an element's size.
constexpr size_t kMaxAddress = session::kMaxAddressBytes + 36;
// Addresses of one name that are tried.
constexpr size_t kMaxNameAddresses = 8;

struct IdContents {
  std::array<std::byte, kSeedBytes> seed{};
  std::string rendezvous;
};

// A daemon on many NICs has more addresses than an id has room for: the last ones are left out.
Result<hdtUniqueId_t> pack_id(const IdContents& contents) {
  hdtUniqueId_t id{};
  std::string rendezvous = contents.rendezvous;
  constexpr size_t kRoom = sizeof id.internal - sizeof kIdMagic - kSeedBytes - sizeof(uint32_t);
  while (rendezvous.size() > kRoom && rendezvous.rfind(',') != std::string::npos)
    rendezvous.resize(rendezvous.rfind(','));
  if (rendezvous.size() > kRoom)
    return Status(Code::kInternal, "the daemon's address '" + rendezvous + "' is too long for an id");
  const auto bytes = Writer().put(kIdMagic).put_bytes(contents.seed).put_string(rendezvous).take();
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

Result<IdContents> unpack_id(const hdtUniqueId_t& id) {
  Reader reader(std::as_bytes(std::span(id.internal)));
  const auto magic = reader.get<uint32_t>();
  IdContents contents;
  reader.get_bytes(contents.seed);
  contents.rendezvous = reader.get_string(sizeof id.internal);
  if (reader.failed() || magic != kIdMagic || contents.rendezvous.empty()) {
    return Status(Code::kInvalidArgument, "the unique id was not made by hdtGetUniqueId");
  }
  return contents;
}

// A key that everyone who knows `text` computes.
Result<session::GroupKey> key_of(const std::string& text) {
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!digest.is_ok()) return digest.status();
  session::GroupKey key{};
  std::memcpy(key.data(), digest.value().data(), key.size());
  return key;
}

Result<session::GroupKey> key_of(const IdContents& contents) {
  return key_of("id " + std::string(reinterpret_cast<const char*>(contents.seed.data()), kSeedBytes));
}

// For how long this process has existed; 0 where the system does not say.
int64_t process_age_ms() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field, the name, may hold blanks and parentheses; the start time is field 22, in ticks since boot.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t now_ms = now.tv_sec * 1'000 + now.tv_nsec / 1'000'000;
  const int64_t started_ms = std::atoll(field.c_str()) * 1'000 / ::sysconf(_SC_CLK_TCK);
  return std::max<int64_t>(now_ms - started_ms, 0);
}

// How the ranks of a group find each other, beside the key in their options.
struct Meeting {
  session::Meeting kind = session::Meeting::kSecret;
  session::Hosting host = session::Hosting::kNone;
  std::string place;  // in the user's words
};

// On success `options.key` is replaced by a secret that only the group's members have.
Result<std::shared_ptr<Communicator>> join(std::shared_ptr<Session> session, CommunicatorOptions options,
                                           const Meeting& meeting) {
  session::JoinRequest request;
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
  made.value()->make_deterministic(channel.take());
  return made;
}

std::string text_of(const char (&address)[kMaxAddress]) { return {address, ::strnlen(address, kMaxAddress)}; }

// A group of some of the parent's ranks, of which this is one, in the order of `members`. `what` says which group of the
// parent's it is, the same on all of them.
Result<std::shared_ptr<Communicator>> join_members(Communicator& parent, const std::vector<uint32_t>& members,
                                                   const std::string& what, const std::string& rendezvous,
                                                   const Wishes& wishes, session::Meeting kind) {
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
  return join(parent.session(), options, {kind, session::Hosting::kNone, ""});
}

struct Addresses {
  std::string list;       // "[::1]:4000,127.0.0.1:4000"
  bool loopback = false;  // one of them is
};

// All addresses of the host, of both families, in the resolver's order. Names are looked up here, in the caller's
// thread: the daemon never blocks on it.
Result<Addresses> addresses_of(const Rendezvous& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(where.host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    return Status(Code::kConfig,
                  where.source + ": cannot resolve host '" + where.host + "': " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Addresses addresses;
  std::vector<std::string> known;
  for (const addrinfo* entry = found; entry != nullptr && known.size() < kMaxNameAddresses;
       entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    const std::string host = text.data();
    if (host == "0.0.0.0" || host == "::") {
      return Status(Code::kConfig,
                    where.source + ": '" + where.host +
                        "' means every address of a host, so no rank can be met there: expected the "
                        "name or address of rank 0's host");
    }
    if (std::find(known.begin(), known.end(), host) != known.end()) continue;
    known.push_back(host);
    const bool v6 = entry->ai_family == AF_INET6;
    addresses.loopback |= v6 ? host == "::1" : host.starts_with("127.");
    const std::string address = (v6 ? "[" + host + "]" : host) + ":" + std::to_string(where.port);
    if (addresses.list.size() + 1 + address.size() > session::kMaxPlaceBytes) break;
    addresses.list += (addresses.list.empty() ? "" : ",") + address;
  }
  if (addresses.list.empty())
    return Status(Code::kConfig,
                  where.source + ": host '" + where.host + "' has no address that TCP can use");
  return addresses;
}

bool is_numeric(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || host.find(':') != std::string::npos;
}

// "localhost", "localhost.localdomain", "ip6-localhost": names of the loopback interface on every host. Any other name
// is a host's, and its own host may have it at a loopback address (Debian's installer writes 127.0.1.1).
bool names_loopback(const std::string& host) { return host.find("localhost") != std::string::npos; }

// Meets the other ranks of the job at an address. The first group's key is made from the text that all ranks were
// given, not from what it resolves to, which differs from host to host. Later groups are made with a secret that the
// first one's coordinator drew, so that no other process can take part in them.
class JobMeeting {
 public:
  static JobMeeting& instance() {
    static JobMeeting meeting;
    return meeting;
  }
  Result<session::GroupKey> key(const Rendezvous& where, uint64_t number, session::Meeting& kind) {
    const std::string place = text(where);
    const std::lock_guard lock(mutex_);
    if (const auto found = secrets_.find(place); found != secrets_.end()) {
      kind = session::Meeting::kSecret;
      return key_of("job group " + std::to_string(number) + " " + found->second);
    }
    const char* const secret = std::getenv("HDT_JOB_SECRET");    // NOLINT(concurrency-mt-unsafe)
    const char* const run = std::getenv("TORCHELASTIC_RUN_ID");  // NOLINT(concurrency-mt-unsafe)
    const bool has_secret = secret != nullptr && *secret != '\0';
    kind = has_secret ? session::Meeting::kSecret : session::Meeting::kAddress;
    return key_of("job at " + place + " group " + std::to_string(number) + " secret " +
                  (has_secret ? secret : "") + " run " + (run != nullptr ? run : ""));
  }
  void remember(const Rendezvous& where, const session::GroupKey& secret) {
    const std::lock_guard lock(mutex_);
    secrets_.try_emplace(text(where),
                         std::string(reinterpret_cast<const char*>(secret.data()), secret.size()));
  }

 private:
  static std::string text(const Rendezvous& where) { return where.host + " " + std::to_string(where.port); }
  std::mutex mutex_;
  std::map<std::string, std::string> secrets_;  // by place
};

// The n-th hdtCommInit of this process: the same on all ranks, as hdtCommInit is collective over the job.
uint64_t next_job_group() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
}

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
    contents = {unpacked.value().seed, address.take()};
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
    std::memcpy(id.internal, bytes.value().data(), std::min(bytes.value().size(), sizeof id.internal));
    auto unpacked = unpack_id(id);
    if (!unpacked.is_ok()) return unpacked.status();
    contents = unpacked.take();
  }
  auto key = key_of(contents);
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

Result<Wishes> read_config(const hdtCommConfig_t* config, const Wishes& defaults) {
  Wishes wishes = defaults;
  if (config == nullptr) return wishes;
  // Fields behind timeout_ms came later: a program built before them has none.
  if (config->size < offsetof(hdtCommConfig_t, deterministic)) {
    return Status(Code::kInvalidArgument, "hdtCommConfig_t: start from HDT_COMM_CONFIG_INIT");
  }
  if (config->group_class != nullptr) wishes.group_class = config->group_class;
  if (config->socket != nullptr) wishes.socket = config->socket;
  if (config->timeout_ms < 0) return Status(Code::kInvalidArgument, "hdtCommConfig_t.timeout_ms is negative");
  if (config->timeout_ms > 0) wishes.timeout_ms = config->timeout_ms;
  if (config->size >= sizeof(hdtCommConfig_t)) wishes.deterministic = config->deterministic != 0;
  if (wishes.group_class.empty() || wishes.group_class.size() > session::kMaxClassBytes) {
    return Status(Code::kInvalidArgument, "group class '" + wishes.group_class + "' must have 1 to " +
                                              std::to_string(session::kMaxClassBytes) + " bytes");
  }
  return wishes;
}

Result<hdtUniqueId_t> make_unique_id() {
  auto session = find_daemon("");
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
  auto session = find_daemon(wishes.socket);
  if (!session.is_ok()) return session.status();
  auto key = key_of(contents.value());
  if (!key.is_ok()) return key.status();
  const CommunicatorOptions options{
      key.value(),       contents.value().rendezvous,  wishes.group_class,          wishes.socket,
      wishes.timeout_ms, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank), wishes.deterministic};
  return join(session.take(), options, {});
}

Result<std::shared_ptr<Communicator>> join_job(const Wishes& wishes) {
  auto detected =
      detect_job([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  if (!detected.is_ok()) return detected.status();
  Job job = detected.take();
  auto found = find_daemon(wishes.socket);
  if (!found.is_ok()) return found.status();
  std::shared_ptr<Session> session = found.take();
  CommunicatorOptions options;
  options.group_class = wishes.group_class;
  options.socket = wishes.socket;
  options.timeout_ms = wishes.timeout_ms;
  options.deterministic = wishes.deterministic;
  Meeting meeting;
  switch (job.rendezvous.kind) {
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
      auto key = JobMeeting::instance().key(job.rendezvous, next_job_group(), meeting.kind);
      if (!key.is_ok()) return key.status();
      options.key = key.value();
      meeting.place = job.rendezvous.text();
      const std::string& name = job.rendezvous.host;
      if (job.rank == 0) {
        meeting.host = addresses.value().loopback && !is_numeric(name) && !names_loopback(name)
                           ? session::Hosting::kListenOnNics
                           : session::Hosting::kListen;
      }
      break;
    }
  }
  if (!job.size)
    return Status(Code::kConfig, job.source + " is set, but nothing says how many ranks the job has");
  options.ranks = static_cast<uint32_t>(*job.size);
  options.rank = static_cast<uint32_t>(job.rank);
  auto made = join(std::move(session), options, meeting);
  if (made.is_ok() && !meeting.place.empty())
    JobMeeting::instance().remember(job.rendezvous, made.value()->options().key);
  return made;
}

Result<std::shared_ptr<Communicator>> split(Communicator& parent, int color, int key, const Wishes& wishes) {
  struct Choice {
    int32_t color, key;
  };
  const CommunicatorOptions& from = parent.options();
  const uint64_t number = parent.next_split();
  auto address = parent.session()->rendezvous_address();
  if (!address.is_ok()) return address.status();
  if (address.value().size() >= kMaxAddress) return Status(Code::kInternal, "rendezvous address too long");
  // Everyone learns everyone's choice, and where the new group's first rank can be met.
  struct Entry {
    Choice choice;
    char address[kMaxAddress];
  };
  static_assert(sizeof(Entry) % sizeof(int32_t) == 0);
  Entry mine{{color, key}, {}};
  std::memcpy(mine.address, address.value().data(), address.value().size());
  std::vector<Entry> all(from.ranks);
  session::Call call;
  call.what = collectives::Collective::kAllGather;
  call.type = collectives::DataType::kInt32;
  call.count = sizeof(Entry) / sizeof(int32_t);
  auto gathering = parent.collective(call, &mine, all.data());
  if (!gathering.is_ok()) return gathering.status();
  HDT_RETURN_IF_ERROR(parent.wait(*gathering.value(), Deadline::never()));
  if (color == HDT_SPLIT_NO_COLOR) return std::shared_ptr<Communicator>();
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < from.ranks; ++rank) {
    if (all[rank].choice.color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](uint32_t a, uint32_t b) { return all[a].choice.key < all[b].choice.key; });
  return join_members(parent, members, "split " + std::to_string(number) + " color " + std::to_string(color),
                      text_of(all[members.front()].address), wishes, session::Meeting::kSecret);
}

// The parent may have failed, so nothing is asked of its members: who they are and where they can be met was known when
// it was made, and the key is computed from what all were told.
Result<std::shared_ptr<Communicator>> shrink(Communicator& parent, const std::vector<uint32_t>& excluded,
                                             const Wishes& wishes) {
  const CommunicatorOptions& from = parent.options();
  std::vector<bool> leaves(from.ranks, false);
  for (const uint32_t rank : excluded) leaves[rank] = true;
  std::vector<uint32_t> members;
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
  std::string rendezvous = access.segment.places()[node].get();
  if (node == access.node) {  // a daemon that was started again may be met elsewhere than its predecessor
    auto address = parent.session()->rendezvous_address();
    if (!address.is_ok()) return address.status();
    rendezvous = address.take();
  }
  auto made = join_members(parent, members, "shrink " + std::to_string(parent.shrinks()) + " " + text,
                           rendezvous, wishes, session::Meeting::kAgain);
  if (made.is_ok()) parent.shrunk();
  return made;
}

}  // namespace hdt::client
