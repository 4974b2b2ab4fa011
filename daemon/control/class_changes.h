// class_changes.h: the control thread's part in changing a class (class_change.h). A node takes part in one
// change at a time: its own, or one that another node asks for. A change that is under way elsewhere and
// meets a busy node is refused.
//
// This node asks (hdtctl class set, or SIGHUP): change() -> open_devices() -> engines propose it to the
// other nodes -> on_proposed() from each engine -> end(), which commits it everywhere or gives it up.
//
// Another node asks: on_prepare() for each group that it shares with this one -> open_devices() ->
// answer_askers() -> on_commit().
//
// Owner: ControlParts; the control thread. It alone changes what ControlParts says of the configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "daemon/classes/class_change.h"
#include "daemon/control/control_parts.h"
#include "daemon/protocol/wire.h"

namespace hdt::daemon {

class ClassChanges {
 public:
  // After the engines have opened the NICs of the plan.
  explicit ClassChanges(ControlParts& daemon)
      : daemon_(daemon), configured_(daemon.config), opened_(daemon.plan.nics()) {}

  // Answers `hdtctl class set`. `about`: "dp\nbackends=tcp,rdma\nnics=eth1", the class and its new settings
  // by lines.
  void answer_set(uint64_t session, const std::string& about);
  // The file was read again: changes all classes to those of this configuration, and tries that for a while.
  void read_again(Config config);
  // Makes a class as another node has it, as a change of this node alone. Ok also means: not now, it will be
  // asked for again.
  Status take_live(const std::string& group_class, const LiveClass& newer);
  // The three reports of engines (ChangeEvents), posted to this thread.
  void on_prepare(const NodeChange::Asker& asker, const ClassPrepare& prepare);
  void on_commit(uint64_t number, bool commit);
  void on_proposed(uint64_t number, const Status& answer);
  // A change is under way, or is to begin again.
  bool under_way() const { return change_ || reload_; }
  // The timers of a change and of a reload.
  void on_time();
  Deadline next_time() const {
    return Deadline::earlier(reload_at_, change_ ? change_->until : Deadline::never());
  }

 private:
  using Done = std::function<void(const Status&)>;
  // Makes `change_` from a configuration: what this node would be after the change. kInvalidUsage: another
  // change is under way. Otherwise an error says why this node cannot be that.
  Status begin(uint64_t number, Config config, const std::string& settings, bool from_file);
  // Has the engines open the devices that `change_` needs in addition, and then calls `then` with the
  // outcome, unless the change is over by then.
  template <typename Then>
  void open_devices(Then then);
  // A function that gives the ends of a class after the change. `all`: also for classes that stay as they
  // are; otherwise those give nothing.
  EndsOfClass ends_after(bool all) const;
  // Begins a change that this node asks all others for; `done` gets the outcome.
  void change(Config config, const std::string& settings, Done done);
  // Commits or forgets a change that this node asked for, and reports the outcome.
  void end(const Status& outcome);
  // This node is now as `change_` says.
  void adopt();
  // Tells the engines that wait for it whether this node can change.
  void answer_askers(const Status& opened);
  // The configuration with the classes of another one.
  Config with_classes_of(const Config& other) const;
  // Tries to change all classes to those of the file that was read last.
  void reload();

  ControlParts& daemon_;
  // the configuration with the classes as in the file: without what `hdtctl class set` has changed since
  Config configured_;
  // the change under way, this node's own or another's; at most one
  std::optional<NodeChange> change_;
  // what the engines have opened, in their order; it only grows
  std::vector<BackendNic> opened_;
  // why the engines have not opened the same devices; then this node takes part in no more changes. "": they
  // have
  std::string devices_differ_;
  // what the file says, until the classes are so
  std::optional<Config> reload_;
  // how often the file was read
  uint64_t reloads_ = 0;
  // when reload() tries again, and how many more times
  Deadline reload_at_ = Deadline::never();
  int reload_tries_ = 0;
};

// A function that gives a class's priority and weight by the class's name. It holds a copy of the
// configuration, so any thread may call it.
PolicyOfClass policies_of(const Config& config);

}  // namespace hdt::daemon
