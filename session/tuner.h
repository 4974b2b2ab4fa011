// tuner.h: which algorithm the daemons of a group run for a call, and why. Every node computes it for itself and must come to
// the same answer: it depends on nothing but the call, the group's shape and the configured algorithm, on which the
// nodes have agreed when the group was made.
//
// The configured algorithm comes first, wherever the call can take it. Else the size of a piece decides (select_algorithm),
// among those that the call can take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule.h"
#include "session/plan.h"

namespace hdt::session {

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
  kPieceSize,   // few steps for small pieces, few bytes per link for large ones
};

struct Decision {
  collectives::Algorithm algorithm;
  Reason reason;
  Obstacle to_configured = Obstacle::kNone;  // why it is not the configured one
};

// Whether, on all nodes, the call may run with the algorithm.
Obstacle obstacle_to(collectives::Algorithm algorithm, const Call& call, const Layout& layout,
                     const Order& order);

class Tuner {
 public:
  // The order must outlive the tuner. No configured algorithm: "auto".
  Tuner(const Layout& layout, const Order& order, std::optional<collectives::Algorithm> configured);

  Decision decide(const Call& call) const;
  std::optional<collectives::Algorithm> configured() const { return configured_; }
  const Layout& layout() const { return layout_; }
  const Order& order() const { return order_; }

 private:
  Layout layout_;
  const Order& order_;
  std::optional<collectives::Algorithm> configured_;
};

}  // namespace hdt::session
