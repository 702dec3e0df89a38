// A store with cells, a device that can be in trouble, and clients.
//
// Clients are played by atomics on the words, which is what a client's FETCH_AND_ADD is over shared
// memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "server/store/cells.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {

// The faults of a device.
struct Trouble {
  std::uint32_t silent_seals = 0;  // of the first seals so many are carried out and not answered
  bool broken = false;             // it does nothing
  // Changes whose answers clients got, but which memory shows only after the next atomic of our
  // own.
  std::function<void()> late{};
};

// A device that does what it is asked, and may not say so.
class TroubledAtomics final : public rdma::Atomics {
 public:
  TroubledAtomics(std::unique_ptr<rdma::Atomics> device, Trouble& trouble)
      : device_(std::move(device)), trouble_(trouble) {}
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    RKV_RETURN_IF_ERROR(begin());
    return say(device_->fetch_add(word, addend), addend == kCellSeal);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    RKV_RETURN_IF_ERROR(begin());
    return say(device_->compare_swap(word, expected, desired), (desired & kCellSeal) != 0);
  }

 private:
  Status begin() {
    if (const auto late = std::exchange(trouble_.late, nullptr)) late();
    if (trouble_.broken) return fail(Code::kInternal, "broken");
    return {};
  }
  Result<std::uint64_t> say(Result<std::uint64_t> word, bool seals) {
    if (!seals || told_++ >= trouble_.silent_seals) return word;
    return fail(Code::kInternal, "no answer");
  }
  const std::unique_ptr<rdma::Atomics> device_;
  Trouble& trouble_;
  std::uint32_t told_ = 0;
};

struct CountersUnderTest {
  explicit CountersUnderTest(std::uint32_t count = 64, std::unique_ptr<CommitLog> commits = nullptr,
                             const MemoryOptions& memory = small_memory())
      : transport(*rdma::open_shm({.directory = ::testing::TempDir()})),
        region(*transport->allocate(std::size_t{count} * 8, rdma::Access::kRemoteReadAtomic)),
        cells(*Cells::create(
            std::make_unique<TroubledAtomics>(*transport->create_atomics(*region), trouble),
            *region, count)),
        under(memory, std::move(commits)) {
    network = under.store.counter_cells().add_network(*cells);
  }
  std::atomic_ref<std::uint64_t> word(std::uint32_t cell) {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(region->bytes().data())[cell]);
  }
  // As a client does: what the number is now, or nothing: void.
  std::optional<std::int64_t> add(std::uint32_t cell, std::int64_t summand) {
    const auto old = cell_number(word(cell).fetch_add(static_cast<std::uint64_t>(summand)));
    if (!old) return std::nullopt;
    return *old + summand;
  }
  std::uint32_t open(std::string_view key, bool create = true) {
    const auto opened = store().counters().open(as_bytes(key), create, network);
    EXPECT_TRUE(opened && opened->cell);
    return opened && opened->cell ? *opened->cell : 0;
  }
  Result<GetResult> get(std::string_view key, std::int64_t* number) {
    std::vector<std::byte> out(kMaxInlineBytes);
    const auto got = store().get(as_bytes(key), out);
    if (got) *number = load_le<std::int64_t>(out.data());
    return got;
  }
  std::int64_t number(std::string_view key) {
    std::int64_t number = 0;
    const auto got = get(key, &number);
    EXPECT_TRUE(got && got->counter && got->value_length == kCounterBytes);
    return number;
  }
  Store& store() { return under.store; }

  Trouble trouble;
  std::unique_ptr<rdma::Transport> transport;
  std::unique_ptr<rdma::Region> region;
  std::unique_ptr<Cells> cells;
  StoreUnderTest under;
  std::uint32_t network = 0;
};

// The changes that the log received, by key.
inline std::map<std::string, std::int64_t> drain(CommitLog& log,
                                                 std::vector<std::uint64_t>* versions) {
  std::map<std::string, std::int64_t> numbers;
  CommitLog::Entry entry;
  while (log.consume(&entry)) {
    const std::string key(as_text(entry.record.key));
    if (versions != nullptr) versions->push_back(entry.record.version.bits);
    if (entry.kind == CommitLog::Kind::kRemove) {
      numbers.erase(key);
      continue;
    }
    EXPECT_TRUE(entry.record.counter && !entry.record.in_cell);
    EXPECT_EQ(entry.record.value.size(), kCounterBytes);
    numbers[key] = load_le<std::int64_t>(entry.record.value.data());
  }
  log.advance();
  return numbers;
}

}  // namespace rkv::server
