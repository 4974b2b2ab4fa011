// commands.h: what the subcommands of hdt-data do. Each prints its result on stdout.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::tools {

struct MakeOptions {
  std::vector<std::string> texts;  // files; or
  bool bible = false;
  std::string output;  // prefix
};
Status make_command(const MakeOptions& options);

struct InfoOptions {
  std::string prefix;
  bool json = false;
};
Status info_command(const InfoOptions& options);

}  // namespace hdt::tools
