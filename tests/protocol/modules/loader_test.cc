// loader_test.cc: modules are found, loaded and refused; and the conformance suite over the example backend,
// which was built as docs/backend-guide.md tells, through the loader.
#include "transports/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "tests/protocol/transports/transport_conformance.h"

namespace hdt::transport {

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kGood = HDT_TEST_MODULES "/good";
const std::string kBroken = HDT_TEST_MODULES "/broken";

std::string refusal_of(const std::string& name, const std::vector<std::string>& folders) {
  const Result<std::unique_ptr<Backend>> made = make_backend(name, {}, folders);
  EXPECT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().message().find('\n'), std::string::npos) << "more than one line";
  return made.status().message();
}

TEST(Loader, FindsWhatLiesInTheFolders) {
  EXPECT_THAT(find_modules({kGood, "/nonexistent"}), ElementsAre("local", "near", "third"));
}

TEST(Loader, TakesTheFolderOfTheEnvironmentOnly) {
  setenv("HDT_TRANSPORT_PATH", ("/first:" + kGood + ":/first").c_str(), 1);
  EXPECT_THAT(module_folders(), ElementsAre("/first", kGood));
  unsetenv("HDT_TRANSPORT_PATH");
  // This program lies in tests/ of the build tree, its modules in lib/hdt/transports beside it.
  const std::string beside = HDT_TEST_MODULES;
  EXPECT_THAT(module_folders(), Contains(beside.substr(0, beside.rfind("/tests/")) + "/lib/hdt/transports"));
}

TEST(Loader, LoadsAModuleAndItsBackendTakesItsOptions) {
  const Result<Module> module = load_module("near", {kBroken, kGood});
  ASSERT_TRUE(module.is_ok()) << module.status().to_string();
  EXPECT_EQ(module.value().library, "kernel sockets");
  EXPECT_EQ(module.value().path, kGood + "/libhdt-transport-near.so");
  auto backend = make_backend("near", {{"addresses", "127.0.1.7,127.0.1.8"}}, {kGood});
  ASSERT_TRUE(backend.is_ok()) << backend.status().to_string();
  EXPECT_STREQ(backend.value()->name(), "near");
  const auto devices = backend.value()->discover();
  ASSERT_TRUE(devices.is_ok());
  ASSERT_EQ(devices.value().size(), 2u);
  EXPECT_EQ(devices.value()[1].address, "127.0.1.8");
  EXPECT_THAT(make_backend("near", {{"adresses", "127.0.0.1"}}, {kGood}).status().message(),
              HasSubstr("no option is called \"adresses\""));
  EXPECT_THAT(make_backend("near", {{"addresses", "10.0.0.1"}}, {kGood}).status().message(),
              HasSubstr("expected 127.x.x.x, found \"10.0.0.1\""));
}

TEST(Loader, TcpIsBuiltIn) {
  EXPECT_TRUE(make_backend("tcp", {}, {}).is_ok());
  EXPECT_THAT(make_backend("tcp", {{"sokets", "2"}}, {}).status().message(), HasSubstr("sokets"));
}

TEST(Loader, SaysWhatThereIsWhenTheBackendIsUnknown) {
  EXPECT_THAT(refusal_of("rmda", {kGood}), HasSubstr("available are tcp, local, near, third"));
}

TEST(Loader, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal_of("version", {kBroken}),
              HasSubstr("was built for version " + std::to_string(kAbiVersion + 1)));
  EXPECT_THAT(refusal_of("name", {kBroken}), HasSubstr("holds backend somethingelse"));
  EXPECT_THAT(refusal_of("make", {kBroken}), HasSubstr("no function that makes"));
  EXPECT_THAT(refusal_of("null", {kBroken}), HasSubstr("its module made none"));
}

TEST(Loader, RefusesAFileThatIsNoLibrary) {
  char folder[] = "/tmp/hdt-loader-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/libhdt-transport-text.so";
  std::ofstream(path) << "no library";
  EXPECT_THAT(refusal_of("text", {folder}), HasSubstr("cannot load " + path));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::rmdir(folder), 0);
}

class ModuleWorld : public World {
 public:
  ModuleWorld() {
    auto made = make_backend("local", {{"addresses", "127.0.3.1,127.0.3.2"}}, {kGood});
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    backend_ = made.take();
  }
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override {
    return backend_->discover().value().at(static_cast<size_t>(index));
  }
  // Where somebody listened a moment ago.
  std::string refusing_address() override {
    auto device = backend_->open(backend_->discover().value().at(0)).take();
    return device->listen(0).value();
  }
  std::string silent_address() override { return ""; }

 private:
  std::unique_ptr<Backend> backend_;
};

std::unique_ptr<World> make_module() { return std::make_unique<ModuleWorld>(); }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Module, TransportConformance, testing::Values(&make_module));
INSTANTIATE_TEST_SUITE_P(Module, TransportStrangers, testing::Values(&make_module));

}  // namespace hdt::transport
