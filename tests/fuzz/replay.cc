// replay.cc: fuzz_replay: runs a target's seeds, all of which its parser must take, its spoilt seeds, none of
// which it may take, and every file of its corpus; or writes the seeds, for libFuzzer to start from.
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
               "       fuzz_replay --seeds TARGET FOLDER  write its seeds there, the spoilt ones too\n"
               "       fuzz_replay --list                 name the targets\n",
               why.c_str());
  return 2;
}

std::vector<Bytes> spoilt_of(const Target& target) {
  return target.spoilt != nullptr ? target.spoilt() : std::vector<Bytes>();
}

// Each with its number behind the name.
bool write_all(const std::vector<Bytes>& inputs, const std::filesystem::path& folder, const char* name) {
  size_t number = 0;
  for (const Bytes& input : inputs) {
    std::ofstream file(folder / (name + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    if (!file) return false;
  }
  return true;
}

int write_seeds(const Target& target, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  if (write_all(target.seeds(), folder, "seed-") && write_all(spoilt_of(target), folder, "spoilt-")) return 0;
  return usage("cannot write to " + folder.string());
}

// The name of what is run is printed first: it is the last line where a run ends the process.
int replay(const Target& target, const std::filesystem::path& folder) {
  size_t refused = 0, wrong = 0, number = 0;
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
  size_t spoilt = 0;
  for (const Bytes& input : spoilt_of(target)) {
    std::printf("spoilt seed %zu (%zu bytes)\n", spoilt, input.size());
    std::fflush(stdout);
    if (target.take(input)) {
      std::printf("spoilt seed %zu was taken: the parser must refuse it\n", spoilt);
      ++wrong;
    }
    ++spoilt;
  }
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
  std::printf(
      "%zu seeds, %zu of them refused; %zu spoilt ones, %zu of them taken; %zu files, of which %zu were "
      "taken\n",
      number, refused, spoilt, wrong, files.size(), taken);
  return refused + wrong == 0 ? 0 : 1;
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
