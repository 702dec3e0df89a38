#include "tests/history/bulk_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <vector>

namespace rkv::history {
namespace {

constexpr std::chrono::milliseconds kTimeout{2000};
constexpr int kFirstTries = 30;

// Says in each part of it what it is, so that parts of two values do not pass for one.
std::string value_of(std::size_t key, std::uint64_t round) {
  const std::string tag = fmt::format("{}/{};", round, key);
  std::string value;
  while (value.size() < BulkClient::kValueBytes)
    value += tag;
  return value;
}

Client connect(const std::string& address) {
  auto client = Client::connect({.server = address,
                                 .name = "bulk",
                                 .timeout = std::chrono::milliseconds(60'000),
                                 .transport = Transport::kVerbs});
  if (!client) ADD_FAILURE() << to_string(client.error());
  return std::move(client.value());
}

}  // namespace

BulkClient::BulkClient(const std::string& address, const std::string& prefix)
    : client_(connect(address)) {
  for (std::size_t key = 0; key < kKeys; ++key)
    keys_[key] = fmt::format("{}bulk-{}", prefix, key);
  const auto is_written = [](const Rounds& rounds) { return rounds.acknowledged != 0; };
  std::uint64_t round = 0;
  while (!std::ranges::all_of(rounds_, is_written)) {
    if (round == kFirstTries) {
      wrong_ = "its records could not be written";
      return;
    }
    write(++round);
  }
  answers_ = 0;
  thread_ = std::thread([this, round]() mutable {
    while (!over_) {
      read();
      write(++round);
    }
  });
}

BulkClient::~BulkClient() {
  stop();
}

void BulkClient::stop() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

void BulkClient::write(std::uint64_t round) {
  std::vector<std::string> values;
  std::vector<KeyValue> items;
  for (std::size_t key = 0; key < kKeys; ++key)
    values.push_back(value_of(key, round));
  for (std::size_t key = 0; key < kKeys; ++key)
    items.push_back({.key = keys_[key], .value = values[key]});
  const auto results = client_.multi_put(items, kTimeout);
  for (std::size_t key = 0; key < kKeys; ++key) {
    if (results[key]) {
      rounds_[key].acknowledged = round;
      ++answers_;
    } else if (results[key].error().write == WriteOutcome::kMayHaveHappened) {
      rounds_[key].unanswered.insert(round);
    }
  }
}

void BulkClient::read() {
  const std::vector<std::string_view> keys(keys_.begin(), keys_.end());
  const auto results = client_.multi_get(keys, kTimeout);
  for (std::size_t key = 0; key < kKeys; ++key) {
    if (results[key]) {
      ++answers_;
      check(key, results[key]->value);
    } else if (results[key].error().code == Code::kNotFound && wrong_.empty()) {
      wrong_ = fmt::format("{} is gone", keys_[key]);
    }
  }
}

void BulkClient::check(std::size_t key, std::string_view value) {
  const Rounds& rounds = rounds_[key];
  std::uint64_t round = 0;
  std::from_chars(value.data(), value.data() + value.size(), round);
  const bool is_possible = round == rounds.acknowledged || rounds.unanswered.contains(round);
  if (is_possible && value == value_of(key, round)) return;
  if (wrong_.empty())
    wrong_ = fmt::format("{} has {:.40}... ({} bytes) after {} was acknowledged", keys_[key], value,
                         value.size(), rounds.acknowledged);
}

}  // namespace rkv::history
