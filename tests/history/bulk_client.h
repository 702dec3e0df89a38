// One client thread whose operations have many READs, or many packets of messages, under way at a
// time. Nobody else writes its records, so what each may hold is known.
//
//   BulkClient bulk(server.address(), "reorders-");
//   ...  // the disturbance
//   bulk.stop();
//   EXPECT_EQ(bulk.wrong(), "");
//
// Thread safety: one thread uses it; it has one of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "rkv/client.h"

namespace rkv::history {

class BulkClient {
 public:
  static constexpr std::size_t kKeys = 64;
  static constexpr std::size_t kValueBytes = 4000;  // several packets on a link of 1,500 bytes

  // Returns when its records are written; wrong() says so if they cannot be.
  BulkClient(const std::string& address, const std::string& prefix);
  ~BulkClient();
  BulkClient(const BulkClient&) = delete;
  BulkClient& operator=(const BulkClient&) = delete;

  void stop();
  // After stop(): operations that were answered, and what the first wrong answer was. Empty: none.
  std::size_t answers() const { return answers_; }
  const std::string& wrong() const { return wrong_; }

 private:
  // The rounds whose value a key may have: the last one that was acknowledged, and each that was
  // not answered, which may happen at any time.
  struct Rounds {
    std::uint64_t acknowledged = 0;
    std::set<std::uint64_t> unanswered = {};
  };
  void write(std::uint64_t round);
  void read();
  void check(std::size_t key, std::string_view value);

  std::array<std::string, kKeys> keys_;
  std::array<Rounds, kKeys> rounds_{};
  Client client_;
  std::size_t answers_ = 0;
  std::string wrong_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace rkv::history
