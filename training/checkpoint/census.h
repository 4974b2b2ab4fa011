// census.h: how the ranks that are left after a loss find out who they are (hdt-train --elastic).
//
// The failure of a group names one rank, and another node may name another one. hdtCommShrink wants the same
// set from all. So each rank has a file in a folder below --save, which all nodes share. After a failure it
// writes there, again and again, that it lives and whom it takes for lost. What one takes for lost, all do;
// and whoever does not write is lost. The files only find the set: hdtCommShrink proves it, as it makes a
// group of exactly those that have passed the same set.
//
// All numbers of ranks are those of the world that the run has begun with, and the set only grows. So ranks
// find each other at every moment, even where some have made a group already and others could not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/status.h"
#include "training/checkpoint/survivor_report.h"

namespace hdt::training {

// Owns a thread from begin() on. Used by the training thread, but for begin().
class Census {
 public:
  // Writes this rank's first report. The folder is there. No rank may call agree() before all have started.
  static Result<std::unique_ptr<Census>> start(std::string folder, int rank, int size);
  ~Census();
  Census(const Census&) = delete;
  Census& operator=(const Census&) = delete;

  const std::string& folder() const { return folder_; }
  // After a failure: writes from now on that this rank lives and is on its way to agree(). Any thread.
  Status begin();
  // Ends that: the ranks that are left train, and the caller notices the next failure by other means.
  void rest();
  // After a failure: the ranks that are lost, the same on all that are left: those of `known`, those that
  // others know, and those from which nothing is seen for `patience`. Those that live may take `longest_way`
  // until they call it, too. To be called again after a group of the others could not be made, and after the
  // next failure. kAborted: the others take this rank for lost, or have gone on without it. kTimeout: there
  // was no agreement within the way and some times the patience.
  Result<std::set<int>> agree(const std::set<int>& known, std::chrono::milliseconds patience,
                              std::chrono::milliseconds longest_way);
  // Says that the group was made of those that agree() has left, before they do anything in it. A rank that
  // is not in it, and comes back, finds that here. kAborted: as agree().
  Status settle();

 private:
  struct Seen;

  Census(std::string folder, int rank, int size);
  std::string path_of(int rank) const;
  std::optional<SurvivorReport> read(int rank) const;
  // Writes the report anew, with another beat. Any thread.
  Status write();
  // Whether the others have gone on, or the run has ended, as far as the files say.
  bool is_left_behind() const;
  // Writes until the end of the object, unless it rests.
  void keep_writing();

  const std::string folder_;
  const int rank_;
  const int size_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  SurvivorReport mine_;
  bool rests_ = true;
  bool ends_ = false;
  std::thread thread_;  // started by begin(), ended by the destructor
};

}  // namespace hdt::training
