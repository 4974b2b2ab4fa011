// live_classes.h: how the classes of a running daemon differ from its configuration file, because of
// `hdtctl class set` or a new reading of the file. A daemon that is started again begins with its file.
// It learns from the other nodes of its groups what is newer (control/restarts.cc); otherwise two nodes of
// a group could be left without a path between them.
//
// Each node counts a class's version up with every change, by itself. The greater of two settings of a
// class is taken: the higher version, and with equal versions the greater text. So any two nodes that
// meet choose the same settings, whichever changes had reached them.
//
// Owner and thread: Control; the control thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/config.h"

namespace hdt::daemon {

// The changes of one class. Travels in Successor and SuccessorReply (control_messages.h).
struct LiveClass {
  // the number of changes; 0: never changed
  uint64_t version = 0;
  // lines "class.NAME.KEY=VALUE", one for each key that was changed; "": the class is as in the file
  std::string settings;
  // The newer one is greater.
  auto operator<=>(const LiveClass&) const = default;
};

// The maximum length in bytes of LiveClass::settings.
inline constexpr size_t kMaxSettings = 4096;
// The maximum of LiveClass::version from another daemon. Nobody changes a class so often; a version near
// the maximum of its type could not be counted up any more.
inline constexpr uint64_t kMaxClassVersion = uint64_t{1} << 40;

// Splits "KEY=VALUE\nKEY=VALUE" into pairs. A line without '=' gives an empty value. Nothing is checked.
ConfigPairs parse_settings(const std::string& lines);

// The changes of all classes of this daemon since its start. A class that is not there was never changed.
class LiveClasses {
 public:
  // The changes of a class; version 0 if there are none.
  LiveClass of(const std::string& group_class) const;
  // Records a change that this node has committed: lines "class.NAME.KEY=VALUE" of one class or several.
  // Each of these classes gets one new version; a key's earlier value is dropped.
  void changed(const std::string& settings);
  // Records that the class is now as another node had it.
  void take(const std::string& group_class, const LiveClass& newer) { classes_[group_class] = newer; }
  // Records that the file was read again: no class differs from it any more. Those that had changed get a
  // new version, as this is a change, too.
  void as_configured();

 private:
  std::map<std::string, LiveClass> classes_;
};

// Replaces the origins ("FILE:LINE", "environment NAME", ...) of all keys of this class in `config` by those
// in `from`. Without `group_class`: of all classes. For error messages and `print_config`.
void take_origins(Config& config, const Config& from, const std::optional<std::string>& group_class);

// `now`, with class `group_class` as in `configured`, changed by live.settings. kInvalidArgument: the
// settings name keys of other classes. Otherwise it fails as override_config() does.
Result<Config> with_live_class(const Config& now, const Config& configured, const std::string& group_class,
                               const LiveClass& live);

}  // namespace hdt::daemon
