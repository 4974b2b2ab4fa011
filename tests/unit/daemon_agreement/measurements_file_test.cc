// measurements_file_test.cc: measured measurements between runs: what is written reads back, and foreign
// bytes do no harm.
#include "daemon/links/measurements_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

namespace hdt::daemon {
namespace {

class MeasurementsFile : public ::testing::Test {
 protected:
  MeasurementsFile() {
    char name[] = "/tmp/hdt-measurements-XXXXXX";
    folder_ = ::mkdtemp(name) != nullptr ? name : "";
    path_ = folder_ + "/measurements.json";
  }
  ~MeasurementsFile() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }

  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string read() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static KnownMeasurements example() {
    return {{4'000'000'000, 6'000'000'000},
            {{{"n1", 0}, {5'000, 1'000'000, 700'000}}, {{"n\"2\"", 3}, {1, 2, 3}}}};
  }

  std::string folder_, path_;
};

TEST_F(MeasurementsFile, ReadsBackWhatWasWritten) {
  ASSERT_TRUE(save_measurements(path_, {}).is_ok());
  EXPECT_EQ(load_measurements(path_).value(), KnownMeasurements{});
  ASSERT_TRUE(save_measurements(path_, example()).is_ok());
  EXPECT_EQ(load_measurements(path_).value(), example());
}

TEST_F(MeasurementsFile, ThatIsNotThereHoldsNothing) {
  EXPECT_EQ(load_measurements(path_).value(), KnownMeasurements{});
}

TEST_F(MeasurementsFile, InAFolderThatIsNotThereCannotBeWritten) {
  const Status saved = save_measurements(folder_ + "/absent/measurements.json", example());
  EXPECT_EQ(saved.code(), Code::kSystem);
  EXPECT_NE(saved.message().find("absent"), std::string::npos);
}

TEST_F(MeasurementsFile, WithoutSenseIsRefused) {
  for (
      const char* text :
      {"", "{", "[]", "null", "{}", R"({"format":1})", R"({"format":2,"links":{}})",
       R"({"format":2,"links":[1]})", R"({"format":2,"memory":1})",
       R"({"format":2,"memory":{"copy_bytes_s":1}})",
       R"({"format":2,"memory":{"copy_bytes_s":0,"reduce_bytes_s":1}})",
       R"({"format":2,"links":[{"node":"","engine":0,"latency_ns":1,"bytes_s":1,"duplex_bytes_s":1}]})",
       R"({"format":2,"links":[{"node":"n","engine":-1,"latency_ns":1,"bytes_s":1,"duplex_bytes_s":1}]})",
       R"({"format":2,"links":[{"node":"n","engine":999,"latency_ns":1,"bytes_s":1,"duplex_bytes_s":1}]})",
       R"({"format":2,"links":[{"node":"n","engine":0,"latency_ns":1.5,"bytes_s":1,"duplex_bytes_s":1}]})",
       R"({"format":2,"links":[{"node":"n","engine":0,"latency_ns":1,"bytes_s":1000000000000000,"duplex_bytes_s":1}]})",
       R"({"format":2,"links":[{"node":"n","engine":0,"latency_ns":1,"bytes_s":1}]})"}) {
    write(text);
    EXPECT_EQ(load_measurements(path_).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST_F(MeasurementsFile, DamagedIsRefusedOrHoldsPossibleFigures) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  ASSERT_TRUE(save_measurements(path_, example()).is_ok());
  const std::string good = read();
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text = good;
    for (uint64_t flips = random() % 4 + 1; flips > 0; --flips)
      text[random() % text.size()] = static_cast<char>(random());
    write(text);
    const auto loaded = load_measurements(path_);
    refused += loaded.is_ok() ? 0 : 1;
    if (!loaded.is_ok()) continue;
    for (const auto& [whom, rates] : loaded.value().links) EXPECT_TRUE(rates.measured()) << text;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace hdt::daemon
