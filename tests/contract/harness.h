// The parts that the contract tests of the transport seam need from a backend: two transports that
// reach each other, and a way to let both sides make progress. One body of tests (*_contract.cc)
// runs on every backend; a backend adds a Harness and one INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "rdma/transport/transport.h"

namespace rkv::rdma::contract {

class Harness {
 public:
  virtual ~Harness() = default;
  virtual Transport& server() = 0;
  virtual Transport& client() = 0;
  virtual std::string listen_address() = 0;  // port 0
  virtual std::string connect_address(std::uint16_t port) = 0;
  virtual bool reads_at_once() { return false; }
  // Whether a message that finds no receive buffer waits for one. If not, it ends the connection.
  virtual bool holds_messages() { return true; }
  // Whether bytes that come while a connection is established may stay unnoticed until the next
  // come (soft-iWARP: rdma/README.md).
  virtual bool may_hold_bytes_back() { return false; }
  // Whether a completed SEND says that the message has arrived.
  virtual bool confirms_messages() { return holds_messages(); }
  // How often a call is timed until it was fast enough: an emulated machine on a busy host may
  // stand still for seconds, but not as often in a row.
  virtual int tries() { return 1; }
  // How long connect() may take after its deadline.
  virtual Nanos longest_giving_up() { return 3'000 * kNanosPerMs; }
  // The inline bytes that a connection gets if it asks for `wanted`.
  virtual std::uint32_t granted_inline_bytes(std::uint32_t wanted) { return wanted; }
  // Whether its queues have the parts that wait_any() waits with.
  virtual bool waits_for_several() { return true; }
  virtual const Clock& clock() {
    static const SteadyClock steady;
    return steady;
  }
  // Runs both, each of which may block on the other. A backend without threads overrides it.
  virtual void run_both(const std::function<void()>& a, const std::function<void()>& b) {
    // An exception of the other side then fails one test; in its thread it would end the program.
    auto other = std::async(std::launch::async, b);
    a();
    other.get();
  }
};

// Makes a fresh harness; nullptr fails the test (a missing device is a failure, never a skip).
using HarnessFactory = std::unique_ptr<Harness> (*)();
struct Backend {
  const char* name;
  HarnessFactory open;
};

class TransportContract : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    harness_ = GetParam().open();
    ASSERT_NE(harness_, nullptr) << "the backend " << GetParam().name << " could not be opened";
  }
  std::unique_ptr<Harness> harness_;
};

}  // namespace rkv::rdma::contract
