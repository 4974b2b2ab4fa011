// doctor.h: what the control thread does for hdtctl doctor: this node's description of itself, and trials of
// the paths between this node's tcp NICs and those of other nodes, in both directions, with the same backend
// that jobs use.
//
// The steps: answer() asks the other daemons for their descriptions. ask_paths() then starts two things at
// once: this node's trials to their ports, and the "paths" question to them, which has them try this node's
// ports. When both are done, one answer goes to hdtctl.
//
// Owner: ControlParts; the control thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/control_parts.h"
#include "daemon/diagnosis/path_trials.h"

namespace hdt::daemon {

class Doctor {
 public:
  // The question to another daemon "can you reach these data ports?"; their addresses follow.
  static constexpr std::string_view kPathsQuestion = "paths ";

  explicit Doctor(ControlParts& daemon) : daemon_(daemon) {}

  // Everything that another node or hdtctl needs to judge this one: its NICs and data ports, versions,
  // clock, and the settings that decide who can be a peer.
  nlohmann::json description() const;
  // Answers `hdtctl doctor`. `about`: addresses of other daemons, separated by commas.
  void answer(uint64_t session, const std::string& about);
  // Answers another daemon's "paths" question.
  void answer_paths(ChannelId channel, const Inquiry& inquiry);

 private:
  // The trials from each tcp NIC of this node to each of these ends.
  std::vector<PathTrial> paths_to(const std::vector<RailEnd>& ends) const;
  // Runs trials on threads of their own, and then `then` with them on the control thread.
  template <typename Then>
  void try_paths(std::vector<PathTrial> paths, Then then);
  // Tries the paths to the peers while the peers `there` try those back; `counts` says how many of `paths`
  // belong to each peer. Then sends `answer`.
  void ask_paths(uint64_t session, nlohmann::json answer, const std::vector<std::string>& there,
                 std::vector<PathTrial> paths, std::vector<size_t> counts);

  ControlParts& daemon_;
  PathTrials trials_;  // its threads post to the mailbox
};

}  // namespace hdt::daemon
