#include "tests/system/crash_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "common/layout.h"

namespace rkv::testing_support {

namespace {
std::string show(std::uint64_t version) {
  return fmt::format("{}.{}", Version{version}.boot(), Version{version}.sequence());
}
}  // namespace

// Before anything was written every key is missing, and durably so.
CrashLedger::CrashLedger(std::size_t keys) : keys_(keys) {
  for (Key& key : keys_)
    key.writes.push_back({.asked = Durability::kSync, .outcome = Outcome::kDone});
}

std::string CrashLedger::value_of(std::size_t key, const Write& write) {
  const std::string tag = fmt::format("{}/{}/", key, write.number);
  std::string value = tag;
  while (value.size() < write.length)
    value += tag;
  return value;
}

std::string CrashLedger::begin(std::size_t key, std::size_t length, Durability asked) {
  Key& of = keys_[key];
  of.writes.push_back({.number = ++of.last_number, .length = length, .asked = asked});
  return value_of(key, of.writes.back());
}

void CrashLedger::end(std::size_t key, Outcome outcome, std::uint64_t version) {
  Key& of = keys_[key];
  of.writes.back().outcome = outcome;
  of.writes.back().version = version;
  if (outcome != Outcome::kDone) return;
  if (version <= of.highest_version) {
    broken(key, fmt::format("a write got version {} after {} had been seen (LEDGER-4)",
                            show(version), show(of.highest_version)));
  }
  of.highest_version = std::max(of.highest_version, version);
}

// The writer may be at it: looks at numbers only, which do not change.
void CrashLedger::told_durable(std::size_t key, std::string_view value, std::uint64_t version) {
  const std::size_t slash = value.find('/');
  const std::uint64_t number =
      slash == std::string_view::npos ? 0 : std::strtoull(value.data() + slash + 1, nullptr, 10);
  const std::lock_guard lock(mutex_);
  if (number == 0) {
    broken_.push_back(fmt::format("key {}: a GET returned {:.40} (LEDGER-1)", key, value));
    return;
  }
  claims_.push_back({.key = key, .number = number, .version = version});
}

void CrashLedger::broken(std::size_t key, const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  broken_.push_back(fmt::format("key {}: {}", key, sentence));
}

// A write that the last restart did not show, in words.
std::string CrashLedger::describe_before(std::size_t key, std::uint64_t number) const {
  const Key& of = keys_[key];
  const auto write = std::ranges::find(of.before, number, &Write::number);
  if (write == of.before.end()) return "of long before the restart";
  static constexpr std::array kOutcomes = {"not ended", "acknowledged", "refused", "given up"};
  const Write& shown = of.writes.front();
  return fmt::format("of before the restart, {}; the restart showed {} {} ({})",
                     kOutcomes[static_cast<std::size_t>(write->outcome)],
                     shown.length == 0 ? "removal" : "write", shown.number, show(shown.version));
}

// The last write of the key that must have survived.
std::size_t CrashLedger::floor_of(std::size_t key) {
  const std::vector<Write>& writes = keys_[key].writes;
  std::size_t floor = 0;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    if (writes[i].outcome == Outcome::kDone && writes[i].asked >= Durability::kWal) floor = i;
  }
  for (const Claim& claim : claims_) {
    if (claim.key != key) continue;
    const auto write = std::ranges::find(writes, claim.number, &Write::number);
    if (write == writes.end()) {
      broken(key, fmt::format("a GET returned write {} ({}), {} (LEDGER-5)", claim.number,
                              show(claim.version), describe_before(key, claim.number)));
    } else {
      floor = std::max(floor, static_cast<std::size_t>(write - writes.begin()));
    }
  }
  return floor;
}

std::optional<std::size_t> CrashLedger::value_state(std::size_t key, const Shown& shown) {
  const std::vector<Write>& writes = keys_[key].writes;
  const auto write = std::ranges::find_if(writes, [&](const Write& one) {
    return (one.length != 0 || one.number == 0) && *shown.value == value_of(key, one);
  });
  if (write == writes.end() || write->number == 0) {
    broken(key, fmt::format("shows {:.40}..., which is none of its {} writes (LEDGER-1)",
                            *shown.value, writes.size()));
    return std::nullopt;
  }
  const auto at = static_cast<std::size_t>(write - writes.begin());
  if (write->outcome == Outcome::kRefused) {
    broken(key, fmt::format("shows write {}, which was refused (LEDGER-1)", write->number));
  }
  if (write->version != 0 && write->version != shown.version) {
    broken(key, fmt::format("shows write {} with version {} instead of {} (LEDGER-1)",
                            write->number, show(shown.version), show(write->version)));
  }
  if (const std::size_t floor = floor_of(key); at < floor) {
    broken(key, fmt::format("shows write {} although write {} ({}) was durable (LEDGER-2)",
                            write->number, writes[floor].number, show(writes[floor].version)));
  }
  return at;
}

std::optional<std::size_t> CrashLedger::missing_state(std::size_t key) {
  const std::vector<Write>& writes = keys_[key].writes;
  const std::size_t floor = floor_of(key);
  for (std::size_t i = writes.size(); i-- > floor;) {
    if (writes[i].length == 0 && writes[i].outcome != Outcome::kRefused) return i;
  }
  broken(key, fmt::format("is missing although write {} ({}) was durable (LEDGER-2)",
                          writes[floor].number, show(writes[floor].version)));
  return std::nullopt;
}

void CrashLedger::check_prefix(const std::vector<std::optional<std::size_t>>& states,
                               const std::vector<Shown>& shown, std::uint32_t boot) {
  std::uint64_t survived = 0;  // everything up to it must have
  for (const Shown& one : shown) {
    if (Version{one.version}.boot() == boot) survived = std::max(survived, one.version);
  }
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    if (!states[key]) continue;
    const std::vector<Write>& writes = keys_[key].writes;
    for (std::size_t i = *states[key] + 1; i < writes.size(); ++i) {
      const Write& write = writes[i];
      const bool known = write.outcome == Outcome::kDone && Version{write.version}.boot() == boot;
      if (!known || write.version > survived) continue;
      broken(key, fmt::format("lost write {} ({}) although {} has survived (LEDGER-3)",
                              write.number, show(write.version), show(survived)));
    }
  }
}

std::vector<std::string> CrashLedger::check(const std::vector<Shown>& shown, std::uint32_t boot) {
  std::vector<std::optional<std::size_t>> states(keys_.size());
  for (std::size_t key = 0; key < keys_.size(); ++key)
    states[key] = shown[key].value ? value_state(key, shown[key]) : missing_state(key);
  check_prefix(states, shown, boot);
  return std::exchange(broken_, {});
}

void CrashLedger::go_on_from(const std::vector<Shown>& shown) {
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    const auto at = shown[key].value ? value_state(key, shown[key]) : missing_state(key);
    Key& of = keys_[key];
    Write state = at ? of.writes[*at] : Write{};
    state.asked = Durability::kSync;
    state.outcome = Outcome::kDone;
    state.version = shown[key].version;
    of.highest_version = std::max(of.highest_version, state.version);
    of.before = std::move(of.writes);
    of.writes.assign(1, state);
  }
  claims_.clear();
  broken_.clear();
}

void CounterLedger::done(std::int64_t number, Durability level) {
  last_ = number;
  open_ = 0;
  if (level >= Durability::kWal) floor_ = number;
}

std::string CounterLedger::describe() const {
  return fmt::format("{} to {}", floor_, last_ + open_);
}

}  // namespace rkv::testing_support
