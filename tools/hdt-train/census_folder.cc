// census_folder.cc: the folder has a random name, so that nobody sees anything of an earlier run in it.
#include "tools/hdt-train/census_folder.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/hmac.h"
#include "tools/hdt-train/agreement.h"
#include "training/checkpoint/paths.h"

namespace hdt::tools {
namespace {

// One that stays is in nobody's way.
void remove_earlier(const std::string& save) {
  std::error_code ignored;
  std::vector<std::filesystem::path> earlier;
  for (std::filesystem::directory_iterator entry(save, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (entry->path().filename().string().starts_with(training::kElasticPrefix))
      earlier.push_back(entry->path());
  }
  for (const auto& path : earlier) std::filesystem::remove_all(path, ignored);
}

Result<std::string> new_token(int rank) {
  std::array<uint8_t, 8> bytes{};
  if (rank == 0) HDT_RETURN_IF_ERROR(random_bytes(bytes));
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

Result<std::unique_ptr<training::Census>> open_census(const std::string& save, Communicator& world) {
  const Result<std::string> own = new_token(world.rank());
  const Result<std::string> token = text_of_rank_0(own.is_ok() ? own.value() : "", world);
  if (!token.is_ok()) return token.status();
  const std::string folder = fmt::format("{}/{}{}", save, training::kElasticPrefix, token.value());
  Status mine = own.status();
  if (world.rank() == 0 && mine.is_ok()) {
    remove_earlier(save);
    std::error_code error;
    std::filesystem::create_directory(folder, error);
    if (error) mine = Status::from_errno("--elastic: cannot make " + folder, error.value());
  }
  HDT_RETURN_IF_ERROR(all_ready(mine, world));
  Result<std::unique_ptr<training::Census>> census =
      training::Census::start(folder, world.rank(), world.size());
  HDT_RETURN_IF_ERROR(all_ready(census.status(), world));
  return census;
}

void remove_census(const training::Census& census) {
  std::error_code ignored;  // the next run removes it
  std::filesystem::remove_all(census.folder(), ignored);
}

}  // namespace hdt::tools
