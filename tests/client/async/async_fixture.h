// An AsyncClient over the fake transport, with its server at hand.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "rkv/async_client.h"
#include "tests/client/client_fixture.h"

namespace rkv {

class AsyncClientTest : public ClientTest {
 protected:
  AsyncClient& async() {
    if (!async_) {
      options_.timeout = std::chrono::milliseconds(1000);
      auto made = AsyncClient::connect(options_, std::make_shared<AnsweringTransport>(server_),
                                       &server_.clock, &refusal_);
      RKV_CHECK(made, "the fake server accepts");
      async_ = std::make_unique<AsyncClient>(std::move(*made));
    }
    return *async_;
  }
  ~AsyncClientTest() override { async_.reset(); }
  void run() {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(20);  // a thread of the client may be at work
    while (async().in_flight() != 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "operations do not end";
      async().poll();
    }
  }

  std::unique_ptr<AsyncClient> async_;
};

}  // namespace rkv
