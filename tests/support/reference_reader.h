// A second reader of the memory layout, written from the rules of a one-sided GET without any
// client code: tests compare the server's memory with it. Each READ is a suspension point of a
// coroutine, so a test decides when, in which order and in how many pieces each READ happens.
//
//   ReferenceReader reader(root_region_bytes, epoch);
//   ReadPort port;
//   Answer answer = reader.get_now(port, "key");              // every READ at once
//
//   Task<Answer> get = reader.get(port, "key", &cache);       // step by step
//   get.start();
//   while (!get.done()) port.complete();                      // or piece by piece
//
// Thread safety: a reader, a ReadPort, a cache and a Task belong to one thread.
#pragma once

#include <coroutine>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/layout.h"

namespace rkv::testing {

// A lazily started coroutine that another coroutine may await.
template <class T>
class Task {
 public:
  struct promise_type {  // NOLINT(readability-identifier-naming): the language requires this name
    std::optional<T> value;
    std::coroutine_handle<> continuation = std::noop_coroutine();
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Resume {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
          return handle.promise().continuation;
        }
        void await_resume() noexcept {}
      };
      return Resume{};
    }
    void return_value(T result) { value = std::move(result); }
    void unhandled_exception() { std::terminate(); }
  };

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  T& value() { return *handle_.promise().value; }

  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().continuation = caller;
    return handle_;
  }
  T await_resume() { return std::move(value()); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

// The READ that a GET waits for.
struct ReadPort {
  const std::byte* from = nullptr;
  MutableBytes to;
  std::coroutine_handle<> waiting;
  int reads = 0;  // since the port was created

  void resume() { std::exchange(waiting, {}).resume(); }
  void complete() {
    copy_from_shared(to, from);
    resume();
  }
};

struct Answer {
  enum class Kind { kValue, kMiss, kAskServer };
  Kind kind = Kind::kMiss;
  std::string value;
  Version version;
};

// Rules to leave out on purpose: a test of tests.
struct ReaderFlaws {
  bool no_second_look_home = false;       // a miss through the overflow without reading home again
  bool no_second_look_other_key = false;  // the same after a fingerprint of another key
  bool licence_from_cache = false;        // a superseded record found through the cache is accepted
  bool no_look_at_the_prefix = false;     // a group is accepted whatever prefix it covers
};

class ReferenceReader {
 public:
  // A client's caches, of any age.
  struct Cache {
    std::map<std::uint64_t, Group> groups;  // groups that verified once, by GroupPlace::bits()
    std::map<std::size_t, std::uint64_t> directory;
    void clear() { *this = {}; }
  };

  ReferenceReader(Bytes root, std::uint64_t epoch, ReaderFlaws flaws = {})
      : root_(root), epoch_(epoch), flaws_(flaws) {
    const auto directory = open_line<DirectoryLine>(root, epoch, kDirectoryLineOffset);
    if (!directory || !read_extents()) return;
    directory_ = *directory;
    valid_ = true;
  }

  bool valid() const { return valid_; }
  const std::vector<ExtentEntry>& extents() const { return extents_; }
  const DirectoryLine& directory() const { return directory_; }

  // The home group by the directory, or by an earlier state of the directory (`cache`). Empty if
  // the directory entry is invalid.
  std::optional<GroupPlace> home(KeyHash hash, Cache* cache = nullptr) const {
    const auto* entries = reinterpret_cast<const std::uint64_t*>(memory_at(directory_.address));
    const std::size_t index = hash.directory_index(directory_.global_depth);
    std::uint64_t word = load_word(&entries[index]);
    if (cache != nullptr) word = cache->directory.try_emplace(index, word).first->second;
    const auto entry = DirectoryEntry::decode(word, epoch_);
    if (!entry) return std::nullopt;
    const GroupPlace place{.extent = entry->extent,
                           .number = entry->segment * directory_.groups_per_segment +
                                     hash.group_index(directory_.groups_per_segment)};
    return at(place.extent, place.offset(), kGroupBytes, ExtentEntry::kIndex) != nullptr
               ? std::optional(place)
               : std::nullopt;
  }

  Task<Answer> get(ReadPort& port, std::string key, Cache* cache = nullptr,
                   int tries = kMaxTries) const {
    const KeyHash hash(as_bytes(key), directory_.hash_seed);
    auto place = home(hash, cache);
    if (!place) co_return Answer{.kind = Answer::Kind::kAskServer, .value = {}, .version = {}};
    if (cache != nullptr) {
      for (const GroupPlace cached : {*place, place->neighbour()}) {
        const auto found = cache->groups.find(cached.bits());
        if (found == cache->groups.end()) continue;
        const Group copy = found->second;
        Tried tried = co_await try_slots(port, copy, hash, key, flaws_.licence_from_cache);
        if (tried.answer) co_return std::move(*tried.answer);
      }
    }
    while (tries-- > 0) {
      Tried tried = co_await attempt(port, *place, hash, key, cache);
      if (tried.answer) co_return std::move(*tried.answer);
      if (!tried.lost) continue;
      if (cache != nullptr) cache->directory.erase(hash.directory_index(directory_.global_depth));
      place = home(hash, cache);
      if (!place) break;
    }
    co_return Answer{.kind = Answer::Kind::kAskServer, .value = {}, .version = {}};
  }

  Answer get_now(ReadPort& port, std::string key, Cache* cache = nullptr) const {
    Task<Answer> task = get(port, std::move(key), cache);
    task.start();
    while (!task.done())
      port.complete();
    return std::move(task.value());
  }

  static constexpr int kMaxTries = 12;

 private:
  struct Tried {
    std::optional<Answer> answer;
    bool again = false;      // something was torn or in progress: no conclusion
    bool other_key = false;  // a fingerprint matched, but it belonged to another key
    bool lost = false;       // the directory led to a group that does not cover the key
  };
  struct GroupRead {
    Group group;
    bool proved = false;
  };

  // Suspends until the READ is done.
  struct Read {
    ReadPort& port;
    const std::byte* from;
    MutableBytes to;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) const {
      port.from = from;
      port.to = to;
      port.waiting = handle;
      port.reads += 1;
    }
    void await_resume() const {}
  };

  const std::byte* at(std::uint32_t extent, std::uint64_t offset, std::uint64_t length,
                      std::uint32_t kind) const {
    if (extent >= extents_.size()) read_extents();  // more extents may exist now
    if (extent >= extents_.size() || extents_[extent].kind != kind ||
        offset + length > std::uint64_t{extents_[extent].units} * kUnitBytes) {
      return nullptr;
    }
    return memory_at(extents_[extent].address) + offset;
  }

  bool read_extents() const {
    std::vector<std::byte> copy(root_bytes(kMaxExtents));
    copy_from_shared(copy, root_.data());
    // Acquire, for ThreadSanitizer: another thread created the objects that the line leads to.
    // After the copy, so that the load sees the same store of the word or a later one.
    const std::byte* checksum = root_.data() + kIdentityOffset + kRootLineBytes - 8;
    load_word(reinterpret_cast<const std::uint64_t*>(checksum), std::memory_order_acquire);
    const auto identity = open_line<IdentityLine>(copy, epoch_, kIdentityOffset);
    if (!identity || identity->magic != kRootMagic) return false;
    for (auto i = static_cast<std::uint32_t>(extents_.size()); i < identity->extent_count; ++i) {
      const auto entry =
          open_line<ExtentEntry>(copy, epoch_, kExtentTableOffset + i * kExtentEntryBytes);
      if (!entry || entry->id != i) return false;
      extents_.push_back(*entry);
    }
    return true;
  }

  // Replaces an RDMA READ: the address belongs to this process.
  static const std::byte* memory_at(std::uint64_t address) {
    return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

  Task<GroupRead> read_group(ReadPort& port, GroupPlace place, KeyHash hash, Cache* cache) const {
    GroupRead result;
    const std::byte* from = at(place.extent, place.offset(), kGroupBytes, ExtentEntry::kIndex);
    co_await Read{port, from, std::as_writable_bytes(std::span(&result.group, 1))};
    result.proved =
        verify_group(result.group, epoch_, place) &&
        (flaws_.no_look_at_the_prefix || GroupHeader::decode(result.group.header).covers(hash));
    if (result.proved && cache != nullptr) cache->groups[place.bits()] = result.group;
    co_return result;
  }

  // Tries every record whose slot has the fingerprint. `licence`: the group was verified in this
  // GET.
  Task<Tried> try_slots(ReadPort& port, const Group& group, KeyHash hash, const std::string& key,
                        bool licence) const {
    Tried tried;
    bool on_disk = false;
    for (const std::uint64_t bits : group.slots) {
      const Slot slot{bits};
      if (slot.empty() || slot.fingerprint() != hash.fingerprint()) continue;
      if (slot.is_on_disk()) {
        on_disk = on_disk || slot == Slot::on_disk(hash);
        continue;
      }
      std::optional<std::vector<std::byte>> bytes = co_await read_record(port, slot);
      const auto record =
          bytes ? decode_record(*bytes, epoch_, slot.location()) : std::optional<RecordView>{};
      if (record && as_text(record->fields.key) != key) {
        tried.other_key = true;
        continue;
      }
      const bool counts = record && (record->state == RecordState::kLive ||
                                     (record->state == RecordState::kSuperseded && licence));
      if (counts) {
        tried.answer = Answer{.kind = Answer::Kind::kValue,
                              .value = std::string(as_text(record->fields.value)),
                              .version = record->fields.version};
        co_return tried;
      }
      tried.again = true;
    }
    if (on_disk && licence && !tried.again) {
      tried.answer = Answer{.kind = Answer::Kind::kAskServer, .value = {}, .version = {}};
    }
    co_return tried;
  }

  Task<std::optional<std::vector<std::byte>>> read_record(ReadPort& port, Slot slot) const {
    const Location location = slot.location();
    std::uint64_t length = std::uint64_t{slot.units()} * kUnitBytes;
    std::vector<std::byte> bytes;
    if (slot.is_long()) {  // the header has the length
      bytes.resize(kUnitBytes);
      const std::byte* from =
          at(location.extent(), location.offset(), kUnitBytes, ExtentEntry::kData);
      if (from == nullptr) co_return std::nullopt;
      co_await Read{port, from, bytes};
      const auto claimed = claimed_record_bytes(bytes);
      if (!claimed) co_return std::nullopt;
      length = round_up(*claimed, kUnitBytes);
    }
    const std::byte* from = at(location.extent(), location.offset(), length, ExtentEntry::kData);
    if (from == nullptr) co_return std::nullopt;
    bytes.resize(length);
    co_await Read{port, from, bytes};
    co_return bytes;
  }

  // Reads home, and the neighbour if the overflow flag is set. Without an answer, try again.
  Task<Tried> attempt(ReadPort& port, GroupPlace place, KeyHash hash, const std::string& key,
                      Cache* cache) const {
    const GroupRead home = co_await read_group(port, place, hash, cache);
    Tried tried = co_await try_slots(port, home.group, hash, key, home.proved);
    if (tried.answer || tried.again || !home.proved)
      co_return Tried{.answer = std::move(tried.answer), .lost = !home.proved};
    bool look_home_again = tried.other_key && !flaws_.no_second_look_other_key;
    const GroupHeader header = GroupHeader::decode(home.group.header);
    if (header.overflow) {
      const GroupPlace next_door = place.neighbour();
      const GroupRead other = co_await read_group(port, next_door, hash, cache);
      tried = co_await try_slots(port, other.group, hash, key, other.proved);
      if (tried.answer || tried.again || !other.proved)
        co_return Tried{.answer = std::move(tried.answer), .lost = !other.proved};
      if (tried.other_key && !flaws_.no_second_look_other_key) {
        const GroupRead again = co_await read_group(port, next_door, hash, cache);
        if (!unchanged(other, again)) co_return Tried{};
      }
      look_home_again |= !flaws_.no_second_look_home;
    }
    if (look_home_again) {
      const GroupRead again = co_await read_group(port, place, hash, cache);
      if (!unchanged(home, again)) co_return Tried{};
    }
    Answer answer{.kind = header.spilled ? Answer::Kind::kAskServer : Answer::Kind::kMiss,
                  .value = {},
                  .version = {}};
    co_return Tried{.answer = std::move(answer)};
  }

  static bool unchanged(const GroupRead& first, const GroupRead& second) {
    return second.proved && first.group.checksum == second.group.checksum &&
           first.group.header == second.group.header;
  }

  const Bytes root_;
  const std::uint64_t epoch_;
  const ReaderFlaws flaws_;
  bool valid_ = false;
  DirectoryLine directory_;
  mutable std::vector<ExtentEntry> extents_;  // the extents read so far
};

}  // namespace rkv::testing
