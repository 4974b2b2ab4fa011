// reach.h: whether the ranks of a node may reach each other's memory through the kernel. It depends on users, on the
// system's settings and on containers, so it is tried, once: every rank reads and writes a word of every other, tells
// the result in its board, and the way is taken only if all can reach all.
#pragma once

#include <cstdint>

#include "libclient/node_access.h"

namespace hdt::client {

class Reach {
 public:
  enum class Answer : uint8_t { kNotYet, kNo, kYes };

  // Offers a word of this process to the others; before the first call is posted.
  explicit Reach(const NodeAccess& access);
  // Every rank of the node has posted a call (so has offered its word). Tries, tells, and looks at what the others told.
  Answer ask();

 private:
  bool try_all() const;

  const NodeAccess& access_;
  Answer known_ = Answer::kNotYet;
};

}  // namespace hdt::client
