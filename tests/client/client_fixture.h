// A Client over the fake transport, with its server at hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rkv/client.h"
#include "tests/client/answering_transport.h"

namespace rkv {

using testing::AnsweringTransport;
using testing::FakeServer;
using testing::ScriptedMemory;

class ClientTest : public ::testing::Test {
 public:
  ~ClientTest() override {
    client_.reset();
    EXPECT_EQ(server_.receives_held, 0) << "a receive buffer was not given back";
    EXPECT_EQ(server_.memory->bad_reads, expected_bad_reads_);
  }

 protected:
  Result<Client> connect() {
    options_.timeout = std::chrono::milliseconds(1000);
    return Client::connect(options_, std::make_shared<AnsweringTransport>(server_), &server_.clock,
                           &refusal_);
  }
  Client& client() {
    if (!client_) {
      auto connected = connect();
      RKV_CHECK(connected, "the fake server accepts");
      client_ = std::make_unique<Client>(std::move(*connected));
    }
    return *client_;
  }
  void store(std::string_view key, std::string_view value) {
    server_.memory->add(key, server_.memory->store(key, value));
  }
  void fail_connects(Code code, int times) {
    for (int i = 0; i < times; ++i)
      server_.connect_errors.push_back({.code = code, .text = "scripted"});
  }
  void spill(std::string_view key) {
    server_.memory->set_flags(ScriptedMemory::home(key), false, true);
  }
  static Response busy() {
    Response response;
    response.code = static_cast<std::uint8_t>(Code::kBusy);
    return response;
  }

  FakeServer server_;
  ClientOptions options_;
  std::string refusal_;
  std::unique_ptr<Client> client_;
  int expected_bad_reads_ = 0;
};

}  // namespace rkv
