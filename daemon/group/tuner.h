// tuner.h: which algorithm the daemons of a group run for a call, and why. Every node computes it for itself
// and must come to the same answer: it depends on nothing but the call, the group's shape, the configured
// algorithm and the measured figures, on which the nodes have agreed when the group was made.
//
// The configured algorithm comes first, wherever the call can take it. Else the one that the cost model
// predicts to be the fastest, of those that the call can take. Without figures the size of a piece decides
// (select_algorithm).
//
// A prediction takes milliseconds. So it is made once for each class of calls: the same collective, width of
// elements and root node, and a count between two powers of two; for the lower one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/cost_model.h"
#include "ipc/plan.h"

namespace hdt::daemon {

// Why a call cannot take an algorithm.
enum class Obstacle : uint8_t {
  kNone,
  kWritesInput,   // it keeps partial results in kInput: of a call in place that is the user's sendbuf
  kSendsInput,    // it may overwrite what it still sends, where a user's buffer is input and output
  kLeavesBlocks,  // its steps reach across blocks, which do not adjoin in a user's buffer
  kScratch,       // its scratch does not fit a slot
};

enum class Reason : uint8_t {
  kConfigured,  // [class.NAME] algorithm
  kInPlace,     // the ring is the only one for a call in place
  kPredicted,   // the fastest by the cost model
  kPieceSize,   // few steps for small pieces, few bytes per link for large ones
};

struct Decision {
  collectives::Algorithm algorithm;
  Reason reason;
  Obstacle to_configured = Obstacle::kNone;  // why it is not the configured one
};

// Whether, on all nodes, the call may run with the algorithm.
Obstacle obstacle_to(collectives::Algorithm algorithm, const session::Call& call,
                     const session::Layout& layout, const session::Order& order);

class Tuner {
 public:
  // The order must outlive the tuner. No configured algorithm: "auto".
  Tuner(const session::Layout& layout, const session::Order& order,
        std::optional<collectives::Algorithm> configured);

  // None: something is not measured.
  void set_figures(std::optional<collectives::CostFigures> figures) { figures_ = std::move(figures); }

  Decision decide(const session::Call& call);
  // Of the call's class, the fastest first; empty without figures. From daemon to daemon: the way of ranks is
  // the same whatever the algorithm, and not the same on all nodes (explanation.h adds it).
  const std::vector<collectives::Candidate>& predictions(const session::Call& call);
  // The call that predictions() are for.
  static session::Call representative(const session::Call& call);
  std::optional<collectives::Algorithm> configured() const { return configured_; }
  const session::Layout& layout() const { return layout_; }
  const session::Order& order() const { return order_; }

 private:
  session::Layout layout_;
  const session::Order& order_;
  std::optional<collectives::Algorithm> configured_;
  std::optional<collectives::CostFigures> figures_;
  using CallClass = std::tuple<collectives::Collective, size_t, uint32_t, uint64_t>;
  std::map<CallClass, std::vector<collectives::Candidate>> predictions_;
};

}  // namespace hdt::daemon
