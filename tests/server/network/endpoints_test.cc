// The ways in, before anybody comes by them.
#include "server/network/endpoints.h"

#include <gtest/gtest.h>

#include "tests/server/request/fake_transport.h"

namespace rkv::server {
namespace {

// Its watch wants file descriptors: there may be none left, and clients are served all the same.
TEST(Endpoints, WhatCannotBeWatchedServes) {
  rdma::ServerTransports transports;
  transports.verbs = std::make_unique<test::FakeTransport>();
  transports.reopen_verbs = [] { return fail(Code::kUnsupported, "not wanted"); };
  const Endpoints networks(std::move(transports));
  EXPECT_EQ(networks.describe(), "fake");
  ASSERT_EQ(networks.endpoints().size(), 1U);
  EXPECT_TRUE(networks.endpoints()[0].serves());
}

}  // namespace
}  // namespace rkv::server
