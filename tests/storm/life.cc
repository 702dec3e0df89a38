#include "tests/storm/life.h"

#include <fmt/format.h>

#include <thread>

#include "common/random.h"
#include "tests/support/plain_memory.h"

namespace rkv::storm {

using server::MemoryOptions;

namespace {

// The storm's adapter: clients and the server change the same words by the same atomics.
class Atomics final : public rdma::Atomics {
 public:
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return std::atomic_ref(*word).fetch_add(addend);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    std::atomic_ref(*word).compare_exchange_strong(expected, desired);
    return expected;
  }
};

MemoryOptions memory_for(Kind kind, std::uint64_t seed) {
  MemoryOptions options{
      .memory_bytes = server::kMinMemoryBytes, .epoch = seed | 1U, .hash_seed = mix64(seed)};
  if (kind == Kind::kGrowing) {
    options.groups_per_segment = 2;
    options.initial_segments = 1;
    options.max_segments = 256;
    options.index_extent_bytes = std::size_t{8} * 2 * kGroupBytes;
    options.data_extent_bytes = std::size_t{1} << 20;
  }
  return options;
}

std::uint64_t keys_for(Kind kind) {
  return kind == Kind::kSmall ? 90 : kind == Kind::kGrowing ? 3000 : kMostKeys;
}

constexpr std::uint32_t kCells = 4096;

}  // namespace

std::string key_of(std::uint64_t key) {
  return fmt::format("key-{}", key);
}
std::string counter_of(std::uint64_t counter) {
  return fmt::format("counter-{}", counter);
}

std::string value_of(std::uint64_t key, std::uint64_t number) {
  const std::uint64_t dice = mix64(key * 1'000'003 + number);
  std::size_t length = 24 + dice % 5 * 40;
  if (dice % 16 == 0) length = 24 + (dice >> 8) % 16'000;
  if (dice % 4 == 3) length = 24 + (dice >> 8) % 12'000;
  if (dice % 2048 == 2) length = kMaxInlineBytes + 1 + (dice >> 16) % 60'000;
  std::string value = fmt::format("{}:{}:", key, number);
  value.resize(std::max(length, value.size()), static_cast<char>('a' + dice % 26));
  return value;
}

Life::Life(Kind of, std::uint64_t seed, Canary with)
    : kind(of), canary(with), keys(keys_for(of)), seed_(seed) {
  if (kind == Kind::kOnDisk) {
    disk_ = std::make_unique<server::MapDisk>();
    on_disk_ = std::make_unique<server::StoreOnDisk>(*disk_);
    on_disk_->warm_up.start();
    store_ = &on_disk_->store;
    memory_ = &on_disk_->memory();
  } else {
    own_memory_ = testing::make_plain_memory(memory_for(kind, seed));
    own_log_ = server::CommitLog::create_volatile();
    own_store_ = std::make_unique<server::Store>(*own_memory_, *own_log_, clock_, 7);
    store_ = own_store_.get();
    memory_ = own_memory_.get();
  }
  words_ = std::move(*testing::PlainRegion::make(kCells * 8));
  cells_ = std::move(*server::Cells::create(std::make_unique<Atomics>(), *words_, kCells));
  network = store_->counter_cells().add_network(*cells_);
}

Life::~Life() = default;

std::string Life::violation() const {
  const std::scoped_lock lock(mutex_);
  return violation_;
}

void Life::report(std::string what) {
  const std::scoped_lock lock(mutex_);
  if (violation_.empty()) violation_ = std::move(what);
  over_ = true;
}

bool Life::add_to_cell(std::uint32_t cell, std::int64_t summand) {
  auto& word = reinterpret_cast<std::uint64_t*>(words_->bytes().data())[cell];
  const std::uint64_t old = std::atomic_ref(word).fetch_add(static_cast<std::uint64_t>(summand));
  return cell_number(old).has_value();
}

// The work of the server's own threads; one thread beside the disk's is enough.
void Life::keep_house() {
  while (house_is_kept_.load(std::memory_order_relaxed)) {
    if (!on_disk_ && store_->growth().wants_memory() && !store_->growth().grow())
      report("the store cannot grow");
    store_->expirer().expire();
    if (!store_->counter_cells().sweep() && !on_disk_) report("a sweep without a log failed");
    std::this_thread::yield();
  }
}

void Life::run(std::uint64_t operations) {
  std::vector<std::thread> writers;
  std::vector<std::thread> others;
  others.emplace_back([this] { keep_house(); });
  for (std::uint32_t i = 0; i < kReaders; ++i)
    others.emplace_back([this, i] { read_storm(*this, mix64(seed_ + 100 + i)); });
  for (std::uint32_t i = 0; i < kWriters; ++i)
    writers.emplace_back(
        [this, i, operations] { write_storm(*this, i, mix64(seed_ + i), operations); });
  for (std::thread& thread : writers)
    thread.join();
  over_ = true;
  house_is_kept_ = false;
  for (std::thread& thread : others)
    thread.join();
  over_ = false;  // the checks below run operations, which may first find no space
  if (canary == Canary::kDamage) damage();
  if (violation().empty()) check_counters();
  if (violation().empty()) check_contents();
  over_ = true;
  const bool clean = violation().empty();
  if (on_disk_) on_disk_->stop();
  if (!clean) return;
  if (std::string wrong = store_->check_at_rest(); !wrong.empty()) report("memory: " + wrong);
}

// Reads every key once more and compares it with its last acknowledged write.
void Life::check_contents() {
  // Other checks must notice these canaries.
  if (canary == Canary::kDamage || canary == Canary::kMissedKey) return;
  std::vector<std::byte> buffer(kMaxInlineBytes);
  for (std::uint64_t key = 0; key < keys; ++key) {
    const std::string name = key_of(key);
    const bool present = known[key].presence % 2 == 1;
    const auto got = run_operation(name, [&](const server::DiskLookup& look) {
      return store_->get(as_bytes(name), buffer, look);
    });
    if (!got && got.error().code != Code::kNotFound)
      continue;  // a large value on disk, and no
                 // space for it
    if (!got && present && !expires(key)) return report(name + " is gone");
    if (got && !present) return report(name + " was removed and is there");
    if (!got || got->large) continue;
    const std::string value(as_text(Bytes(buffer).first(got->value_length)));
    if (value != value_of(key, known[key].acknowledged))
      return report(fmt::format("{} is not what was written last: {}", name, value.substr(0, 40)));
  }
}

void Life::check_counters() {
  (void)store_->counter_cells().end_all();
  for (std::uint64_t i = 0; i < kCounters; ++i) {
    const std::string name = counter_of(i);
    const auto sum = run_operation(name, [&](const server::DiskLookup& look) {
      return store_->counters().add(as_bytes(name), 0, look);
    });
    if (!sum) return report(name + ": " + to_string(sum.error()));
    if (sum->number != counted[i])
      return report(fmt::format("{} is {}, not {}", name, sum->number, counted[i].load()));
  }
}

// Changes a byte of a record, as if its block had been allocated twice.
void Life::damage() {
  std::vector<std::byte> buffer(kMaxInlineBytes);
  for (std::uint64_t key = 0; key < keys; ++key) {
    const auto got = store_->get(as_bytes(key_of(key)), buffer);
    if (!got || got->slot.empty()) continue;
    auto* word = reinterpret_cast<std::uint64_t*>(memory_->record(got->slot.location()) + 24);
    store_word(word, load_word(word) ^ 1U);
    return;
  }
}

}  // namespace rkv::storm
