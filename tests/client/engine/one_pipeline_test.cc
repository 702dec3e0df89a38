// An engine has at most one pipeline of each kind at a time (FLOW-3).
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "client/engine/engine.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"
#include "tests/client/answering_transport.h"

namespace rkv::client {
namespace {

class OnePipeline : public ::testing::Test {
 protected:
  GetPipeline get_pipeline() { return {*engine_, gets_, deadline_}; }
  WritePipeline write_pipeline() { return {*engine_, writes_, deadline_}; }

  static void visit_get(void*, std::size_t, const Result<ValueView>&) {}
  static void visit_put(void*, std::size_t, const Result<std::uint64_t>&) {}

  testing::FakeServer server_;
  const Deadline deadline_ = Deadline::after_ms(server_.clock, 1000);
  std::unique_ptr<Engine> engine_ = std::move(*Engine::create_unconnected(
      {}, nullptr, std::make_shared<testing::AnsweringTransport>(server_), &server_.clock,
      nullptr));
  KeysFeed gets_{{}, Durability::kMemory, visit_get, nullptr};
  ItemsFeed writes_{{}, Durability::kDefault, deadline_, visit_put, nullptr};
};

constexpr const char* kSecond = "two pipelines of one kind on an engine";

TEST_F(OnePipeline, ASecondOfItsKindEndsTheProcess) {
  const GetPipeline gets = get_pipeline();
  EXPECT_DEATH((void)get_pipeline(), kSecond);
  const WritePipeline writes = write_pipeline();
  EXPECT_DEATH((void)write_pipeline(), kSecond);
}

TEST_F(OnePipeline, AnotherOneFollowsIt) {
  for (int i = 0; i < 3; ++i) {
    get_pipeline().run();
    write_pipeline().run();
  }
}

TEST_F(OnePipeline, ItIsOneWhereverItIsMoved) {
  {
    GetPipeline gets = get_pipeline();
    const GetPipeline moved = std::move(gets);
    EXPECT_DEATH((void)get_pipeline(), kSecond);
  }
  get_pipeline().run();
}

}  // namespace
}  // namespace rkv::client
