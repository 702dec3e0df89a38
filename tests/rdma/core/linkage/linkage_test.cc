// A program that finds rdma-core at run time (rdma/core/linkage). Suites WithoutRdmaCore* run where
// its libraries are hidden, suite RdmaCoreAtRunTime where they are installed: two ctest entries.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rdma/choose.h"
#include "rdma/core/linkage/functions.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kWhatToDo =
    "libibverbs.so.1 and librdmacm.so.1 of rdma-core are missing: install the packages "
    "libibverbs1, librdmacm1 and ibverbs-providers";

TEST(WithoutRdmaCore, ThereAreNoDevices) {
  ASSERT_EQ(dlopen("libibverbs.so.1", RTLD_NOW), nullptr) << "not hidden";
  const auto devices = list_devices();
  ASSERT_TRUE(devices) << to_string(devices.error());
  EXPECT_TRUE(devices->empty());
}

template <class T>
void expect_unsupported(const Result<T>& answer, const char* verb) {
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnsupported);
  const std::string text = to_string(answer.error());
  EXPECT_THAT(text, StartsWith(verb));
  EXPECT_THAT(text, EndsWith(kWhatToDo));
}

TEST(WithoutRdmaCore, WhatIsOpenedSaysWhichPackagesToInstall) {
  expect_unsupported(Device::open("rxe0"), "ibv_get_device_list");
  expect_unsupported(Device::open_first_active(), "ibv_get_device_list");
  expect_unsupported(Device::of_connection_manager(), "rdma_get_devices");
  expect_unsupported(EventChannel::create(), "rdma_create_event_channel");
}

TEST(WithoutRdmaCore, EveryWayOfFailingIsUnderstood) {
  ibv_context context{};  // never read: no library is there
  expect_unsupported(from_null("ibv_open_device", ibv_open_device(nullptr)), "ibv_open_device");
  expect_unsupported(from_errno("ibv_destroy_qp", ibv_destroy_qp(nullptr)), "ibv_destroy_qp");
  expect_unsupported(from_minus_one("rdma_listen", rdma_listen(nullptr, 1)), "rdma_listen");
  expect_unsupported(
      from_count("ibv_query_gid_table", ibv_query_gid_table(&context, nullptr, 0, 0)),
      "ibv_query_gid_table");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "not available");
}

TEST(WithoutRdmaCore, VerbsAreRefusedAndTcpAndSharedMemoryTakeOver) {
  TransportOptions options{.kind = TransportKind::kVerbs};
  options.verbs.address = "127.0.0.1:7471";
  const auto verbs = choose_for_server(options);
  ASSERT_FALSE(verbs);
  EXPECT_EQ(verbs.error().code, Code::kUnsupported) << to_string(verbs.error());
  options.kind = TransportKind::kAuto;
  const auto either = choose_for_server(options);
  ASSERT_TRUE(either) << to_string(either.error());
  EXPECT_EQ(either->verbs, nullptr);
  EXPECT_NE(either->tcp, nullptr);
  EXPECT_NE(either->shm, nullptr);
  EXPECT_THAT(either->reason, HasSubstr("ibverbs-providers"));
}

// The transport of a client that may choose, whether it can connect or not.
class WithoutRdmaCoreAClientTakes : public ::testing::Test {
 protected:
  WithoutRdmaCoreAClientTakes() { std::filesystem::create_directory(directory_); }
  ~WithoutRdmaCoreAClientTakes() override { std::filesystem::remove_all(directory_); }
  std::string taken_for(std::vector<std::string> servers) const {
    TransportOptions options{.shm = {.directory = directory_}};
    options.verbs.address = servers.front();
    options.servers = std::move(servers);
    const auto chosen = choose_for_client(options);
    if (!chosen) return to_string(chosen.error());
    const std::string text = chosen->transport->describe();
    return text.substr(0, text.find(':'));
  }
  static std::string here(const Listener& listener) {
    return "127.0.0.1:" + std::to_string(listener.port());
  }

  const std::string directory_ = ::testing::TempDir() + "rkv-choose-" + std::to_string(getpid());
  const std::string nobody_ = "127.0.0.1:1";
  const std::string elsewhere_ = "192.0.2.1:7471";
  const std::unique_ptr<Transport> tcp_ = *open_tcp();
  const std::unique_ptr<Transport> shm_ = *open_shm({.directory = directory_});
};

TEST_F(WithoutRdmaCoreAClientTakes, TcpForOtherHosts) {
  EXPECT_EQ(taken_for({elsewhere_}), "tcp");
  EXPECT_EQ(taken_for({nobody_, elsewhere_}), "tcp");
}

TEST_F(WithoutRdmaCoreAClientTakes, SharedMemoryForAServerHereThatMayComeYet) {
  EXPECT_EQ(taken_for({nobody_}), "shm");
}

TEST_F(WithoutRdmaCoreAClientTakes, WhatAServerHereListensOn) {
  const auto over_tcp = *tcp_->listen("127.0.0.1:0");
  EXPECT_EQ(taken_for({here(*over_tcp)}), "tcp");
  const auto over_shm = *shm_->listen(here(*over_tcp));
  EXPECT_EQ(taken_for({here(*over_tcp)}), "shm") << "it listens on both";
  EXPECT_EQ(taken_for({nobody_, here(*over_tcp)}), "shm");
  EXPECT_EQ(taken_for({here(*over_tcp), elsewhere_}), "tcp");
}

// libibverbs has two versions of many functions; the version of 2005 takes other structures.
TEST(RdmaCoreAtRunTime, TheDefaultVersionOfAFunctionIsTaken) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  for (const char* const name : {"ibv_get_device_list", "ibv_open_device", "ibv_modify_qp",
                                 "ibv_create_cq", "ibv_post_send"}) {
    void* const first = dlvsym(library, name, "IBVERBS_1.0");
    if (first == nullptr) continue;  // inline
    EXPECT_NE(dlsym(library, name), first) << name;
    EXPECT_EQ(dlsym(library, name), dlvsym(library, name, "IBVERBS_1.1")) << name;
  }
  EXPECT_NE(dlvsym(library, "ibv_open_device", "IBVERBS_1.0"), nullptr) << "nothing compared";
}

TEST(RdmaCoreAtRunTime, EveryFunctionOfTheTableIsThere) {
  void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW);
  void* const rdmacm = dlopen("librdmacm.so.1", RTLD_NOW);
#define RKV_EXPECT_IN_VERBS(result, name, parameters, arguments) \
  EXPECT_NE(dlsym(verbs, #name), nullptr) << #name;
#define RKV_EXPECT_IN_RDMACM(result, name, parameters, arguments) \
  EXPECT_NE(dlsym(rdmacm, #name), nullptr) << #name;
  RKV_VERBS_FUNCTIONS(RKV_EXPECT_IN_VERBS)
  RKV_RDMACM_FUNCTIONS(RKV_EXPECT_IN_RDMACM)
#undef RKV_EXPECT_IN_VERBS
#undef RKV_EXPECT_IN_RDMACM
}

TEST(RdmaCoreAtRunTime, FunctionsReachTheirLibrary) {
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
  const auto devices = list_devices();
  EXPECT_TRUE(devices) << to_string(devices.error());
}

}  // namespace
}  // namespace rkv::rdma
