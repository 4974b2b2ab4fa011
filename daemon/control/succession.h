// succession.h: a daemon that ends while its groups go on: hdtcommd that hands over to the program in its
// place, and the process that hosts an embedded daemon, whose other users go on with a daemon of their own,
// which adopts their groups as after a kill (docs/design/restart.md). Work that a successor could not go on
// with is finished before.
//
// Owner: Control. prepare_handover() and leave() are called by another thread than the control thread; they
// block and poll, as that happens once in a daemon's life.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "daemon/control/control_parts.h"

namespace hdt::daemon {

class Succession {
 public:
  explicit Succession(ControlParts& daemon) : daemon_(daemon) {}

  // True as soon as nothing is under way that a successor could not go on with; false at the deadline. After
  // true no joins are accepted any more.
  bool prepare_handover(int64_t drain_ms);
  // The host process ends. True: other processes go on with a daemon of their own, and this one's control
  // thread ends without a message. False: nobody needs the daemon, which is to be stopped in order.
  bool leave(int64_t quiet_ms, int64_t drain_ms);

 private:
  // Runs a question on the control thread and waits for the answer. False also if it does not answer before
  // `until`.
  template <typename Question>
  bool ask(Question question, Deadline until = Deadline::never());
  // On the control thread: whether this daemon may end for a successor now. If yes, it accepts no join from
  // then on.
  bool may_hand_over();
  // On the control thread: whether a process other than the host has a rank or waits for one.
  bool needed_by_others() const;
  // On the control thread: whether nothing is under way that a successor could not go on with, when an
  // embedded daemon ends.
  bool can_leave() const;
  // On the control thread: leaves if that is possible, or if it must be. `others`: somebody needs the daemon.
  bool try_to_leave(const Deadline& drain, bool& others);

  ControlParts& daemon_;
};

}  // namespace hdt::daemon
