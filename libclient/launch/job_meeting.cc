// job_meeting.cc: resolving names, and keys of groups. A key is a hash of a text that has everything in
// it that keeps jobs apart: the place, the number of the group, the job's secret, torchrun's run. The
// daemon adds the user where the rest can be guessed (Meeting::kAddress).
#include "libclient/launch/job_meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "base/hmac.h"
#include "base/whole_number.h"

namespace hdt::client {

namespace {

// The maximum of addresses of one name that are tried.
constexpr size_t kMaxNameAddresses = 8;

}  // namespace

// A SHA-256 digest has as many bytes as a key.
Result<ipc::GroupKey> key_of(const std::string& text) {
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!digest.is_ok()) return digest.status();
  ipc::GroupKey key{};
  std::memcpy(key.data(), digest.value().data(), key.size());
  return key;
}

// From /proc/self/stat (proc(5)): field 22 is the start time in clock ticks since boot.
int64_t process_age_ms() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field, the name in parentheses, may hold blanks and parentheses itself.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  // The text after the name begins with field 3.
  for (int number = 3; number <= 22; ++number) fields >> field;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t now_ms = now.tv_sec * 1'000 + now.tv_nsec / 1'000'000;
  // sysconf() gives the ticks per second. Both times count from boot and include the time in which the
  // machine was suspended.
  const int64_t started_ms = whole_number<int64_t>(field).value_or(0) * 1'000 / ::sysconf(_SC_CLK_TCK);
  return std::max<int64_t>(now_ms - started_ms, 0);
}

// Numbers pass through getaddrinfo() unchanged, so a host may be a name or an address.
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
  // Freed on every way out.
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
    // Listeners accept these names; nobody can be reached there.
    if (host == "0.0.0.0" || host == "::") {
      return Status(Code::kConfig,
                    where.source + ": '" + where.host +
                        "' means every address of a host, so no rank can be met there: expected the "
                        "name or address of rank 0's host");
    }
    // The resolver names an address once for each type of socket.
    if (std::find(known.begin(), known.end(), host) != known.end()) continue;
    known.push_back(host);
    const bool v6 = entry->ai_family == AF_INET6;
    addresses.loopback |= v6 ? host == "::1" : host.starts_with("127.");
    const std::string address = (v6 ? "[" + host + "]" : host) + ":" + std::to_string(where.port);
    if (addresses.list.size() + 1 + address.size() > ipc::kMaxPlaceBytes) break;
    addresses.list += (addresses.list.empty() ? "" : ",") + address;
  }
  if (addresses.list.empty())
    return Status(Code::kConfig,
                  where.source + ": host '" + where.host + "' has no address that TCP can use");
  return addresses;
}

// A colon makes it an IPv6 address: a name cannot have one.
bool names_a_host(const std::string& host) {
  in_addr address{};
  const bool numeric =
      ::inet_pton(AF_INET, host.c_str(), &address) == 1 || host.find(':') != std::string::npos;
  return !numeric && host.find("localhost") == std::string::npos;
}

JobMeeting& JobMeeting::instance() {
  // Never destroyed: static destructors of a program may call HDT.
  static JobMeeting& meeting = *new JobMeeting();
  return meeting;
}

std::string JobMeeting::name_of(const Rendezvous& where) {
  return where.host + " " + std::to_string(where.port);
}

Result<ipc::GroupKey> JobMeeting::key(const std::string& place, uint64_t number, ipc::Meeting& kind) {
  const std::lock_guard lock(mutex_);
  // A group was made here before: all ranks have its secret, whatever the variables say now.
  if (const auto& known = secrets_[place]; known.has_value()) {
    kind = ipc::Meeting::kSecret;
    return key_of("job group " + std::to_string(number) + " " +
                  std::string(reinterpret_cast<const char*>(known->data()), known->size()));
  }
  const std::string secret = job_secret(environment_text);
  kind = secret.empty() ? ipc::Meeting::kAddress : ipc::Meeting::kSecret;
  // Without a secret, the key can be guessed by everyone who knows the place: the daemon adds the user
  // to it.
  return key_of("job at " + place + " group " + std::to_string(number) + " secret " + secret + " run " +
                environment_text("TORCHELASTIC_RUN_ID"));
}

// Later groups at the place do not change the secret.
void JobMeeting::remember(const std::string& place, const ipc::GroupKey& secret) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = secrets_.find(place);
  if (found != secrets_.end() && !found->second) found->second = secret;
}

}  // namespace hdt::client
