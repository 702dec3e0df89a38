// The readers of the storm: the client's GET core, whose READs are copies from the memory.
#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include "client/get/get.h"
#include "client/get/group_cache.h"
#include "client/get/remote_map.h"
#include "common/random.h"
#include "tests/storm/life.h"

namespace rkv::storm {

namespace {

using client::GetMachine;

// Copies bytes at `address` like a READ: word by word, from any offset.
void fetch(MutableBytes to, std::uint64_t address) {
  (void)testing::regions_made.load(std::memory_order_acquire);
  const std::uint64_t skip = address % 8;
  std::vector<std::byte> words(to.size() + skip);
  copy_from_shared(words, reinterpret_cast<const std::byte*>(address - skip));
  std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(skip), to.size(), to.begin());
}

class Reader {
 public:
  Reader(Life& life, std::uint64_t seed)
      : life_(life),
        random_(seed),
        newest_(life.keys),
        machine_(map_, groups_, slots_, life.clock()) {
    load_map();
  }

  void get() {
    const std::uint64_t key = random_.below(life_.keys);
    const Known& known = life_.known[key];
    const std::uint64_t present = known.presence.load(std::memory_order_acquire);
    const std::uint64_t least = known.acknowledged.load(std::memory_order_acquire);
    name_ = key_of(key);
    answer_.reset();
    const bool one_sided = get_one_sidedly();
    if (!one_sided && !ask_server()) return;
    life_.gets.fetch_add(1, std::memory_order_relaxed);
    if (one_sided) life_.one_sided.fetch_add(1, std::memory_order_relaxed);
    if (!answer_) {
      // Release: the GET's loads are complete before the number is loaded again.
      const bool throughout = present % 2 == 1 && life_.known[key].presence.fetch_add(
                                                      0, std::memory_order_acq_rel) == present;
      if (throughout && !expires(key)) life_.report(name_ + " was there and was missed");
      return;
    }
    judge(key, least);
  }

 private:
  void judge(std::uint64_t key, std::uint64_t least) {
    const std::size_t colon = answer_->find(':');
    if (colon == std::string::npos) return life_.report(name_ + ": a value of nobody");
    const std::uint64_t number = std::strtoull(answer_->c_str() + colon + 1, nullptr, 10);
    if (*answer_ != value_of(key, number))
      return life_.report(
          fmt::format("{}: no value that was ever written: {}", name_, answer_->substr(0, 40)));
    if (number < least)
      return life_.report(
          fmt::format("{}: write {}, older than {}, which was acknowledged", name_, number, least));
    if (number < newest_[key])
      return life_.report(
          fmt::format("{}: write {}, older than {}, which was read", name_, number, newest_[key]));
    newest_[key] = number;
  }

  bool get_one_sidedly() {
    auto next = machine_.start(as_bytes(name_), memory_);
    for (;;) {
      switch (next) {
        case GetMachine::Next::kRead:
          do_reads();
          next = machine_.step();
          break;
        case GetMachine::Next::kLargeBuffer:
          machine_.give_buffer(large_);
          next = machine_.step();
          break;
        case GetMachine::Next::kValueBuffer:
          value_.resize(machine_.value_bytes());
          machine_.give_value_buffer(value_, 0);
          next = machine_.step();
          break;
        case GetMachine::Next::kRefreshExtents:
          load_extents();
          next = machine_.step();
          break;
        case GetMachine::Next::kRefreshDirectory:
          life_.report("the directory has moved");
          return false;
        case GetMachine::Next::kFound:
          answer_ = std::string(as_text(machine_.value()));
          return true;
        case GetMachine::Next::kMissing:
          return true;
        case GetMachine::Next::kTwoSided:
          return false;
      }
    }
  }
  void do_reads() {
    for (const client::ReadRequest& read : machine_.reads()) {
      if (read.swaps) {
        std::uint64_t expected = read.compare;
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(read.from.address))
            .compare_exchange_strong(expected, read.desired);
        store_le(read.to.data(), expected);
      } else {
        fetch(read.to, read.from.address);
      }
    }
  }

  // False: no answer.
  bool ask_server() {
    const auto got = life_.run_operation(name_, [&](const server::DiskLookup& look) {
      return life_.store().get(as_bytes(name_), buffer_, look);
    });
    if (!got) return got.error().code == Code::kNotFound;
    if (got->large) return false;
    answer_ = std::string(as_text(Bytes(buffer_).first(got->value_length)));
    return true;
  }

  void load_map() {
    const Bytes root = life_.memory().root().bytes();
    map_.begin(life_.memory().epoch(),
               {.address = life_.memory().root().address(),
                .remote_key = life_.memory().root().remote_key(),
                .length = static_cast<std::uint32_t>(root.size())},
               {}, 7);
    load_extents();
    std::vector<std::byte> page(kRootPageBytes);
    fetch(page, reinterpret_cast<std::uint64_t>(root.data()));
    const auto line = open_line<DirectoryLine>(page, life_.memory().epoch(), kDirectoryLineOffset);
    std::vector<std::byte> directory(std::size_t{8} << line->global_depth);
    fetch(directory, line->address);
    if (!map_.apply_directory_line(page)) return life_.report("no directory");
    map_.apply_directory(0, directory);
    map_.finish();
  }
  // Repeats while a line is torn.
  void load_extents() {
    const Bytes root = life_.memory().root().bytes();
    std::vector<std::byte> page(kRootPageBytes);
    do
      fetch(page, reinterpret_cast<std::uint64_t>(root.data()));
    while (!map_.apply_identity(page));
    std::vector<std::byte> extents(map_.extent_count() * kExtentEntryBytes);
    do
      fetch(extents, reinterpret_cast<std::uint64_t>(root.data()) + kExtentTableOffset);
    while (!map_.apply_extents(0, extents));
  }

  Life& life_;
  Random random_;
  std::vector<std::uint64_t> newest_;
  client::RemoteMap map_;
  client::GroupCache groups_{1024};
  client::SlotCache slots_{1024};
  GetMachine machine_;
  client::GetMemory memory_;
  std::vector<std::byte> large_ = std::vector<std::byte>(GetMachine::kLargeBufferBytes);
  std::vector<std::byte> value_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxInlineBytes);
  std::string name_;
  std::optional<std::string> answer_;
};

}  // namespace

void read_storm(Life& life, std::uint64_t seed) {
  const auto reader = std::make_unique<Reader>(life, seed);
  while (!life.over())
    reader->get();
}

}  // namespace rkv::storm
