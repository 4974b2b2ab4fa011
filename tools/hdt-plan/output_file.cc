// output_file.cc: adds the flag's name to the errors of base/atomic_file.h.
#include "tools/hdt-plan/output_file.h"

#include "base/atomic_file.h"

namespace hdt::tools {
namespace {

Status with_flag(const char* flag, const Status& status) {
  return status.is_ok() ? status : Status(status.code(), std::string(flag) + ": " + status.message());
}

}  // namespace

Status check_output(const char* flag, const std::string& path) {
  return path.empty() ? Status::ok() : with_flag(flag, check_writable(path));
}

Status write_output(const char* flag, const std::string& path, std::string_view text) {
  return path.empty() ? Status::ok() : with_flag(flag, write_file_atomically(path, text));
}

}  // namespace hdt::tools
