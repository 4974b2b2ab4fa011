// key_command.cc: makes a key and writes it into a file that only its owner can read.
#include "tools/hdtctl/key_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/secret_file.h"
#include "base/signing.h"

namespace hdt::ctl {

Result<std::string> make_key(const std::string& output, const std::string& node) {
  if (!node.empty()) {
    // The name stands in a line of security.nodes_file, which is cut at blanks.
    if (!std::all_of(node.begin(), node.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
      return Status(Code::kInvalidArgument, "--node: expected a name of plain printable characters");
    const auto key = SigningKey::make();
    if (!key.is_ok()) return key.status();
    HDT_RETURN_IF_ERROR(make_secret_file(output, key.value().text() + "\n"));
    return node + " " + hex_text(key.value().public_key()) + "\n";
  }
  const auto key = new_cluster_key();
  if (!key.is_ok()) return key.status();
  HDT_RETURN_IF_ERROR(make_secret_file(output, key.value()));
  return fmt::format(
      "{} holds a new cluster key. Copy it to every node, readable by hdtcommd's user only, and write "
      "there in\n"
      "/etc/hdt/hdtcommd.toml, before hdtcommd is started again:\n"
      "  [security]\n"
      "  cluster_key_file = \"{}\"\n",
      output, output);
}

}  // namespace hdt::ctl
