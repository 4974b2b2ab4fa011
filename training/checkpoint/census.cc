// census.cc: files that are written in place, so that a client of NFS that opens one sees what was written
// last; a new name could stay unseen for half a minute. Nothing relies on a listing, on a rename, on another
// machine's clock, or on a file's times.
#include "training/checkpoint/census.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "training/checkpoint/small_file.h"

namespace hdt::training {
namespace {

using std::chrono::milliseconds;

constexpr auto kBeat = milliseconds(250);
constexpr int64_t kLookNs = 20 * kNsPerMs;
// Each rank that is lost besides may cost the patience once; a run that loses so many one after the other
// ends.
constexpr int kMostPatiences = 8;

Status left_behind() {
  return {Code::kAborted, "the other ranks take this one for lost, and go on without it"};
}

}  // namespace

// What was seen of another rank.
struct Census::Seen {
  SurvivorReport report;
  int64_t since_ns = 0;  // when its beat has last changed
  int changes = 0;       // of its beat; the first sight is one
};

Census::Census(std::string folder, int rank, int size)
    : folder_(std::move(folder)), rank_(rank), size_(size) {}

Census::~Census() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<Census>> Census::start(std::string folder, int rank, int size) {
  std::unique_ptr<Census> census(new Census(std::move(folder), rank, size));
  const std::string path = census->path_of(rank);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kForAll));
  if (!file.valid()) return Status::from_errno("--elastic: cannot make " + path, errno);
  HDT_RETURN_IF_ERROR(census->write());
  return census;
}

std::string Census::path_of(int rank) const { return fmt::format("{}/rank-{:05}", folder_, rank); }

std::optional<SurvivorReport> Census::read(int rank) const {
  const Result<std::string> text = read_small_file(path_of(rank), kMostReportBytes);
  return text.is_ok() ? parse_survivor_report(text.value(), size_) : std::nullopt;
}

// The file is not made again: it is gone when the run has ended.
Status Census::write() {
  const std::lock_guard lock(mutex_);
  ++mine_.beat;
  const std::string text = to_text(mine_);
  const std::string path = path_of(rank_);
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return Status::from_errno("--elastic: cannot open " + path, errno);
  const ssize_t written = ::pwrite(file.get(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size()))
    return Status::from_errno("--elastic: cannot write " + path, written < 0 ? errno : ENOSPC);
  if (::ftruncate(file.get(), written) != 0)
    return Status::from_errno("--elastic: cannot cut " + path, errno);
  // NFS sends what was written now, and says now if it could not.
  if (::close(file.release()) != 0) return Status::from_errno("--elastic: cannot write " + path, errno);
  return Status::ok();
}

// A failure is not reported here: it shows as a rank that is lost, on the others and in agree().
void Census::keep_writing() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (rests_) {
      changed_.wait(lock, [this] { return ends_ || !rests_; });
      continue;
    }
    lock.unlock();
    (void)write();
    lock.lock();
    changed_.wait_for(lock, kBeat, [this] { return ends_ || rests_; });
  }
}

Status Census::begin() {
  const std::lock_guard lock(mutex_);
  rests_ = false;
  changed_.notify_all();
  if (thread_.joinable()) return Status::ok();
  Result<std::thread> thread = start_thread("hdt-census", [this] { keep_writing(); });
  if (!thread.is_ok()) return thread.status();
  thread_ = thread.take();
  return Status::ok();
}

void Census::rest() {
  const std::lock_guard lock(mutex_);
  rests_ = true;
  changed_.notify_all();
}

// A folder that was removed may be seen for a minute by a client of NFS. A file of it is not: it is looked
// for on the server when it is opened.
bool Census::is_left_behind() const {
  const UniqueFd mine(::open(path_of(rank_).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!mine.valid() && (errno == ENOENT || errno == ESTALE)) return true;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto report = read(rank);
    if (report && report->settled && report->lost.contains(rank_)) return true;
  }
  return false;
}

Result<std::set<int>> Census::agree(const std::set<int>& known, milliseconds patience,
                                    milliseconds longest_way) {
  // Before it says anything: what it takes for lost may be those that have gone on.
  if (is_left_behind()) return left_behind();
  int64_t round = 0;
  std::set<int> lost;
  {
    const std::lock_guard lock(mutex_);
    mine_.lost.insert(known.begin(), known.end());
    round = ++mine_.round;
    lost = mine_.lost;
  }
  HDT_RETURN_IF_ERROR(write());
  HDT_RETURN_IF_ERROR(begin());
  const int64_t patience_ns = std::chrono::nanoseconds(patience).count();
  const Deadline deadline =
      Deadline::after_ns(kMostPatiences * patience_ns + std::chrono::nanoseconds(longest_way).count());
  std::vector<Seen> seen(static_cast<size_t>(size_), Seen{{}, now_ns(), 0});
  while (!deadline.expired()) {
    const int64_t begun_ns = now_ns();
    const size_t before = lost.size();
    bool agreed = true;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      Seen& other = seen[static_cast<size_t>(rank)];
      const auto report = read(rank);
      if (report && report->beat != other.report.beat)
        other = {*report, now_ns(), std::min(other.changes + 1, 2)};
      const bool is_silent = now_ns() - other.since_ns > patience_ns;
      // Two may take each other for lost, as where a link is cut. Both have written that before they read, so
      // one of them at least sees it. The one with the higher number ends; the other one waits for that.
      if (other.report.lost.contains(rank_)) {
        const bool lives = other.changes > 1;
        if (other.report.settled || (lives && rank < rank_)) return left_behind();
        agreed = agreed && is_silent;
      }
      if (lost.contains(rank)) continue;
      if (is_silent) {
        lost.insert(rank);
      } else {
        lost.insert(other.report.lost.begin(), other.report.lost.end());
        lost.erase(rank_);  // it is waited for above
      }
      agreed = agreed && other.report.round == round && other.report.lost == lost;
      // Another attempt has failed there.
      round = std::max(round, other.report.round);
    }
    if (lost.size() != before) agreed = false;
    bool changed = false;
    {
      const std::lock_guard lock(mutex_);
      changed = mine_.round != round || mine_.lost != lost;
      mine_.round = round;
      mine_.lost = lost;
    }
    if (changed) {
      HDT_RETURN_IF_ERROR(write());
      continue;
    }
    if (agreed && is_left_behind()) return left_behind();
    if (agreed) return lost;
    // While this rank waits for the file system it learns nothing of the others, which may wait for it, too.
    // Many files take long, and their server has other things to do.
    const int64_t took_ns = now_ns() - begun_ns;
    for (Seen& other : seen) other.since_ns += std::max<int64_t>(0, took_ns - patience_ns / 4);
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(std::max(kLookNs, std::min(took_ns, patience_ns / 8))));
  }
  return Status(Code::kTimeout, fmt::format("the ranks that are left did not agree who they are within {} s",
                                            (kMostPatiences * patience + longest_way).count() / 1000));
}

Status Census::settle() {
  {
    const std::lock_guard lock(mutex_);
    mine_.settled = true;
  }
  HDT_RETURN_IF_ERROR(write());
  // Two groups that are made at the same time, one without the other: both have written before they look.
  return is_left_behind() ? left_behind() : Status::ok();
}

}  // namespace hdt::training
