// Keys in order: Client::scan() for one page of them, Scanner for all of a range.
//
//   rkv::Scanner scanner(*client, {.prefix = "user/"});
//   for (const rkv::ScanEntry& entry : scanner) use(entry.key, entry.value);
//   if (!scanner.status()) return complain(to_string(scanner.status().error()));
//
// What a scan promises. One page is the store at one instant, after the call began: with every PUT
// and DELETE that was acknowledged to anybody before, but for values longer than 64 KiB, which are
// read behind it. Several pages are as many instants, each later than the one before. So a scan to
// its end, while others write:
//  - shows keys in strict order, and so none twice;
//  - shows every key that was there all the time, with a value that it had between begin and end;
//  - shows no key that was not there at any moment of it.
// A key put or removed meanwhile is shown or not.
// Everything shown is in the server's write-ahead log. A key that has expired is not shown, though
// a GET may find it for up to 200 ms yet. Of a one-sided counter (client.h) the number is not older
// than the call, and the version is one that no GET shows. Across a restart of the server a scan
// goes on; what the restart has lost is then missing.
//
// Order is that of the bytes, unsigned. The server must have a disk: without one (kvserver without
// --data-dir) there is no order, and the answer is kUnsupported.
//
// Threads: as the client that is used. Nothing is kept on the server between two pages, so a scan
// may be left at any time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv {

class Client;
class Cluster;
namespace client {
class Engine;
class LongValues;
}  // namespace client

// Prefix, start and end together: a key is shown that satisfies all of them, in either direction.
struct ScanOptions {
  std::string_view prefix{};  // keys that begin with it
  std::string_view start{};   // keys at or above it; empty = from the first
  std::string_view end{};     // keys below it; empty = to the last
  bool reverse = false;       // from the last to the first
  bool keys_only = false;     // no values: saves the network, not the server's disk
  // Client::scan(): entries in the page at most; 0 = as many as there is room for, which is 128
  // KiB. Scanner: entries in all; 0 = no limit.
  std::uint32_t limit = 0;
  // Of the page before; empty = from the beginning. Prefix, start, end and reverse must be as they
  // were then; limit and keys_only may differ.
  std::string_view token{};
  std::chrono::milliseconds timeout{0};  // of each page; as Client::Timeout
};

// Valid as long as the page, or until the scanner's next step.
struct ScanEntry {
  std::string_view key;
  std::string_view value;       // empty with keys_only
  std::size_t value_bytes = 0;  // its length, with keys_only too
  std::uint64_t version = 0;    // as in Value
  std::uint64_t expires_at_ms = 0;
  bool is_counter = false;  // `value` is its number: 8 bytes, little-endian
};

class ScanPage {
 public:
  ScanPage(ScanPage&&) noexcept = default;
  ScanPage& operator=(ScanPage&&) noexcept = default;
  std::span<const ScanEntry> entries() const { return entries_; }
  // For ScanOptions::token, to get the next page, at any time and from any client of any server
  // that has the data; empty: the scan is over. A page may be empty and have one: the server looks
  // at a bounded number of records for each.
  std::string_view token() const { return token_; }
  // Every write up to it is seen. 0 of a page of several servers, whose versions do not compare.
  std::uint64_t version() const { return version_; }

 private:
  friend class Client;
  friend class Cluster;
  friend class client::Engine;
  friend class client::LongValues;
  friend class Scanner;
  ScanPage() = default;
  std::unique_ptr<std::byte[]> bytes_;  // as they came; the entries point into it
  std::vector<ScanPage> parts_;         // of several servers: what the entries point into
  std::deque<std::string> long_values_;
  std::vector<ScanEntry> entries_;
  std::string_view token_;
  std::uint64_t version_ = 0;
};

// Steps through a range, a page at a time. Allocates a page's worth.
class RKV_EXPORT Scanner {
 public:
  // Copies what `options` points to. The client must outlive the scanner and stay where it is;
  // between steps it may be used for anything.
  explicit Scanner(Client& client, const ScanOptions& options = {});
  // Over all servers, in one order: cluster.h says what is promised.
  explicit Scanner(Cluster& cluster, const ScanOptions& options = {});

  // The next entry, valid until the next step; nullptr at the end. Blocks for a round trip where a
  // new page is needed, and for GETs of values longer than 64 KiB. After an error (as of
  // Client::scan) the same step may be tried again.
  Result<const ScanEntry*> next();

  // For range-based for: steps until the end or an error, which status() tells afterwards.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = ScanEntry;
    const ScanEntry& operator*() const { return *entry_; }
    const ScanEntry* operator->() const { return entry_; }
    Iterator& operator++() {
      entry_ = scanner_->step();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return entry_ == nullptr; }

   private:
    friend class Scanner;
    explicit Iterator(Scanner& scanner) : scanner_(&scanner), entry_(scanner.step()) {}
    Scanner* scanner_;
    const ScanEntry* entry_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }
  // Of the last step made by an iterator.
  const Status& status() const { return status_; }

  // For ScanOptions::token of another scan, which goes on behind what this one has shown. Empty
  // where status() is good: the scan is over. REQUIRES: the last step found no entry, for the
  // limit, the end or an error.
  const std::string& token() const { return token_; }

 private:
  using PageOf = Result<ScanPage> (*)(void* source, const ScanOptions& options);

  Scanner(void* source, PageOf page_of, const ScanOptions& options);
  const ScanEntry* step();
  Status next_page();

  void* source_;  // a Client or a Cluster
  PageOf page_of_;
  std::string prefix_;
  std::string start_;
  std::string end_;
  std::string token_;
  ScanOptions options_;  // without the texts
  ScanPage page_;
  std::size_t next_ = 0;    // of the page's entries
  std::uint64_t left_ = 0;  // of the limit
  std::string last_key_;    // shown
  bool any_shown_ = false;
  bool over_ = false;  // no page follows
  Status status_;
};

}  // namespace rkv
