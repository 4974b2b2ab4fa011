// live_classes.h: what was changed of classes by `hdtctl class set` since the daemon was started. A daemon
// that is started again begins with its file; it learns from the other nodes of its groups what is newer
// (control_restart.cc), or two nodes of a group could be left without a way between them.
//
// Versions grow with every change, on each node by itself, and what is newer is compared with the text as the
// last resort: any two nodes that meet come to the same, whichever changes reached them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "base/config.h"

namespace hdt::daemon {

// Of one class.
struct LiveClass {
  uint64_t version = 0;  // 0: never changed
  std::string
      settings;  // lines "class.NAME.KEY=VALUE", one for each key that was changed; empty: as in the file
  // Newer is greater.
  auto operator<=>(const LiveClass&) const = default;
};

inline constexpr size_t kMaxSettings = 4096;
// Of LiveClass::version, as another daemon tells it: nobody changes a class so often.
inline constexpr uint64_t kMaxClassVersion = uint64_t{1} << 40;

// "KEY=VALUE\nKEY=VALUE"
ConfigPairs parse_settings(const std::string& lines);

class LiveClasses {
 public:
  LiveClass of(const std::string& group_class) const;
  // A change of one class or several holds.
  void changed(const std::string& settings);
  void take(const std::string& group_class, const LiveClass& newer) { classes_[group_class] = newer; }
  // All classes are as the file has them.
  void as_configured();

 private:
  std::map<std::string, LiveClass> classes_;
};

// Where the values of the keys that begin so are from: as in the other configuration.
void take_origins(Config& config, const Config& from, const std::string& prefix);

// `now` with that class as `configured` has it, and then as the settings say.
Result<Config> with_live_class(const Config& now, const Config& configured, const std::string& group_class,
                               const LiveClass& live);

}  // namespace hdt::daemon
