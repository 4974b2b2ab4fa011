// membership.cc: how a rank comes into a group, and into one without the ranks that have failed. See
// process_group.h.
#include "process_group.h"

namespace hdt_torch {

namespace {

// The id of a new group, from rank 0 by the store. A store may serve several groups one after the other, so
// each rank counts those that it has made there. Rank 0's failure is passed on.
hdtUniqueId_t meet(const GroupOptions& options) {
  constexpr char kId = 'I';
  constexpr char kFailure = 'F';
  c10d::Store& store = *options.store;
  const int64_t number = store.add(c10::str("hdt/groups/", options.rank), 1);
  const std::string key = c10::str("hdt/id/", number);
  hdtUniqueId_t id;
  if (options.rank == 0) {
    try {
      check(hdtGetUniqueId(&id), "making a group's id");
    } catch (const std::exception& failure) {
      store.set(key, bytes_of(kFailure + words_of(failure)));
      throw;
    }
    store.set(key, bytes_of(kId + std::string(id.internal, sizeof(id.internal))));
    return id;
  }
  try {
    store.wait({key}, options.timeout);
  } catch (const std::exception& error) {
    require(false, "rank 0 has put no group's id into the store within ", options.timeout.count(),
            " ms: ", error.what());
  }
  const std::string text = text_of(store.get(key));
  require(text.empty() || text[0] != kFailure, "rank 0 failed: ", text.substr(text.empty() ? 0 : 1));
  require(text.size() == 1 + sizeof(id.internal) && text[0] == kId, "the store holds something else at ", key,
          " than a group's id");
  text.copy(id.internal, sizeof(id.internal), 1);
  return id;
}

}  // namespace

hdtComm_t join(const GroupOptions& options, const std::function<hdtUniqueId_t()>& meet) {
  require(options.timeout.count() > 0, "a timeout of ", options.timeout.count(), " ms");
  const hdtCommConfig_t config = options.config();
  const hdtUniqueId_t id = meet();
  hdtComm_t comm = nullptr;
  check(hdtCommInitRank(&comm, options.size, id, options.rank, &config), "joining a group");
  return comm;
}

hdtCommConfig_t GroupOptions::config() const {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  if (!group_class.empty()) config.group_class = group_class.c_str();
  config.timeout_ms = timeout.count();
  config.deterministic = deterministic ? 1 : 0;
  return config;
}

ProcessGroupHDT::ProcessGroupHDT(const GroupOptions& options)
    : ProcessGroupHDT(options, join(options, [&] { return meet(options); })) {}

ProcessGroupHDT::ProcessGroupHDT(const GroupOptions& options, hdtComm_t comm)
    : BackendBase(options.rank, options.size), timeout_(options.timeout), options_(options) {
  init();
  if (comm != nullptr) group_ = Group::make(comm, options.rank, options.size);
}

ProcessGroupHDT::~ProcessGroupHDT() {
  if (group_) group_->close();
}

std::shared_ptr<Group> ProcessGroupHDT::group_or_null() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

std::shared_ptr<Group> ProcessGroupHDT::group() const {
  auto group = group_or_null();
  require(group != nullptr, "this group has no ranks before its first reconfigure()");
  return group;
}

GroupOptions ProcessGroupHDT::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

int ProcessGroupHDT::failed_rank() const {
  int rank = -1;
  check(hdtCommFailedRank(comm(), &rank), "the rank of a failure");
  return rank;
}

void ProcessGroupHDT::set_samples(uint64_t of_a_step) const {
  check(hdtCommSetSamples(comm(), of_a_step), "the samples of a rank");
}

c10::intrusive_ptr<ProcessGroupHDT> ProcessGroupHDT::without(const std::vector<int>& excluded,
                                                             Milliseconds timeout) const {
  require(timeout.count() > 0, "shrink: a timeout of ", timeout.count(), " ms");
  const GroupOptions of_this = options();
  GroupOptions of_new = of_this;
  of_new.store = {};
  of_new.timeout = timeout;
  of_new.rank = of_new.size = 0;
  of_new.global_ranks.clear();
  for (int rank = 0; rank < of_this.size; ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) continue;
    if (rank == of_this.rank) of_new.rank = of_new.size;
    ++of_new.size;
    of_new.global_ranks.push_back(of_this.global_rank(rank));
  }
  const hdtCommConfig_t config = of_new.config();  // the class and the determinism are this group's
  hdtComm_t comm = nullptr;
  check(hdtCommShrink(this->comm(), excluded.data(), static_cast<int>(excluded.size()), &comm, &config),
        "shrinking a group");
  return c10::make_intrusive<ProcessGroupHDT>(of_new, comm);
}

}  // namespace hdt_torch
