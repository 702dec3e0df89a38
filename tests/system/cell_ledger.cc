#include "tests/system/cell_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace rkv::testing_support {

void CellLedger::done(std::int64_t number, Nanos at) {
  last_ = number;
  open_ = 0;
  additions_.push_back({.number = number, .at = at});
}

// Answers after the kill came from memory that nobody saves any more, or from the server that was
// started then.
Nanos CellLedger::lost(std::int64_t number, Nanos killed) const {
  const auto oldest = std::ranges::find_if(additions_, [&](const Addition& addition) {
    return addition.at <= killed && addition.number > number;
  });
  return oldest == additions_.end() ? 0 : killed - oldest->at;
}

void CellLedger::go_on_from(std::int64_t number, Nanos killed) {
  std::erase_if(additions_, [&](const Addition& addition) {
    return addition.at <= killed || addition.number > number;
  });
  first_ = number - static_cast<std::int64_t>(additions_.size()) - open_;
  last_ = number;
  open_ = 0;
}

std::string CellLedger::describe() const {
  return fmt::format("{} to {}", first_, last_ + open_);
}

void LogWitness::run(const std::atomic<bool>& over) {
  {
    const std::scoped_lock lock(mutex_);
    longest_ = kStated;
    began_ = clock_.now();
  }
  while (!over.load()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kStated));
    // An error is one of the kill, which is when nobody asks any more.
    (void)client_.put_with("witness", "", {.durability = Durability::kWal});
    const Nanos now = clock_.now();
    const std::scoped_lock lock(mutex_);
    longest_ = std::max(longest_, now - began_);
    began_ = now;
  }
}

Nanos LogWitness::bound(Nanos now) const {
  const std::scoped_lock lock(mutex_);
  return 2 * std::max(longest_, began_ == 0 ? 0 : now - began_);
}

}  // namespace rkv::testing_support
