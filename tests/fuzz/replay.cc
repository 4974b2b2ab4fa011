// replay.cc: fuzz_replay: runs a target's seeds, all of which its parser must take, and every file of its
// corpus; or writes the seeds, for libFuzzer to start from.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/target.h"

namespace hdt::fuzz {

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

namespace {

int usage(const std::string& why) {
  std::fprintf(stderr,
               "fuzz_replay: %s\n"
               "Usage: fuzz_replay TARGET CORPUS          run its seeds and every file of the folder\n"
               "       fuzz_replay --seeds TARGET FOLDER  write its seeds there\n"
               "       fuzz_replay --list                 name the targets\n",
               why.c_str());
  return 2;
}

int write_seeds(const Target& target, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  size_t number = 0;
  for (const Bytes& seed : target.seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
    if (!file) return usage("cannot write to " + folder.string());
  }
  return 0;
}

// The name of what is run is printed first: it is the last line where a run ends the process.
int replay(const Target& target, const std::filesystem::path& folder) {
  size_t refused = 0, number = 0;
  for (const Bytes& seed : target.seeds()) {
    std::printf("seed %zu (%zu bytes)\n", number, seed.size());
    std::fflush(stdout);
    if (!target.take(seed)) {
      std::printf("seed %zu was refused: a real encoder makes what the parser does not take\n", number);
      ++refused;
    }
    ++number;
  }
  if (number == 0) return usage("the target has no seeds");
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  size_t taken = 0;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s (%zu bytes)\n", path.filename().c_str(), text.size());
    std::fflush(stdout);
    if (target.take(to_bytes(text))) ++taken;
  }
  std::printf("%zu seeds, %zu of them refused; %zu files, of which %zu were taken\n", number, refused,
              files.size(), taken);
  return refused == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hdt::fuzz

int main(int count, char** values) {
  using namespace hdt::fuzz;
  const std::vector<std::string> words(values + 1, values + count);
  if (words.size() == 1 && words[0] == "--list") {
    for (const auto& [name, target] : targets()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const bool seeds = words.size() == 3 && words[0] == "--seeds";
  if (!seeds && words.size() != 2) return usage("expected a target and a folder");
  const auto found = targets().find(words[seeds ? 1 : 0]);
  if (found == targets().end()) return usage("'" + words[seeds ? 1 : 0] + "' given; expected one of --list");
  return seeds ? write_seeds(found->second, words[2]) : replay(found->second, words[1]);
}
