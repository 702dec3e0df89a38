// The writers of the storm.
#include <fmt/format.h>

#include "common/random.h"
#include "tests/storm/life.h"

namespace rkv::storm {

namespace {

using server::DiskLookup;

class Writer {
 public:
  Writer(Life& life, std::uint32_t number, std::uint64_t seed)
      : life_(life), number_(number), random_(seed), versions_(life.keys) {}

  void step() {
    const std::uint64_t dice = random_.below(100);
    if (dice < 8) return count();
    const std::uint64_t key = random_.below(life_.keys / kWriters) * kWriters + number_;
    if (dice < 16) return remove(key);
    if (dice < 24) return put_on_condition(key);
    put(key, {});
  }

 private:
  bool is_time_for(Canary canary) { return life_.canary == canary && random_.below(64) == 0; }

  // Keeps a canary's faulty state until other threads have run.
  static void let_readers_look() {
    for (int i = 0; i < 100; ++i)
      std::this_thread::yield();
  }

  // Returns the write's result. Without space the write has had no effect.
  Result<Version> send(std::uint64_t key, const std::string& value, server::PutOptions options) {
    const std::string name = key_of(key);
    const auto put = life_.run_operation(name, [&](const DiskLookup& look) {
      options.look = look;
      return life_.store().put(as_bytes(name), as_bytes(value), options);
    });
    if (!put) return std::unexpected(put.error());
    return put->version;
  }

  void put(std::uint64_t key, server::PutOptions options) {
    Known& known = life_.known[key];
    const std::uint64_t number = ++last_number_;
    std::string value = value_of(key, number);
    if (is_time_for(Canary::kWrongByte)) value.back() ^= 1;
    if (expires(key)) options.ttl_ms = 1 + random_.below(40);
    if (is_time_for(Canary::kOldValue)) {
      known.acknowledged.store(number, std::memory_order_release);
      let_readers_look();
    }
    const auto put = send(key, value, options);
    if (!put) return unless_no_room(put.error(), key);
    if (*put <= versions_[key]) life_.report(key_of(key) + ": a version that does not rise");
    versions_[key] = *put;
    // Release: a reader that loads this number may not accept an older write.
    known.acknowledged.store(number, std::memory_order_release);
    if (known.presence % 2 == 0) known.presence.fetch_add(1, std::memory_order_release);
    life_.writes.fetch_add(1, std::memory_order_relaxed);
  }

  void unless_no_room(const Error& error, std::uint64_t key) {
    if (error.code == Code::kBusy || error.code == Code::kOutOfMemory) return;
    life_.report(fmt::format("{}: {}", key_of(key), to_string(error)));
  }

  void remove(std::uint64_t key) {
    Known& known = life_.known[key];
    const bool silent = is_time_for(Canary::kMissedKey);
    if (known.presence % 2 == 1 && !silent) known.presence.fetch_add(1, std::memory_order_release);
    const std::string name = key_of(key);
    const auto removed = life_.run_operation(name, [&](const DiskLookup& look) {
      return life_.store().remove(as_bytes(name), std::nullopt, look);
    });
    if (silent) let_readers_look();
    if (removed) {
      versions_[key] = {};
      return;
    }
    if (removed.error().code == Code::kNotFound) return;
    unless_no_room(removed.error(), key);
    // The key is unchanged. Readers in between may have seen it absent.
    if (known.presence % 2 == 0 && versions_[key].bits != 0)
      known.presence.fetch_add(1, std::memory_order_release);
  }

  // Only this writer writes its keys, so each key has the version of the writer's last answer.
  void put_on_condition(std::uint64_t key) {
    if (expires(key)) return;
    const Version last = versions_[key];
    if (last.bits == 0) return put(key, {.condition = Condition::kIfAbsent});
    if (random_.below(2) == 0)
      return put(key, {.condition = Condition::kIfVersion, .expected = last});
    const auto wrong =
        send(key, "wrong", {.condition = Condition::kIfVersion, .expected = {last.bits - 1}});
    if (wrong) return life_.report(key_of(key) + ": a PUT on a version that is over succeeded");
    if (wrong.error().code != Code::kConflict) unless_no_room(wrong.error(), key);
  }

  void count() {
    const std::uint64_t counter = random_.below(kCounters);
    const auto summand = static_cast<std::int64_t>(random_.below(100));
    if (is_time_for(Canary::kLostCount)) life_.counted[counter].fetch_add(1);
    if (counter >= kCounters / 2 && random_.below(4) != 0) return add_in_cell(counter, summand);
    const std::string name = counter_of(counter);
    const auto added = life_.run_operation(name, [&](const DiskLookup& look) {
      return life_.store().counters().add(as_bytes(name), summand, look);
    });
    if (added) life_.counted[counter].fetch_add(summand);
  }
  void add_in_cell(std::uint64_t counter, std::int64_t summand) {
    const std::string name = counter_of(counter);
    const auto opened = life_.run_operation(name, [&](const DiskLookup& look) {
      return life_.store().counters().open(as_bytes(name), true, life_.network, look);
    });
    if (opened && opened->cell && life_.add_to_cell(*opened->cell, summand))
      life_.counted[counter].fetch_add(summand);
  }

  Life& life_;
  const std::uint32_t number_;
  Random random_;
  std::vector<Version> versions_;  // of its own keys, from the answers; 0: none
  std::uint64_t last_number_ = 0;
};

}  // namespace

void write_storm(Life& life, std::uint32_t number, std::uint64_t seed, std::uint64_t operations) {
  Writer writer(life, number, seed);
  for (std::uint64_t i = 0; i < operations && !life.over(); ++i)
    writer.step();
  if (life.canary == Canary::kLostBlock && number == 0)
    (void)life.store().large_records().begin(as_bytes("nobody"), kMaxInlineBytes + 1, {});
}

}  // namespace rkv::storm
